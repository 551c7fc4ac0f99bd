//! The loops that are timed.

use std::time::Instant;

use super::line::{Got, Line};
use super::{Ending, Plan};
use crate::config::Limit;
use crate::engine::{Outcome, Peer, Role};
use crate::error::{Error, Kind as Failure, Result};
use crate::stats::cpu::Reading;
use crate::stats::histogram::Latencies;
use crate::stats::{Count, SideStats};
use crate::transport::payload;
use crate::units::show_time;

/// Empty calls of a polled line between looks at the clock and the peer.
const POLLS_PER_LOOK: u32 = 64;
/// After so many empty naps since the peer finished, no datagram is under way any more.
const LAST_NAPS: u32 = 3;
/// A datagram that has no answer after this time is lost.
const LOST_AFTER: std::time::Duration = std::time::Duration::from_millis(500);

/// Which loop an end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Sends as fast as it can.
    Source,
    /// Receives.
    Sink,
    /// Sends, waits for the answer, measures.
    Ping,
    /// Answers.
    Pong,
}

impl Part {
    /// The part of `role` in a test of latency, or of bandwidth.
    pub fn of(role: Role, latency: bool) -> Self {
        match (role, latency) {
            (Role::Client, false) => Part::Source,
            (Role::Server, false) => Part::Sink,
            (Role::Client, true) => Part::Ping,
            (Role::Server, true) => Part::Pong,
        }
    }
}

struct Run<'a, P> {
    line: &'a mut Line,
    plan: &'a Plan,
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
    counted: Option<(Count, Count, Reading)>,
}

/// Runs `part` over a line.
///
/// # Errors
/// The connection broke, the peer went away or reported an error, nothing moved for the timeout, or a byte was wrong.
pub fn run<P: Peer>(part: Part, line: &mut Line, plan: &Plan, polled: bool, peer: &P) -> Result<Outcome> {
    let mut latencies = (part == Part::Ping).then(Latencies::new);
    let mut buffer = vec![0; plan.size];
    payload::fill(&mut buffer, 0);
    let start = Reading::now();
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
        counted: None,
    };
    match (part, &mut latencies) {
        (Part::Source, _) => run.source(),
        (Part::Sink, _) => run.sink(),
        (Part::Ping, Some(latencies)) => run.ping(start.wall(), latencies),
        (Part::Ping | Part::Pong, _) => run.pong(),
    }
    .map_err(|error| if error.kind() == Failure::Device { peer.explain(error) } else { error })?;
    let (sent, received, end) = run.counted.unwrap_or_else(|| (run.sent, run.received, Reading::now()));
    let stats = SideStats {
        sent,
        received,
        nanos: u64::try_from(end.wall().duration_since(start.wall()).as_nanos()).unwrap_or(u64::MAX),
        cpu: end.since(&start),
        verified: run.verified,
        lost: run.lost,
        ..SideStats::default()
    };
    Ok(Outcome { stats, latency: latencies })
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
            self.counted = Some((self.sent, self.received, Reading::now()));
        }
    }

    /// Something moved.
    fn moved(&mut self) {
        self.quiet_since = None;
        self.idle = 0;
    }

    /// Nothing moved: whether there is still something to wait for.
    fn look(&mut self) -> Result<()> {
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
        if self.plan.ending == Ending::Told && now.duration_since(since) >= self.plan.timeout {
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
            self.look()?;
            return Ok(false);
        }
        self.moved();
        self.sent.msgs += 1;
        self.sent.bytes += self.plan.size as u64;
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
                return Err(Error::test(format!("a message of {len} bytes arrived where all have {}", self.plan.size)));
            }
            self.verified += len as u64;
        }
        self.received.msgs += 1;
        self.received.bytes += len as u64;
        Ok(())
    }

    fn source(&mut self) -> Result<()> {
        while self.sent.msgs < self.total() && !self.is_over() {
            if self.send()? && self.plan.verify {
                payload::fill(&mut self.buffer, self.sent.msgs);
            }
        }
        self.stop_clock();
        if self.plan.ending == Ending::Clock {
            return Ok(());
        }
        // A message that has begun arrives whole; it counts no more.
        while self.line.is_in_parts() {
            self.send()?;
        }
        self.end_both()
    }

    /// Tells the peer that this end is through, and waits until it is as well.
    fn end_both(&mut self) -> Result<()> {
        self.peer.finish(self.sent.msgs)?;
        self.line.finish();
        self.moved();
        while self.peer.finished().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.look()?;
        }
        Ok(())
    }

    fn sink(&mut self) -> Result<()> {
        let datagrams = self.line.kind().is_datagram();
        loop {
            let got = self.line.receive(&mut self.buffer)?;
            if let Got::Message(len) = got {
                self.arrived(len)?;
            } else {
                self.look()?;
            }
            if self.counted.is_none() && (self.received.msgs >= self.total() || self.is_over()) {
                self.stop_clock();
            }
            let told = self.peer.finished();
            if told.is_some() && !self.told {
                // What is under way has its time from now.
                self.told = true;
                self.moved();
            }
            match self.plan.ending {
                Ending::Clock if self.counted.is_some() || got == Got::End => break,
                Ending::Clock => {}
                Ending::Told => match told {
                    Some(sent) if datagrams && (self.received.msgs >= sent || self.has_been_silent()) => break,
                    Some(sent) if !datagrams && (got == Got::End || self.received.msgs >= sent) => break,
                    _ if got == Got::End => std::thread::sleep(std::time::Duration::from_millis(1)),
                    _ => {}
                },
            }
        }
        self.stop_clock();
        if self.plan.ending == Ending::Clock {
            return Ok(());
        }
        let sent = self.peer.finished().unwrap_or_default();
        if self.received.msgs > sent || (!datagrams && self.received.msgs < sent) {
            return Err(Error::test(format!("{} messages arrived, but the peer sent {sent}", self.received.msgs)));
        }
        self.lost = sent - self.received.msgs;
        self.peer.finish(0)
    }

    /// Whether nothing can be under way any more.
    fn has_been_silent(&self) -> bool {
        if !self.polled {
            return self.idle >= LAST_NAPS;
        }
        self.quiet_since.is_some_and(|since| since.elapsed() >= super::line::NAP * LAST_NAPS)
    }

    fn ping(&mut self, start: Instant, latencies: &mut Latencies) -> Result<()> {
        let mut before = start;
        while self.received.msgs < self.total() && self.deadline.is_none_or(|end| before < end) {
            payload_for(self.plan, &mut self.buffer, self.sent.msgs);
            if !self.whole(Self::send)? || !self.answer()? {
                break;
            }
            let now = Instant::now();
            latencies.record(u64::try_from(now.duration_since(before).as_nanos() / 2).unwrap_or(u64::MAX));
            before = now;
        }
        self.stop_clock();
        match self.plan.ending {
            Ending::Clock => Ok(()),
            Ending::Told => self.end_both(),
        }
    }

    /// Waits for the answer; false when the clock ended the wait.
    fn answer(&mut self) -> Result<bool> {
        let since = Instant::now();
        loop {
            match self.line.receive(&mut self.buffer)? {
                Got::Message(len) => {
                    self.arrived(len)?;
                    return Ok(true);
                }
                Got::End => return self.ended(),
                Got::Nothing => self.look()?,
            }
            if self.plan.ending == Ending::Clock && self.is_over() {
                return Ok(false);
            }
            if self.line.kind() == super::Kind::Udp && self.idle > 0 && since.elapsed() >= LOST_AFTER {
                return Err(Error::test(format!(
                    "a datagram or its answer was lost after {} round trips: the latency of UDP wants a path that loses nothing",
                    self.received.msgs
                )));
            }
        }
    }

    /// The peer sends no more: an error where it should have said so first.
    fn ended(&mut self) -> Result<bool> {
        match self.plan.ending {
            Ending::Clock => Ok(false),
            Ending::Told => Err(Error::device("the peer closed the data connection in the middle of the test")),
        }
    }

    /// Repeats `step` until it is through; false when the clock ended it.
    fn whole(&mut self, mut step: impl FnMut(&mut Self) -> Result<bool>) -> Result<bool> {
        loop {
            if step(self)? {
                return Ok(true);
            }
            if self.plan.ending == Ending::Clock && self.is_over() {
                return Ok(false);
            }
        }
    }

    fn pong(&mut self) -> Result<()> {
        loop {
            match self.line.receive(&mut self.buffer)? {
                Got::Message(len) => {
                    self.arrived(len)?;
                    payload_for(self.plan, &mut self.buffer, self.sent.msgs);
                    if !self.whole(Self::send)? {
                        break;
                    }
                }
                Got::End if self.plan.ending == Ending::Clock => break,
                Got::End | Got::Nothing => self.look()?,
            }
            match self.plan.ending {
                Ending::Clock if self.is_over() => break,
                Ending::Told => match self.peer.finished() {
                    Some(pinged) if pinged == self.received.msgs => break,
                    Some(pinged) if pinged < self.received.msgs => {
                        return Err(Error::test(format!(
                            "{} messages arrived, but the peer sent {pinged}",
                            self.received.msgs
                        )));
                    }
                    _ => {}
                },
                Ending::Clock => {}
            }
        }
        self.stop_clock();
        match self.plan.ending {
            Ending::Clock => Ok(()),
            Ending::Told => self.peer.finish(self.sent.msgs),
        }
    }
}

/// What message `number` consists of, where that is checked.
fn payload_for(plan: &Plan, buffer: &mut [u8], number: u64) {
    if plan.verify {
        payload::fill(buffer, number);
    }
}
