//! How an end waits for the next completion.
//!
//! Polling finds a completion soonest, but on a busy processor it keeps the peer, or the kernel thread that moves the data,
//! from running. So the adaptive way polls for a short while, giving the processor away between polls where there is only
//! one, and then sleeps until an event. Sleeps are bounded, so that the peer's words and the timeout are seen.

use std::time::{Duration, Instant};

use super::{Peer, Progress, Wire};
use crate::args::options::Wait;
use crate::config::Side;
use crate::error::{Error, Result};
use crate::stats::cpu::online;
use crate::units::show_time;

/// How long the adaptive way polls before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// The longest sleep: how late a word of the peer is heard.
const NAP: Duration = Duration::from_millis(20);
/// Empty polls between looks at the clock and at the peer.
const POLLS_PER_LOOK: u32 = 64;

/// Waits for completions, and gives up when nothing comes.
#[derive(Debug)]
pub struct Waiter {
    how: Wait,
    alone: bool,
    timeout: Duration,
    last: Option<Instant>,
    max_completions: u32,
}

impl Waiter {
    /// A waiter as `side` wants it.
    pub fn new(side: &Side) -> Self {
        Self { how: side.wait, alone: online() < 2, timeout: side.timeout, last: None, max_completions: 0 }
    }

    /// The most completions that one poll returned.
    pub fn max_completions(&self) -> u32 {
        self.max_completions
    }

    /// Polls once, without waiting.
    #[inline]
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress> {
        let progress = wire.poll()?;
        if progress.completions > 0 {
            self.last = None;
            self.max_completions = self.max_completions.max(progress.completions);
        }
        Ok(progress)
    }

    /// Waits until something completes, the peer has finished or fails, or `until` has passed; returns what a poll brought.
    ///
    /// # Errors
    /// The peer failed or the connection broke; nothing completed for the timeout.
    pub fn wait<W: Wire, P: Peer>(&mut self, wire: &mut W, peer: &P, until: Option<Instant>) -> Result<Progress> {
        let begin = Instant::now();
        let since = *self.last.get_or_insert(begin);
        let mut polls = 0_u32;
        loop {
            let progress = self.poll(wire)?;
            if progress.completions > 0 {
                return Ok(progress);
            }
            polls += 1;
            if polls % POLLS_PER_LOOK == 0 {
                self.look(wire, peer, since)?;
                if peer.finished().is_some() || until.is_some_and(|t| Instant::now() >= t) {
                    return Ok(progress);
                }
            }
            match self.how {
                Wait::Poll => self.pause(),
                Wait::Adaptive if begin.elapsed() < SPIN => self.pause(),
                Wait::Adaptive | Wait::Events => {
                    wire.arm()?;
                    let progress = self.poll(wire)?;
                    if progress.completions > 0 {
                        return Ok(progress);
                    }
                    let left = until.map_or(NAP, |t| t.saturating_duration_since(Instant::now()).min(NAP));
                    wire.sleep(left)?;
                    let progress = self.poll(wire)?;
                    self.look(wire, peer, since)?;
                    // Also with nothing in hand: the caller looks at its clock and at the peer.
                    return Ok(progress);
                }
            }
        }
    }

    /// Between two polls.
    #[inline]
    fn pause(&self) {
        if self.alone {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Whether there is still something to wait for.
    fn look<W: Wire, P: Peer>(&self, wire: &mut W, peer: &P, since: Instant) -> Result<()> {
        if let Some(failure) = peer.failure() {
            return Err(failure);
        }
        wire.check()?;
        if self.last.is_some() && since.elapsed() >= self.timeout {
            return Err(Error::test(format!(
                "nothing arrived from the peer for {}: is it still running, and the link up? --timeout (-to) sets how long to wait",
                show_time(self.timeout)
            )));
        }
        Ok(())
    }
}
