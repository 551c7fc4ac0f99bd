//! Latency: a message to and fro.

use std::time::{Duration, Instant};

use super::Run;
use crate::common::error::{Error, Result};
use crate::rperf::engine::Peer;
use crate::rperf::engine::payload;
use crate::rperf::sockets::message_socket::Received;
use crate::rperf::sockets::{EndMode, LoopParams, SocketKind};
use crate::rperf::stats::latency::LatencyRecorder;

/// A datagram that has no answer after this time is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);

impl<P: Peer> Run<'_, P> {
    pub(super) fn ping(&mut self, start: Instant, latencies: &mut LatencyRecorder) -> Result<()> {
        let mut before = start;
        while self.received.msgs < self.total() && self.deadline.is_none_or(|end| before < end) {
            payload_for(self.plan, &mut self.buffer, self.sent.msgs);
            if !self.whole(Self::send)? || !self.answer()? {
                break;
            }
            let now = Instant::now();
            latencies.record(
                u64::try_from(now.duration_since(before).as_nanos() / 2).unwrap_or(u64::MAX),
            );
            before = now;
        }
        self.stop_clock();
        match self.plan.end_mode {
            EndMode::Clock => Ok(()),
            EndMode::Announced => self.end_both(),
        }
    }

    /// Waits for the answer; false when the clock ended the wait.
    fn answer(&mut self) -> Result<bool> {
        let since = Instant::now();
        loop {
            match self.line.receive(&mut self.buffer)? {
                Received::Message(len) => {
                    self.arrived(len)?;
                    return Ok(true);
                }
                Received::End => return self.ended(),
                Received::Nothing => self.check_liveness()?,
            }
            if self.plan.end_mode == EndMode::Clock && self.is_over() {
                return Ok(false);
            }
            if self.line.kind() == SocketKind::Udp && self.idle > 0 && since.elapsed() >= LOST_AFTER
            {
                return Err(Error::test(format!(
                    "a datagram or its answer was lost after {} round trips: the latency of UDP wants a path that loses nothing",
                    self.received.msgs
                )));
            }
        }
    }

    /// The peer sends no more: an error where it should have said so first.
    fn ended(&mut self) -> Result<bool> {
        match self.plan.end_mode {
            EndMode::Clock => Ok(false),
            EndMode::Announced => Err(Error::device(
                "the peer closed the data connection in the middle of the test",
            )),
        }
    }

    /// Repeats `step` until it is through; false when the clock ended it.
    fn whole(&mut self, mut step: impl FnMut(&mut Self) -> Result<bool>) -> Result<bool> {
        loop {
            if step(self)? {
                return Ok(true);
            }
            if self.plan.end_mode == EndMode::Clock && self.is_over() {
                return Ok(false);
            }
        }
    }

    pub(super) fn pong(&mut self) -> Result<()> {
        loop {
            match self.line.receive(&mut self.buffer)? {
                Received::Message(len) => {
                    self.arrived(len)?;
                    payload_for(self.plan, &mut self.buffer, self.sent.msgs);
                    if !self.whole(Self::send)? {
                        break;
                    }
                }
                Received::End if self.plan.end_mode == EndMode::Clock => break,
                Received::End | Received::Nothing => self.check_liveness()?,
            }
            match self.plan.end_mode {
                EndMode::Clock if self.is_over() => break,
                EndMode::Announced => match self.peer.finished() {
                    Some(pinged) if pinged == self.received.msgs => break,
                    Some(pinged) if pinged < self.received.msgs => {
                        return Err(Error::test(format!(
                            "{} messages arrived, but the peer sent {pinged}",
                            self.received.msgs
                        )));
                    }
                    _ => {}
                },
                EndMode::Clock => {}
            }
        }
        self.stop_clock();
        match self.plan.end_mode {
            EndMode::Clock => Ok(()),
            EndMode::Announced => self.peer.finish(self.sent.msgs),
        }
    }
}

/// What message `number` consists of, where that is checked.
fn payload_for(plan: &LoopParams, buffer: &mut [u8], number: u64) {
    if plan.verify {
        payload::fill(buffer, number);
    }
}
