//! Bandwidth, one way or both ways at once.

use std::time::Instant;

use super::wait::Waiter;
use super::{Counted, Peer, Progress, Wire, deadline, lost};
use crate::config::{Limit, Shape};
use crate::error::{Error, Result};
use crate::stats::Count;
use crate::stats::cpu::Reading;

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

/// Messages a doorbell.
const BURST: u32 = 16;

struct State<'a> {
    flow: Flow,
    shape: &'a Shape,
    /// Data messages that the peer has receives for.
    window: u32,
    posted: u64,
    completed: u64,
    arrived: Count,
    /// Arrived and not yet returned as credit.
    owed: u32,
    /// No more will be posted; the peer knows.
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
    start: &Reading,
) -> Result<Counted> {
    let deadline = deadline(shape, start.wall());
    let mut s = State {
        flow,
        shape,
        window: shape.depth,
        posted: 0,
        completed: 0,
        arrived: Count::default(),
        owed: 0,
        finished: false,
        waiting: flow.waits_first,
    };
    let mut counted = None;
    loop {
        let moved = s.send(wire)?;
        let progress = if moved || s.can_send() {
            waiter.poll(wire)?
        } else {
            waiter.wait(wire, peer, deadline.filter(|_| counted.is_none()))?
        };
        s.take(progress, wire)?;
        if counted.is_none() && s.clock_stops(deadline) {
            counted = Some(Counted { sent: s.completed, received: s.arrived, end: Reading::now() });
        }
        if counted.is_some() && !s.finished && s.sent_all() {
            // Not before: what is told here is what the peer waits for.
            s.finished = true;
            peer.finish(s.posted)?;
        }
        if let (Some(counted), true) = (counted, s.finished) {
            // A sender stays until the peer has what it sent; so each end hears from the other.
            if let Some(sent) = peer.finished() {
                if s.arrived.msgs > sent {
                    return Err(lost(s.arrived.msgs, sent));
                }
                if s.arrived.msgs == sent {
                    return Ok(counted);
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
        if self.finished || self.waiting {
            return 0;
        }
        let under_way = u32::try_from(self.posted - self.completed).unwrap_or(u32::MAX);
        let left = u32::try_from(self.total() - self.posted).unwrap_or(u32::MAX);
        self.window.min(self.shape.depth.saturating_sub(under_way)).min(left)
    }

    fn can_send(&self) -> bool {
        self.room() > 0
    }

    fn send<W: Wire>(&mut self, wire: &mut W) -> Result<bool> {
        let count = self.room().min(BURST);
        if count == 0 {
            return Ok(false);
        }
        wire.send(self.posted, count, self.shape.signal_every, self.total())?;
        self.posted += u64::from(count);
        self.window -= count;
        Ok(true)
    }

    fn take<W: Wire>(&mut self, progress: Progress, wire: &mut W) -> Result<()> {
        self.completed = self.completed.max(progress.sent);
        let used = progress.data + progress.credits;
        if used == 0 {
            return Ok(());
        }
        // Before any credit goes out: it promises these.
        wire.post_receives(used)?;
        self.waiting = false;
        self.window += progress.credits * self.shape.batch;
        if self.window > self.shape.depth {
            return Err(Error::protocol("the peer returned more credit than it was owed"));
        }
        self.arrived.msgs += u64::from(progress.data);
        self.arrived.bytes += progress.bytes;
        self.owed += progress.data;
        while self.owed >= self.shape.batch {
            self.owed -= self.shape.batch;
            wire.send_credit(self.posted)?;
        }
        Ok(())
    }

    /// Whether the counted part is over.
    fn clock_stops(&self, deadline: Option<Instant>) -> bool {
        match (deadline, self.shape.limit) {
            (Some(deadline), _) => Instant::now() >= deadline,
            (None, Limit::Messages(n)) => {
                (!self.flow.sends || self.completed >= n) && (!self.flow.receives || self.arrived.msgs >= n)
            }
            (None, Limit::Time(_)) => false,
        }
    }

    /// Whether this end has nothing more to post after the clock stopped.
    fn sent_all(&self) -> bool {
        match self.shape.limit {
            Limit::Messages(_) => self.posted == self.total(),
            Limit::Time(_) => true,
        }
    }
}
