//! Bandwidth tests, in one direction or in both directions at once.
//!
//! The loop is a state machine. Each end passes through these phases in order:
//!
//! | phase | what the end does | left when |
//! |---|---|---|
//! | `Phase::WarmUp` | moves data that is not counted | the warm-up time is over |
//! | `Phase::Measure` | moves data that is counted | the time is over, or the messages are through |
//! | `Phase::LastCompletion` | moves data until the count is exact | the next completion arrives |
//! | `Phase::Drain` | posts no more; requests in flight complete | none is in flight that must complete |
//! | `Phase::AwaitPeer` | has notified the peer; its last messages arrive | the peer has finished too |
//!
//! `Delivery` is the policy for messages that do not arrive: it differs between reliable services
//! and those that may lose messages.

mod delivery;

use std::time::{Duration, Instant};

use base::error::{Error, Result};

use super::heartbeat::Heartbeat;
use super::pacing::Pacer;
use super::wait::Waiter;
use super::warm_up::WarmUp;
use super::{
    DataPath, DataPathCounts, LoopResult, Peer, deadline, interrupted_in_warm_up, wrong_count,
};
use crate::spec::{Limit, Shape};
use crate::stats::cpu::ClockReading;
use delivery::{Delivery, Lossy, Reliable};

/// Rounds of the loop between checks of the control connection while requests complete.
const ROUNDS_PER_CHECK: u64 = 64;

/// Directions in which data flows at this end.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// This end sends.
    pub sends: bool,
    /// This end receives.
    pub receives: bool,
    /// This end sends only after the first message of the peer arrived.
    pub waits_first: bool,
}

/// A phase of the loop; see the module documentation.
#[derive(Clone, Copy, Debug)]
enum TransferPhase {
    /// Data moves, but the clock has not started.
    WarmUp,
    /// The clock runs, and what completes or arrives is counted.
    Measure,
    /// The time is over. The clock stops at the next completion, because between two completions
    /// the number of messages that have moved is not known.
    LastCompletion,
    /// The clock has stopped. Requests in flight complete; then the peer is notified.
    Drain(LoopResult),
    /// The peer has been notified. Its own last messages arrive.
    AwaitPeer(LoopResult),
}

/// Moves data until the time is over or all messages are through, and then until nothing is in
/// flight.
pub(crate) fn run<W: DataPath, P: Peer>(
    flow: Flow,
    shape: &Shape,
    data_path: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &ClockReading,
) -> Result<LoopResult> {
    let start = start.wall();
    if shape.is_reliable() {
        Bandwidth::new(flow, shape, start, Reliable).run(data_path, peer, waiter)
    } else {
        Bandwidth::new(flow, shape, start, Lossy::new(start)).run(data_path, peer, waiter)
    }
}

/// The result of one poll.
#[derive(Clone, Copy, Debug)]
struct TransferProgress {
    /// Nothing of the test completed.
    is_idle: bool,
    /// More data messages are sent.
    has_sent: bool,
    /// More data messages have arrived.
    has_received: bool,
}

/// The state of one end.
struct Bandwidth<'a, D> {
    flow: Flow,
    shape: &'a Shape,
    delivery: D,
    phase: TransferPhase,
    /// End of the test. An interruption turns a number of messages into a time.
    limit: Limit,
    /// End of a test by time, once the warm-up is over.
    deadline: Option<Instant>,
    warm_up: WarmUp,
    heartbeat: Heartbeat,
    /// Rate limit of a sender.
    pacer: Option<Pacer>,
    /// Data messages posted.
    posted: u64,
    /// Counts of the data path after the latest poll.
    counts: DataPathCounts,
    /// Data messages that the peer has returned credit for, or that count as lost.
    acked: u64,
    /// Number up to which credit was returned to the peer.
    returned: u64,
    /// This end may not send yet, because nothing has arrived from the peer.
    awaits_first: bool,
    /// The peer has been notified that this end will send no more.
    notified: bool,
    /// Number of rounds of the loop.
    rounds: u64,
}

impl<'a, D: Delivery> Bandwidth<'a, D> {
    fn new(flow: Flow, shape: &'a Shape, start: Instant, delivery: D) -> Self {
        let warm_up = WarmUp::new(shape, start);
        Self {
            flow,
            shape,
            delivery,
            phase: if warm_up.is_on() {
                TransferPhase::WarmUp
            } else {
                TransferPhase::Measure
            },
            limit: shape.limit,
            deadline: deadline(shape, start).filter(|_| !warm_up.is_on()),
            warm_up,
            heartbeat: Heartbeat::new(shape, start),
            pacer: shape
                .gap()
                .filter(|_| flow.sends)
                .map(|gap| Pacer::new(gap, shape.tuning.burst, start)),
            posted: 0,
            counts: DataPathCounts::default(),
            acked: 0,
            returned: 0,
            awaits_first: flow.waits_first,
            notified: false,
            rounds: 0,
        }
    }

    fn run<W: DataPath, P: Peer>(
        mut self,
        data_path: &mut W,
        peer: &P,
        waiter: &mut Waiter,
    ) -> Result<LoopResult> {
        loop {
            if !self.notified {
                self.heartbeat.tick(peer)?;
            }
            if self.is_running() && peer.is_interrupted() {
                self.interrupt()?;
            }
            if let Some(pacer) = &mut self.pacer {
                pacer.update();
            }
            let has_posted = self.post(data_path)?;
            let completions = if has_posted || self.send_window() > 0 {
                waiter.poll(data_path)?
            } else {
                waiter.wait(data_path, peer, self.wake_at())?
            };
            let progress = self.take(completions, data_path)?;
            self.advance(progress, data_path, peer)?;
            self.notify(data_path, peer)?;
            if let Some(result) = self.finish(progress, data_path, peer)? {
                return Ok(result);
            }
            self.rounds += 1;
            if completions == 0 || self.rounds % ROUNDS_PER_CHECK == 0 {
                if let Some(failure) = peer.failure() {
                    return Err(failure);
                }
            }
        }
    }

    /// Returns the number of messages that this end sends in total.
    fn total(&self) -> u64 {
        match self.limit {
            Limit::Messages(n) if self.flow.sends => n,
            Limit::Time(_) if self.flow.sends => u64::MAX,
            _ => 0,
        }
    }

    /// Returns how often each message of the peer arrives.
    fn copies(&self) -> u64 {
        if self.flow.receives {
            self.shape.receivers.into()
        } else {
            1
        }
    }

    /// Returns `true` if the peer's software takes no part in what this end does.
    fn is_one_sided(&self) -> bool {
        !self.shape.plan.has_receiver()
    }

    /// Returns `true` until the clock has stopped.
    fn is_counting(&self) -> bool {
        matches!(
            self.phase,
            TransferPhase::WarmUp | TransferPhase::Measure | TransferPhase::LastCompletion
        )
    }

    /// Returns `true` until the time is over.
    fn is_running(&self) -> bool {
        matches!(self.phase, TransferPhase::WarmUp | TransferPhase::Measure)
    }

    /// Ends the time of the test now.
    fn interrupt(&mut self) -> Result<()> {
        if self.warm_up.is_on() {
            return Err(interrupted_in_warm_up());
        }
        self.limit = Limit::Time(Duration::ZERO);
        self.deadline = Some(Instant::now());
        Ok(())
    }

    /// Returns how many messages may be posted now.
    fn send_window(&self) -> u32 {
        if !self.is_counting() || self.notified || self.awaits_first {
            return 0;
        }
        let saturated = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let sent = self.counts.sent - self.counts.sent_out_of_order;
        let done = if self.shape.credited {
            self.acked.min(sent)
        } else {
            sent
        };
        let free = self
            .shape
            .depth
            .saturating_sub(saturated(self.posted - done));
        let remaining = saturated(self.total().saturating_sub(self.posted));
        let paced = self
            .pacer
            .as_ref()
            .map_or(u32::MAX, |pacer| saturated(pacer.allowed(self.posted)));
        free.min(remaining).min(paced)
    }

    /// Posts as many messages as are allowed now; returns `true` if there were any.
    fn post<W: DataPath>(&mut self, data_path: &mut W) -> Result<bool> {
        let count = self.send_window().min(self.shape.tuning.post_list);
        if count == 0 {
            return Ok(false);
        }
        data_path.send(self.posted, count, self.total())?;
        self.posted += u64::from(count);
        Ok(true)
    }

    /// Returns the time when a wait must end without a completion.
    fn wake_at(&self) -> Option<Instant> {
        let clock_end = self.deadline.filter(|_| self.is_running());
        let (next_send, heartbeat) = if self.notified {
            (None, None)
        } else {
            let pacer = self.pacer.as_ref();
            (
                pacer.and_then(|pacer| pacer.next_send(self.posted)),
                self.heartbeat.due(),
            )
        };
        let times = [
            self.warm_up.until(),
            clock_end,
            self.delivery.wait_limit(),
            next_send,
            heartbeat,
        ];
        times.into_iter().flatten().min()
    }

    /// Takes account of a poll that returned `completions`, and returns credit to the peer.
    fn take<W: DataPath>(
        &mut self,
        completions: u32,
        data_path: &mut W,
    ) -> Result<TransferProgress> {
        let before = std::mem::replace(&mut self.counts, *data_path.counts());
        let foreign = self.counts.foreign - before.foreign;
        let progress = TransferProgress {
            is_idle: u64::from(completions) == foreign,
            has_sent: self.counts.sent > before.sent,
            has_received: self.counts.arrived.msgs > before.arrived.msgs,
        };
        if completions > 0 {
            // The receives must be posted before the credit for them is sent.
            data_path.repost()?;
        }
        if !progress.is_idle {
            self.acked = self.acked.max(self.counts.acked);
            if self.acked > self.posted {
                return Err(Error::protocol(
                    "the peer returned credit for messages that were not sent",
                ));
            }
            if progress.has_received {
                self.awaits_first = false;
                self.delivery.on_arrival();
            }
            self.return_credit(data_path)?;
        }
        let is_blocked = progress.is_idle && self.flow.sends && self.send_window() == 0;
        if self.delivery.assumes_lost(is_blocked) {
            self.acked = self.posted;
        }
        Ok(progress)
    }

    fn return_credit<W: DataPath>(&mut self, data_path: &mut W) -> Result<()> {
        let batch = u64::from(self.shape.batch);
        while self.shape.credited && self.counts.next_expected - self.returned >= batch {
            let next = self
                .delivery
                .next_credit(self.returned, self.counts.next_expected, batch);
            if !data_path.send_credit(next)? {
                break;
            }
            self.returned = next;
        }
        Ok(())
    }

    /// Moves from phase to phase up to the time when the clock stops.
    fn advance<W: DataPath, P: Peer>(
        &mut self,
        progress: TransferProgress,
        data_path: &mut W,
        peer: &P,
    ) -> Result<()> {
        match self.phase {
            TransferPhase::WarmUp => {
                let DataPathCounts { sent, arrived, .. } = self.counts;
                if self.warm_up.ends(Instant::now, sent, arrived) {
                    self.phase = TransferPhase::Measure;
                    self.deadline = deadline(self.shape, Instant::now());
                }
                return Ok(());
            }
            TransferPhase::Measure => match self.deadline {
                Some(deadline) if Instant::now() >= deadline => {
                    self.phase = TransferPhase::LastCompletion;
                }
                None if self.has_moved_all() => return self.stop_clock(data_path),
                _ => return Ok(()),
            },
            TransferPhase::LastCompletion => {}
            TransferPhase::Drain(_) | TransferPhase::AwaitPeer(_) => return Ok(()),
        }
        if self.is_exact(progress, peer) {
            self.stop_clock(data_path)?;
        }
        Ok(())
    }

    /// Returns `true` if all messages of a test by count are sent and received.
    fn has_moved_all(&self) -> bool {
        let Limit::Messages(n) = self.limit else {
            return false;
        };
        (!self.flow.sends || self.counts.sent >= n)
            && (!self.flow.receives || self.counts.arrived.msgs >= n.saturating_mul(self.copies()))
    }

    /// Returns `true` if the number of messages that have moved up to now is known. Between two
    /// completions it is not: several messages of a list with one completion, or most of a large
    /// message, may have moved and would not be counted.
    fn is_exact<P: Peer>(&self, progress: TransferProgress, peer: &P) -> bool {
        if !D::EVERYTHING_ARRIVES || self.shape.gap().is_some() {
            return true;
        }
        if self.flow.receives {
            let all = |sent: u64| self.counts.arrived.msgs >= sent.saturating_mul(self.copies());
            return progress.has_received || peer.finished().is_some_and(all);
        }
        !self.is_one_sided() || progress.has_sent || self.counts.sent == self.posted
    }

    /// Stops the clock with what was counted up to now.
    fn stop_clock<W: DataPath>(&mut self, data_path: &mut W) -> Result<()> {
        self.phase = TransferPhase::Drain(self.result(None));
        if self.is_one_sided() && self.counts.sent < self.posted {
            // The latest messages did not ask for a completion, and no message of the peer shows
            // that they are done. One more message on each queue pair does.
            let qps = self.shape.qps;
            data_path.send(self.posted, qps, self.posted + u64::from(qps))?;
            self.posted += u64::from(qps);
        }
        Ok(())
    }

    fn result(&self, until: Option<Instant>) -> LoopResult {
        let end = ClockReading::now_wall_first();
        LoopResult {
            until,
            ..LoopResult::new(&self.warm_up, self.counts.sent, self.counts.arrived, end)
        }
    }

    /// Notifies the peer when this end has sent everything.
    fn notify<W: DataPath, P: Peer>(&mut self, data_path: &mut W, peer: &P) -> Result<()> {
        let may_notify = match self.phase {
            TransferPhase::Drain(_) => true,
            TransferPhase::AwaitPeer(_) => false,
            // Both ends may be missing messages: neither can count all before the other notifies
            // it.
            TransferPhase::WarmUp | TransferPhase::Measure | TransferPhase::LastCompletion => {
                !D::EVERYTHING_ARRIVES && self.has_sent_its_count()
            }
        };
        if may_notify && !self.notified && self.is_drained() && data_path.confirm_placement()? {
            self.notified = true;
            peer.finish(self.posted)?;
        }
        if self.notified {
            if let TransferPhase::Drain(result) = self.phase {
                self.phase = TransferPhase::AwaitPeer(result);
            }
        }
        Ok(())
    }

    /// Returns `true` if this end has sent all messages of a test by count.
    fn has_sent_its_count(&self) -> bool {
        matches!(self.limit, Limit::Messages(n) if self.flow.sends && self.counts.sent >= n)
    }

    /// Returns `true` if this end has posted all that it has to post. In one-sided tests nothing
    /// may be in flight either, because the peer then checks its memory and deregisters it.
    fn is_drained(&self) -> bool {
        let is_quiet = !self.is_one_sided() || self.counts.sent == self.posted;
        match self.limit {
            Limit::Messages(_) => is_quiet && self.posted >= self.total(),
            Limit::Time(_) => is_quiet,
        }
    }

    /// Returns `true` if the sends that this end counts have completed. A device may complete its
    /// last sends later than the peer misses messages.
    fn has_completed_its_sends(&self) -> bool {
        match self.limit {
            Limit::Messages(_) => self.counts.sent >= self.total(),
            Limit::Time(_) => self.is_drained(),
        }
    }

    /// Returns the result when the peer has finished and everything that can arrive has arrived.
    /// Each end stays until then, so that it hears of a failure of the other.
    fn finish<W: DataPath, P: Peer>(
        &mut self,
        progress: TransferProgress,
        data_path: &mut W,
        peer: &P,
    ) -> Result<Option<LoopResult>> {
        if D::EVERYTHING_ARRIVES && !self.notified {
            return Ok(None);
        }
        let Some(sent) = peer.finished() else {
            return Ok(None);
        };
        let expected = sent.saturating_mul(self.copies());
        let arrived = self.counts.arrived.msgs;
        if self.flow.receives && arrived > expected {
            return Err(wrong_count(arrived, expected));
        }
        let quiet_since = self.delivery.quiet_since().filter(|_| progress.is_idle);
        match (self.phase, quiet_since) {
            (TransferPhase::AwaitPeer(result), _) if !self.flow.receives => {
                data_path.verify_final(expected)?;
                Ok(Some(result))
            }
            (TransferPhase::AwaitPeer(result), quiet) if arrived == expected || quiet.is_some() => {
                let lost = expected - arrived;
                Ok(Some(LoopResult { lost, ..result }))
            }
            (_, Some(latest))
                if self.is_counting() && self.flow.receives && self.has_completed_its_sends() =>
            {
                // What is missing will not arrive. The clock stopped at the latest arrival.
                self.phase = TransferPhase::Drain(self.result(Some(latest)));
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}
