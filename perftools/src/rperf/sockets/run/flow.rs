//! Bandwidth: messages one way.

use std::time::Duration;

use super::Run;
use crate::common::error::{Error, Result};
use crate::rperf::engine::Peer;
use crate::rperf::engine::payload;
use crate::rperf::sockets::EndMode;
use crate::rperf::sockets::message_socket::{NAP, Received};

/// After so many empty naps since the peer finished, no datagram is under way any more.
const LAST_NAPS: u32 = 3;

impl<P: Peer> Run<'_, P> {
    pub(super) fn source(&mut self) -> Result<()> {
        while self.sent.msgs < self.total() && !self.is_over() {
            if self.send()? && self.plan.verify {
                payload::fill(&mut self.buffer, self.sent.msgs);
            }
        }
        self.stop_clock();
        if self.plan.end_mode == EndMode::Clock {
            return Ok(());
        }
        // A message that has begun arrives whole; it counts no more.
        while self.line.is_in_parts() {
            self.send()?;
        }
        self.end_both()
    }

    pub(super) fn sink(&mut self) -> Result<()> {
        let datagrams = self.line.kind().is_datagram();
        loop {
            let got = self.line.receive(&mut self.buffer)?;
            if let Received::Message(len) = got {
                self.arrived(len)?;
            } else {
                self.check_liveness()?;
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
            match self.plan.end_mode {
                EndMode::Clock if self.counted.is_some() || got == Received::End => break,
                EndMode::Clock => {}
                EndMode::Announced => match told {
                    Some(sent)
                        if datagrams && (self.received.msgs >= sent || self.has_been_silent()) =>
                    {
                        break;
                    }
                    Some(sent)
                        if !datagrams && (got == Received::End || self.received.msgs >= sent) =>
                    {
                        break;
                    }
                    _ if got == Received::End => std::thread::sleep(Duration::from_millis(1)),
                    _ => {}
                },
            }
        }
        self.stop_clock();
        if self.plan.end_mode == EndMode::Clock {
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

    /// Whether nothing can be under way any more.
    fn has_been_silent(&self) -> bool {
        if !self.polled {
            return self.idle >= LAST_NAPS;
        }
        self.quiet_since
            .is_some_and(|since| since.elapsed() >= NAP * LAST_NAPS)
    }
}
