//! The loops that are timed: [`LoopKind`] says which one an end runs.

mod flow;
mod ping_pong;

use std::sync::Arc;
use std::time::Instant;

use crate::common::error::{Error, Kind as Failure, Result};
use crate::common::units::show_time;
use crate::rperf::engine::payload;
use crate::rperf::engine::{Measurement, Peer, Role};
use crate::rperf::sockets::message_socket::MessageSocket;
use crate::rperf::sockets::{EndMode, LoopParams};
use crate::rperf::spec::Limit;
use crate::rperf::stats::cpu::ClockReading;
use crate::rperf::stats::latency::LatencyRecorder;
use crate::rperf::stats::thread_counters::ThreadCounters;
use crate::rperf::stats::{Count, SideStats};

/// Empty calls of a polled line between looks at the clock and the peer.
const POLLS_PER_LOOK: u32 = 64;

/// Which loop an end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// Sends as fast as it can.
    Source,
    /// Receives.
    Sink,
    /// Sends, waits for the answer, measures.
    Ping,
    /// Answers.
    Pong,
}

impl LoopKind {
    /// The part of `role` in a test of latency, or of bandwidth; `flip`: of the other role.
    pub fn new(role: Role, latency: bool, flip: bool) -> Self {
        let role = match role {
            Role::Server if flip => Role::Client,
            Role::Client if flip => Role::Server,
            role => role,
        };
        match (role, latency) {
            (Role::Client, false) => LoopKind::Source,
            (Role::Server, false) => LoopKind::Sink,
            (Role::Client, true) => LoopKind::Ping,
            (Role::Server, true) => LoopKind::Pong,
        }
    }
}

struct Run<'a, P> {
    line: &'a mut MessageSocket,
    plan: &'a LoopParams,
    peer: &'a P,
    polled: bool,
    deadline: Option<Instant>,
    quiet_since: Option<Instant>,
    idle: u32,
    buffer: Vec<u8>,
    sent: Count,
    received: Count,
    verified: u64,
    /// Datagrams that never arrived.
    lost: u64,
    /// The peer was heard to have finished.
    told: bool,
    counters: Option<Arc<ThreadCounters>>,
    counted: Option<(Count, Count, ClockReading)>,
}

/// Runs `part` over a line.
///
/// # Errors
/// The connection broke, the peer went away or reported an error, nothing moved for the timeout, or
/// a byte was wrong.
pub fn run<P: Peer>(
    part: LoopKind,
    line: &mut MessageSocket,
    plan: &LoopParams,
    polled: bool,
    peer: &P,
) -> Result<Measurement> {
    let mut latencies = (part == LoopKind::Ping).then(|| LatencyRecorder::new(peer.counters()));
    let mut buffer = vec![0; plan.size];
    payload::fill(&mut buffer, 0);
    let start = ClockReading::now();
    let deadline = match plan.limit {
        Limit::Time(time) => start.wall().checked_add(time),
        Limit::Messages(_) => None,
    };
    let mut run = Run {
        line,
        plan,
        peer,
        polled,
        deadline,
        quiet_since: None,
        idle: 0,
        buffer,
        sent: Count::default(),
        received: Count::default(),
        verified: 0,
        lost: 0,
        told: false,
        counters: peer.counters(),
        counted: None,
    };
    match (part, &mut latencies) {
        (LoopKind::Source, _) => run.source(),
        (LoopKind::Sink, _) => run.sink(),
        (LoopKind::Ping, Some(latencies)) => run.ping(start.wall(), latencies),
        (LoopKind::Ping | LoopKind::Pong, _) => run.pong(),
    }
    .map_err(|error| {
        if error.kind() == Failure::Device {
            peer.explain(error)
        } else {
            error
        }
    })?;
    let (sent, received, end) = run
        .counted
        .unwrap_or_else(|| (run.sent, run.received, ClockReading::of_counts()));
    let stats = SideStats {
        sent,
        received,
        nanos: u64::try_from(end.wall().duration_since(start.wall()).as_nanos())
            .unwrap_or(u64::MAX),
        cpu: end.since(&start),
        verified: run.verified,
        lost: run.lost,
        ..SideStats::default()
    };
    Ok(Measurement {
        stats,
        latency: latencies,
    })
}

impl<P: Peer> Run<'_, P> {
    fn total(&self) -> u64 {
        match self.plan.limit {
            Limit::Messages(n) => n,
            Limit::Time(_) => u64::MAX,
        }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    fn stop_clock(&mut self) {
        if self.counted.is_none() {
            self.counted = Some((self.sent, self.received, ClockReading::of_counts()));
        }
    }

    /// Something moved.
    fn moved(&mut self) {
        self.quiet_since = None;
        self.idle = 0;
    }

    /// Nothing moved: whether there is still something to wait for.
    fn check_liveness(&mut self) -> Result<()> {
        self.idle += 1;
        if self.polled {
            std::thread::yield_now();
            if self.idle % POLLS_PER_LOOK != 0 {
                return Ok(());
            }
        }
        if let Some(failure) = self.peer.failure() {
            return Err(failure);
        }
        let now = Instant::now();
        let since = *self.quiet_since.get_or_insert(now);
        if self.plan.end_mode == EndMode::Announced
            && now.duration_since(since) >= self.plan.timeout
        {
            return Err(Error::test(format!(
                "nothing moved over {} for {}: is the peer still running? --timeout (-to) sets how long to wait",
                self.line.kind().name(),
                show_time(self.plan.timeout)
            )));
        }
        Ok(())
    }

    /// Sends the message in the buffer, as far as it goes; true when it is gone.
    fn send(&mut self) -> Result<bool> {
        if !self.line.send(&self.buffer)? {
            self.check_liveness()?;
            return Ok(false);
        }
        self.moved();
        self.sent.msgs += 1;
        self.sent.bytes += self.plan.size as u64;
        if let Some(counters) = &self.counters {
            counters.sent(self.sent.msgs);
        }
        Ok(true)
    }

    /// Notes a message that arrived, and checks it.
    fn arrived(&mut self, len: usize) -> Result<()> {
        self.moved();
        if self.plan.verify {
            let number = if self.line.kind().is_datagram() && self.plan.size >= 8 {
                payload::number(&self.buffer)
            } else {
                self.received.msgs
            };
            payload::check(&self.buffer[..len], number)?;
            if len != self.plan.size {
                return Err(Error::test(format!(
                    "a message of {len} bytes arrived where all have {}",
                    self.plan.size
                )));
            }
            self.verified += len as u64;
        } else if self.plan.access {
            payload::access(&self.buffer[..len]);
        }
        self.received.msgs += 1;
        self.received.bytes += len as u64;
        if let Some(counters) = &self.counters {
            counters.received(1, len as u64);
        }
        Ok(())
    }

    /// Tells the peer that this end is through, and waits until it is as well.
    fn end_both(&mut self) -> Result<()> {
        self.peer.finish(self.sent.msgs)?;
        self.line.finish();
        self.moved();
        while self.peer.finished().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.check_liveness()?;
        }
        Ok(())
    }
}
