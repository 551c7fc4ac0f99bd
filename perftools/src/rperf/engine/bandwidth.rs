//! Bandwidth, one way or both ways at once.

use std::time::{Duration, Instant};

use super::clock::Clock;
use super::heartbeat::Heartbeat;
use super::wait::Waiter;
use super::warm_up::WarmUp;
use super::{Counted, Peer, PollCounts, Wire, deadline, lost};
use crate::common::error::{Error, Result};
use crate::rperf::spec::{Limit, Shape};
use crate::rperf::stats::Count;
use crate::rperf::stats::cpu::ClockReading;

/// Which way data flows at this end.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// This end sends.
    pub sends: bool,
    /// This end receives.
    pub receives: bool,
    /// It sends only after the first arrival.
    pub waits_first: bool,
}

/// Where messages can be lost: how long a sender without credit waits before it takes what is under
/// way for lost, and how long a receiver whose peer has finished waits for stragglers.
const PATIENCE: Duration = Duration::from_millis(100);

struct State<'a> {
    flow: Flow,
    shape: &'a Shape,
    posted: u64,
    completed: u64,
    /// Posted, and known to have been taken by the peer.
    acked: u64,
    arrived: Count,
    /// When the latest arrived, where some may not.
    latest: Instant,
    /// How far the peer's numbering has come, and up to where credit was returned.
    reached: u64,
    returned: u64,
    /// Time from one message to the next, and how many may have gone by now, where the rate is
    /// limited.
    gap: Option<Duration>,
    allowed: u64,
    /// Since when a sender without credit has heard nothing.
    quiet_since: Option<Instant>,
    clock: Clock,
    /// The peer knows that no more will be posted.
    finished: bool,
    waiting: bool,
}

/// Moves data until the time is over or the messages are through, then until nothing is under way.
pub(crate) fn run<W: Wire, P: Peer>(
    flow: Flow,
    shape: &Shape,
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &ClockReading,
) -> Result<Counted> {
    let deadline = deadline(shape, start.wall());
    let mut s = State {
        flow,
        shape,
        posted: 0,
        completed: 0,
        acked: 0,
        arrived: Count::default(),
        latest: start.wall(),
        reached: 0,
        returned: 0,
        gap: shape.gap(),
        allowed: u64::MAX,
        quiet_since: None,
        clock: Clock::Runs,
        finished: false,
        waiting: flow.waits_first,
    };
    let reliable = shape.is_reliable();
    let mut counted = None;
    let mut warm_up = WarmUp::new(shape, start.wall());
    let mut beat = Heartbeat::new(shape, start.wall());
    loop {
        if !s.finished {
            beat.tick(peer)?;
        }
        s.pace(start.wall());
        let moved = s.send(wire)?;
        let progress = if moved || s.can_send() {
            waiter.poll(wire)?
        } else {
            let patience = (!reliable).then(|| Instant::now() + PATIENCE);
            let end = deadline.filter(|_| s.clock == Clock::Runs);
            let until = end
                .into_iter()
                .chain(patience)
                .chain(s.due(start.wall()))
                .chain(beat.due())
                .min();
            waiter.wait(wire, peer, until)?
        };
        s.take(progress, wire)?;
        if !reliable {
            s.assume_lost(progress);
        }
        let warming_up = warm_up.is_on();
        warm_up.ends(Instant::now, s.completed, s.arrived);
        if !warming_up && counted.is_none() && s.clock_stops(deadline, progress, peer) {
            counted = Some(Counted::new(
                &warm_up,
                s.completed,
                s.arrived,
                ClockReading::of_counts(),
            ));
            // What is under way without an end to it would never be over where the peer takes no
            // part.
            s.clock = Clock::Stopped;
            if s.one_sided() && s.completed < s.posted {
                s.flush(wire)?;
            }
        }
        if (counted.is_some() || !reliable && s.sent_its_count()) && !s.finished && s.sent_all() {
            // Not before: what is told here is what the peer waits for. (Where some of it may not
            // arrive, nobody waits for all.)
            s.finished = true;
            peer.finish(s.posted)?;
        }
        if let Some(sent) = peer.finished().filter(|_| s.finished || !reliable) {
            let sent = sent.saturating_mul(s.copies());
            if flow.receives && s.arrived.msgs > sent {
                return Err(lost(s.arrived.msgs, sent));
            }
            let drained = !reliable && progress.completions == 0 && s.latest.elapsed() >= PATIENCE;
            if counted.is_none() && drained && flow.receives && s.sent_all() {
                // What is missing will not come: the clock stopped with what came last.
                let until = Some(s.latest);
                counted = Some(Counted {
                    until,
                    ..Counted::new(&warm_up, s.completed, s.arrived, ClockReading::of_counts())
                });
                continue;
            }
            // A sender stays until the peer has what it sent; so each end hears from the other.
            if let (Some(counted), true) = (counted, s.finished) {
                if !flow.receives || s.arrived.msgs == sent || drained {
                    let lost = if flow.receives {
                        sent - s.arrived.msgs
                    } else {
                        0
                    };
                    if !flow.receives {
                        wire.verify_final(sent)?;
                    }
                    return Ok(Counted { lost, ..counted });
                }
            }
        }
        if let Some(failure) = peer.failure().filter(|_| progress.completions == 0) {
            return Err(failure);
        }
    }
}

impl State<'_> {
    fn total(&self) -> u64 {
        match self.shape.limit {
            Limit::Messages(n) if self.flow.sends => n,
            Limit::Time(_) if self.flow.sends => u64::MAX,
            _ => 0,
        }
    }

    /// How many messages may be posted now.
    fn room(&self) -> u32 {
        if self.clock == Clock::Stopped || self.finished || self.waiting {
            return 0;
        }
        let left = u32::try_from(self.total().saturating_sub(self.posted)).unwrap_or(u32::MAX);
        let taken = if self.shape.credited {
            self.acked.min(self.completed)
        } else {
            self.completed
        };
        let under_way = u32::try_from(self.posted - taken).unwrap_or(u32::MAX);
        let paced = u32::try_from(self.allowed.saturating_sub(self.posted)).unwrap_or(u32::MAX);
        self.shape
            .depth
            .saturating_sub(under_way)
            .min(left)
            .min(paced)
    }

    /// Lets as many messages go as the rate allows by now.
    fn pace(&mut self, start: Instant) {
        if let Some(gap) = self.gap {
            let gaps = start.elapsed().as_nanos() / gap.as_nanos().max(1);
            self.allowed = u64::try_from(gaps).unwrap_or(u64::MAX).saturating_add(1);
        }
    }

    /// When the rate lets the next message go.
    fn due(&self, start: Instant) -> Option<Instant> {
        let gap = self
            .gap
            .filter(|_| self.flow.sends && !self.finished && self.allowed <= self.posted)?;
        let nanos = gap.as_nanos().saturating_mul(u128::from(self.posted));
        start.checked_add(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }

    fn can_send(&self) -> bool {
        self.room() > 0
    }

    fn send<W: Wire>(&mut self, wire: &mut W) -> Result<bool> {
        let count = self.room().min(self.shape.tuning.post_list);
        if count == 0 {
            return Ok(false);
        }
        wire.send(self.posted, count, self.shape.signal_every, self.total())?;
        self.posted += u64::from(count);
        Ok(true)
    }

    fn take<W: Wire>(&mut self, progress: PollCounts, wire: &mut W) -> Result<()> {
        self.completed = self.completed.max(progress.sent);
        let used = progress.data + progress.credits;
        if used == 0 {
            return Ok(());
        }
        // Before any credit goes out: it promises these.
        wire.repost()?;
        self.waiting = false;
        self.acked = self.acked.max(progress.acked);
        if self.acked > self.posted {
            return Err(Error::protocol(
                "the peer returned more credit than it was owed",
            ));
        }
        if progress.data == 0 {
            return Ok(());
        }
        self.arrived.msgs += u64::from(progress.data);
        self.arrived.bytes += progress.bytes;
        self.reached = self.reached.max(progress.reached);
        if !self.shape.is_reliable() {
            self.latest = Instant::now();
        }
        let batch = u64::from(self.shape.batch);
        while self.shape.credited && self.reached - self.returned >= batch {
            self.returned = if self.shape.is_reliable() {
                self.returned + batch
            } else {
                self.reached
            };
            wire.send_credit(self.returned)?;
        }
        Ok(())
    }

    /// Takes what is under way for lost when nothing was heard of it for long.
    fn assume_lost(&mut self, progress: PollCounts) {
        if progress.completions > 0 || !self.flow.sends || self.can_send() {
            self.quiet_since = None;
        } else if self.quiet_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            self.acked = self.posted;
        }
    }

    /// Asks for the completion of what was posted without.
    fn flush<W: Wire>(&mut self, wire: &mut W) -> Result<()> {
        let one_each = self.shape.qps;
        wire.send(self.posted, one_each, 1, self.posted + u64::from(one_each))?;
        self.posted += u64::from(one_each);
        Ok(())
    }

    /// Whether the counted part is over.
    fn clock_stops<P: Peer>(
        &mut self,
        deadline: Option<Instant>,
        progress: PollCounts,
        peer: &P,
    ) -> bool {
        match (deadline, self.shape.limit) {
            (Some(deadline), _) => {
                self.clock = self.clock.at(deadline);
                self.clock == Clock::Over && self.is_counted(progress, peer)
            }
            (None, Limit::Messages(n)) => {
                (!self.flow.sends || self.completed >= n)
                    && (!self.flow.receives || self.arrived.msgs >= n.saturating_mul(self.copies()))
            }
            (None, Limit::Time(_)) => false,
        }
    }

    /// Whether what was moved up to now is known, when the time is over. Between two completions it
    /// is not: some messages of a list that ends in one, or most of a large message, would have
    /// taken time and count for nothing.
    fn is_counted<P: Peer>(&self, progress: PollCounts, peer: &P) -> bool {
        let comes = self.shape.is_reliable() && self.gap.is_none();
        if comes && self.flow.receives {
            let all = |sent: u64| self.arrived.msgs >= sent.saturating_mul(self.copies());
            return progress.data > 0 || peer.finished().is_some_and(all);
        }
        !(comes && self.one_sided()) || progress.sent > 0 || self.completed == self.posted
    }

    /// How often a message of the peer's arrives.
    fn copies(&self) -> u64 {
        if self.flow.receives {
            self.shape.receivers.into()
        } else {
            1
        }
    }

    /// Whether this end has sent all messages of a test by count.
    fn sent_its_count(&self) -> bool {
        matches!(self.shape.limit, Limit::Messages(n) if self.flow.sends && self.completed >= n)
    }

    /// Whether the peer takes no part in what this end does.
    fn one_sided(&self) -> bool {
        !self.shape.plan.has_receiver()
    }

    /// Whether this end has nothing more to do after the clock stopped. Where the peer takes no
    /// part, nothing may be under way then: the peer takes its memory away, or looks at it.
    fn sent_all(&self) -> bool {
        let quiet = !self.one_sided() || self.completed == self.posted;
        match self.shape.limit {
            Limit::Messages(_) => quiet && self.posted >= self.total(),
            Limit::Time(_) => quiet,
        }
    }
}
