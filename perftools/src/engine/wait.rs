//! How an end waits for the next completion.
//!
//! Polling finds a completion soonest, but on a busy processor it keeps the peer, or the kernel thread that moves the data,
//! from running. So the adaptive way polls for a window of time and then sleeps until an event. The window grows while
//! waits end within its limit, and shrinks when they do not (as Linux's halt polling does): who waits long soon waits
//! asleep. Where there is only one processor, it is given away after every poll, which costs nobody anything.
//!
//! Sleeps are bounded, so that the peer's words and the timeout are seen.

use std::time::{Duration, Instant};

use super::{Peer, Progress, Wire};
use crate::args::options::Wait;
use crate::config::Side;
use crate::error::{Error, Result};
use crate::stats::cpu::online;
use crate::units::show_time;

/// The longest window of polling where other processors do the work meanwhile.
const SPIN_LIMIT: Duration = Duration::from_micros(50);
/// The longest window where the only processor is given away between polls.
const YIELD_LIMIT: Duration = Duration::from_micros(500);
/// The shortest window that is not none.
const LEAST: Duration = Duration::from_micros(2);
/// The longest sleep: how late a word of the peer is heard.
const NAP: Duration = Duration::from_millis(20);
/// Empty polls between looks at the clock, and between looks at the peer.
const POLLS_PER_CLOCK: u32 = 8;
const POLLS_PER_LOOK: u32 = 64;

/// Waits for completions, and gives up when nothing comes.
#[derive(Debug)]
pub struct Waiter {
    how: Wait,
    alone: bool,
    timeout: Duration,
    /// How long the adaptive way polls now, and at most.
    window: Duration,
    limit: Duration,
    /// Since when nothing has come, as far as that was looked at.
    quiet_since: Option<Instant>,
    max_completions: u32,
}

impl Waiter {
    /// A waiter as `side` wants it.
    pub fn new(side: &Side) -> Self {
        let alone = online() < 2;
        let limit = if alone { YIELD_LIMIT } else { SPIN_LIMIT };
        Self {
            how: side.wait,
            alone,
            timeout: side.timeout,
            window: limit,
            limit,
            quiet_since: None,
            max_completions: 0,
        }
    }

    /// The most completions that one poll returned.
    pub fn max_completions(&self) -> u32 {
        self.max_completions
    }

    /// Polls once, without waiting.
    ///
    /// # Errors
    /// As [`Wire::poll`].
    #[inline]
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress> {
        let progress = wire.poll()?;
        if progress.completions > 0 {
            self.quiet_since = None;
            self.max_completions = self.max_completions.max(progress.completions);
        }
        Ok(progress)
    }

    /// Waits until something completes, the peer has finished or fails, or `until` has passed; returns what a poll brought,
    /// perhaps nothing.
    ///
    /// # Errors
    /// The peer failed or the connection broke; nothing completed for the timeout.
    pub fn wait<W: Wire, P: Peer>(&mut self, wire: &mut W, peer: &P, until: Option<Instant>) -> Result<Progress> {
        let progress = self.poll(wire)?;
        if progress.completions > 0 {
            return Ok(progress);
        }
        match self.how {
            Wait::Poll => self.spin(wire, peer, until, None),
            Wait::Events => self.sleep(wire, peer, until),
            Wait::Adaptive => {
                if !self.window.is_zero() {
                    let progress = self.spin(wire, peer, until, Some(self.window))?;
                    if progress.completions > 0 || peer.finished().is_some() {
                        return Ok(progress);
                    }
                }
                let begin = Instant::now();
                let progress = self.sleep(wire, peer, until)?;
                self.adapt(begin.elapsed());
                Ok(progress)
            }
        }
    }

    /// Learns from a sleep: had polling gone on to the limit, would it have been spared?
    fn adapt(&mut self, slept: Duration) {
        self.window = if self.window + slept < self.limit {
            (self.window * 2).clamp(LEAST, self.limit)
        } else if self.window < LEAST * 2 {
            Duration::ZERO
        } else {
            self.window / 2
        };
    }

    /// Polls until something completes, `until` has passed, or `window` is over.
    fn spin<W: Wire, P: Peer>(
        &mut self,
        wire: &mut W,
        peer: &P,
        until: Option<Instant>,
        window: Option<Duration>,
    ) -> Result<Progress> {
        let mut polls = 0_u32;
        let mut end = None;
        loop {
            if self.alone {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            let progress = self.poll(wire)?;
            if progress.completions > 0 {
                return Ok(progress);
            }
            polls += 1;
            if polls % POLLS_PER_CLOCK == 0 && (until.is_some() || window.is_some()) {
                // Reading the clock costs more than a poll, so the first look at it starts the window.
                let now = Instant::now();
                let end = *end.get_or_insert_with(|| window.map(|w| now + w));
                if end.is_some_and(|t| now >= t) || until.is_some_and(|t| now >= t) {
                    return Ok(progress);
                }
            }
            if polls % POLLS_PER_LOOK == 0 {
                self.look(wire, peer)?;
                if peer.finished().is_some() {
                    return Ok(progress);
                }
            }
        }
    }

    /// Sleeps until an event, for a nap at most.
    fn sleep<W: Wire, P: Peer>(&mut self, wire: &mut W, peer: &P, until: Option<Instant>) -> Result<Progress> {
        wire.arm()?;
        let progress = self.poll(wire)?;
        if progress.completions > 0 {
            return Ok(progress);
        }
        wire.sleep(until.map_or(NAP, |t| t.saturating_duration_since(Instant::now()).min(NAP)))?;
        let progress = self.poll(wire)?;
        if progress.completions == 0 {
            self.look(wire, peer)?;
        }
        Ok(progress)
    }

    /// Whether there is still something to wait for.
    #[cold]
    fn look<W: Wire, P: Peer>(&mut self, wire: &mut W, peer: &P) -> Result<()> {
        if let Some(failure) = peer.failure() {
            return Err(failure);
        }
        wire.check()?;
        let now = Instant::now();
        let since = *self.quiet_since.get_or_insert(now);
        if now.duration_since(since) >= self.timeout {
            return Err(Error::test(format!(
                "nothing arrived from the peer for {}: is it still running, and the link up? --timeout (-to) sets how long to wait",
                show_time(self.timeout)
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Limit, Shape};
    use crate::engine::fake;

    #[test]
    fn the_window_shrinks_when_waits_are_long_and_grows_when_they_are_short() {
        let limit = Limit::Messages(1);
        let shape = Shape { msg_size: 1, depth: 4, batch: 1, signal_every: 1, limit, verify: false };
        let [(mut wire, peer), (mut other, _)] = fake::pair(&shape);
        let mut waiter = Waiter::new(&Side { id: None, wait: Wait::Adaptive, timeout: Duration::from_secs(5) });
        for _ in 0..12 {
            waiter.wait(&mut wire, &peer, None).unwrap();
        }
        assert_eq!(waiter.window, Duration::ZERO);
        // Something that is there at once costs no window and leaves it.
        wire.post_receives(1).unwrap();
        other.send(0, 1, 1, 1).unwrap();
        assert_eq!(waiter.wait(&mut wire, &peer, None).unwrap().data, 1);
        assert_eq!(waiter.window, Duration::ZERO);
        // Something that wakes it soon makes it poll again next time.
        waiter.limit = Duration::from_secs(1);
        wire.post_receives(1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(200));
                other.send(1, 1, 1, 2).unwrap();
            });
            while waiter.wait(&mut wire, &peer, None).unwrap().data == 0 {}
        });
        assert!(waiter.window >= LEAST);
    }
}
