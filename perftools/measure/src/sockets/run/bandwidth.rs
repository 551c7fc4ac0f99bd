//! Bandwidth: messages in one direction.

use std::time::{Duration, Instant};

use base::error::{Error, Result};

use super::SocketRun;
use crate::engine::Peer;
use crate::engine::heartbeat::Heartbeat;
use crate::engine::pacing::Pacer;
use crate::sockets::EndMode;
use crate::sockets::message_socket::ReceivedMessage;

/// Time without an arrival after the peer finished until datagrams in flight count as lost.
const DRAIN_TIME: Duration = Duration::from_millis(60);

/// Longest pause between two checks of the peer.
const MAX_PAUSE: Duration = Duration::from_millis(20);

impl<P: Peer> SocketRun<'_, P> {
    pub(super) fn source(&mut self) -> Result<()> {
        let burst = self.params.burst;
        let mut pacer = self
            .params
            .gap
            .map(|gap| Pacer::new(gap, burst, self.start));
        let deadline = self.time_limit.deadline();
        let mut moved = false;
        while self.sent.msgs < self.total() && !self.is_over(moved) {
            if !self.socket.has_partial_send() && self.must_wait(&mut pacer)? {
                moved = false;
                continue;
            }
            moved = self.send(deadline)?;
            if moved {
                self.prepare_message(self.sent.msgs);
            }
        }
        self.stop_clock();
        if self.params.end_mode == EndMode::Clock {
            return Ok(());
        }
        // A message that was sent in part is completed, but it no longer counts.
        while self.socket.has_partial_send() {
            self.send(None)?;
        }
        self.finish_both()
    }

    /// Waits for a while and returns `true` if the rate limit does not allow the next message yet.
    fn must_wait(&mut self, pacer: &mut Option<Pacer>) -> Result<bool> {
        let Some(pacer) = pacer else { return Ok(false) };
        pacer.update();
        let Some(due) = pacer.next_send(self.sent.msgs) else {
            return Ok(false);
        };
        self.waiter.reset();
        self.check_liveness()?;
        let deadline = self.time_limit.deadline();
        let until = deadline.map_or(due, |deadline| deadline.min(due));
        let pause = until.saturating_duration_since(Instant::now());
        std::thread::sleep(pause.min(MAX_PAUSE));
        // The time of a datagram is that of its sending.
        if self.jitter.is_some() {
            self.prepare_message(self.sent.msgs);
        }
        Ok(true)
    }

    pub(super) fn sink(&mut self) -> Result<()> {
        let datagrams = self.socket.kind().is_datagram();
        // The latest arrival since the peer finished, or the time when it finished.
        let mut quiet_since = None;
        let mut heartbeat = Heartbeat::every(self.params.heartbeat, self.start);
        loop {
            let deadline = self.time_limit.deadline();
            let got = self.receive(deadline.filter(|_| self.counted.is_none()))?;
            let moved = matches!(got, ReceivedMessage::Message(_));
            if self.counted.is_none() && (self.received.msgs >= self.total() || self.is_over(moved))
            {
                self.stop_clock();
            }
            if self.params.end_mode == EndMode::Clock {
                if self.counted.is_some() || got == ReceivedMessage::End {
                    break;
                }
                continue;
            }
            if let Some(sent) = self.peer.finished() {
                // The buffers of a slow network can hold more than arrives within the timeout.
                if moved || got == ReceivedMessage::Part {
                    heartbeat.tick(self.peer)?;
                }
                if quiet_since.is_none() || moved {
                    self.waiter.reset();
                    quiet_since = Some(Instant::now());
                }
                let is_drained = if datagrams {
                    quiet_since.is_some_and(|since| since.elapsed() >= DRAIN_TIME)
                } else {
                    got == ReceivedMessage::End
                };
                if self.received.msgs >= sent || is_drained {
                    break;
                }
            }
            if got == ReceivedMessage::End {
                self.wait_for_peer()?;
            }
        }
        self.stop_clock();
        if self.params.end_mode == EndMode::Clock {
            return Ok(());
        }
        let sent = self.peer.finished().unwrap_or_default();
        if self.received.msgs > sent || (!datagrams && self.received.msgs < sent) {
            return Err(Error::test(format!(
                "{} messages arrived, but the peer sent {sent}",
                self.received.msgs
            )));
        }
        self.lost = sent - self.received.msgs;
        self.peer.finish(0)
    }
}
