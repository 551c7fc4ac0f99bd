//! Latency: one message at a time, which the peer returns.

use std::time::{Duration, Instant};

use base::error::{Error, Result};

use super::SocketRun;
use crate::engine::Peer;
use crate::engine::clock::Clock;
use crate::sockets::message_socket::ReceivedMessage;
use crate::sockets::{EndMode, SocketKind};
use crate::stats::latency::LatencyRecorder;

/// Time without a reply after which a datagram counts as lost, in a test that lasts for a time and
/// in one of a number of messages. On a busy host, the peer can wait for a processor that long.
const LOST_AFTER: Duration = Duration::from_millis(500);
const LOST_AFTER_OF_COUNTED: Duration = Duration::from_secs(2);

impl<P: Peer> SocketRun<'_, P> {
    pub(super) fn ping(&mut self, start: Instant, latencies: &mut LatencyRecorder) -> Result<()> {
        let deadline = self.time_limit.deadline();
        let mut clock = Clock::new();
        let begin = clock.now();
        let mut before = start;
        while self.received.msgs < self.total()
            && deadline.is_none_or(|end| before < end)
            && !self.peer.is_interrupted()
        {
            self.prepare_message(self.sent.msgs);
            if !self.send_whole()? || !self.wait_for_reply(before)? {
                break;
            }
            let now = start + Duration::from_nanos(clock.now().since(begin));
            latencies.record(
                u64::try_from(now.duration_since(before).as_nanos() / 2).unwrap_or(u64::MAX),
            );
            before = now;
        }
        self.stop_clock();
        match self.params.end_mode {
            EndMode::Clock => Ok(()),
            EndMode::Announced => self.finish_both(),
        }
    }

    /// Waits for the reply to the message of the time `sent`; returns `false` if the time was over
    /// first.
    fn wait_for_reply(&mut self, sent: Instant) -> Result<bool> {
        let lost_after = match self.params.end_mode {
            EndMode::Clock => LOST_AFTER,
            EndMode::Announced => LOST_AFTER_OF_COUNTED,
        };
        let lost_at = (self.socket.kind() == SocketKind::Udp).then(|| sent + lost_after);
        let until = self.wait_limit().into_iter().chain(lost_at).min();
        loop {
            match self.receive(until)? {
                ReceivedMessage::Message(_) => return Ok(true),
                ReceivedMessage::End if self.params.end_mode == EndMode::Clock => return Ok(false),
                ReceivedMessage::End => {
                    return Err(Error::device(
                        "the peer closed the data connection in the middle of the test",
                    ));
                }
                ReceivedMessage::Part | ReceivedMessage::Nothing => {}
            }
            if self.params.end_mode == EndMode::Clock && self.is_over(false) {
                return Ok(false);
            }
            if lost_at.is_some_and(|lost_at| Instant::now() >= lost_at) {
                return Err(Error::test(format!(
                    "a datagram or its reply was lost after {} round trips",
                    self.received.msgs
                ))
                .with_help("measure the latency of UDP on a path without packet loss"));
            }
        }
    }

    /// Sends the whole message in the buffer; returns `false` if the time was over first.
    fn send_whole(&mut self) -> Result<bool> {
        loop {
            if self.send(self.wait_limit())? {
                return Ok(true);
            }
            if self.params.end_mode == EndMode::Clock && self.is_over(false) {
                return Ok(false);
            }
        }
    }

    pub(super) fn pong(&mut self) -> Result<()> {
        loop {
            let got = self.receive(self.wait_limit())?;
            match got {
                ReceivedMessage::Message(_) => {
                    self.prepare_message(self.sent.msgs);
                    if !self.send_whole()? {
                        break;
                    }
                }
                ReceivedMessage::End if self.params.end_mode == EndMode::Clock => break,
                ReceivedMessage::End => self.wait_for_peer()?,
                ReceivedMessage::Part | ReceivedMessage::Nothing => {}
            }
            match self.params.end_mode {
                EndMode::Clock => {
                    if self.is_over(matches!(got, ReceivedMessage::Message(_))) {
                        break;
                    }
                }
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
            }
        }
        self.stop_clock();
        match self.params.end_mode {
            EndMode::Clock => Ok(()),
            EndMode::Announced => self.peer.finish(self.sent.msgs),
        }
    }
}
