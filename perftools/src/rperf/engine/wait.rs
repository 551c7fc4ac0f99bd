//! How an end waits for the next completion.
//!
//! Polling finds a completion soonest, but on a busy processor it keeps the peer, or the kernel
//! thread that moves the data, from running. So the adaptive way polls for a window of time and
//! then sleeps until an event: at first without a pause, soon giving the processor away between
//! polls, and from the first poll where it is the only one.
//!
//! Sleeps are bounded, so that the peer's words and the timeout are seen.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::poll_window::PollWindow;
use super::{Peer, PollCounts, Wire};
use crate::common::error::{Error, Result};
use crate::common::units::show_time;
use crate::rperf::spec::Side;
use crate::rperf::spec::modes::Wait;
use crate::rperf::stats::cpu::online;
use crate::rperf::stats::thread_counters::ThreadCounters;

/// How long polling goes on without giving the processor away, where there are others. Below a
/// scheduler's slice, which would end it then.
const PURE: Duration = Duration::from_millis(2);
/// The longest sleep: how late a word of the peer is heard.
const NAP: Duration = Duration::from_millis(20);
/// Empty polls between looks at the clock: the fewest, and later as many as were made, up to the
/// most, where nothing ends soon. A look takes as long as a poll and more; where processors are
/// emulated, one lock stands before all their clocks, which the kernel reads too.
const POLLS_PER_CLOCK: Range<u64> = 8..64;
/// The same between looks at the peer.
const POLLS_PER_LOOK: Range<u64> = 64..1024;
/// What ends within this ends soon.
const SOON: Duration = Duration::from_millis(1);

/// Waits for completions, and gives up when nothing comes.
#[derive(Debug)]
pub struct Waiter {
    how: Wait,
    alone: bool,
    /// It sleeps until a message whose sender solicits that.
    solicited: bool,
    timeout: Duration,
    window: PollWindow,
    /// Since when nothing has come, as far as that was looked at.
    quiet_since: Option<Instant>,
    /// The longest time in which nothing came after something had, as far as that was looked at.
    silence: Option<Range<Instant>>,
    max_completions: u32,
    counters: Option<Arc<ThreadCounters>>,
}

impl Waiter {
    /// A waiter as `side` wants it, for a test of latency or of bandwidth.
    pub fn new(side: &Side, latency: bool) -> Self {
        let alone = online() < 2;
        Self {
            how: side.wait,
            alone,
            solicited: false,
            timeout: side.timeout,
            window: if latency {
                PollWindow::for_latency()
            } else {
                PollWindow::for_bandwidth(alone)
            },
            quiet_since: None,
            silence: None,
            max_completions: 0,
            counters: None,
        }
    }

    /// Counts on this lane.
    #[must_use]
    pub fn with_counters(self, counters: Option<Arc<ThreadCounters>>) -> Self {
        Self { counters, ..self }
    }

    /// Sleeps until a message that its sender solicits, where there is nothing to do for those
    /// before.
    #[must_use]
    pub fn solicited(self, solicited: bool) -> Self {
        Self { solicited, ..self }
    }

    /// The most completions that one poll returned.
    pub fn max_completions(&self) -> u32 {
        self.max_completions
    }

    /// The longest time in which nothing came after something had.
    pub fn silence(&self) -> Option<Range<Instant>> {
        self.silence.clone()
    }

    /// Polls once, without waiting.
    ///
    /// # Errors
    /// As [`Wire::poll`].
    #[inline]
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<PollCounts> {
        let progress = wire.poll()?;
        if progress.completions > 0 {
            self.quiet_since = None;
            self.max_completions = self.max_completions.max(progress.completions);
            if let Some(counters) = &self.counters {
                if progress.sent > 0 {
                    counters.sent(progress.sent);
                }
                if progress.data > 0 {
                    counters.received(progress.data.into(), progress.bytes);
                }
            }
        }
        Ok(progress)
    }

    /// Waits until something completes, the peer has finished or fails, or `until` has passed;
    /// returns what a poll brought, perhaps nothing.
    ///
    /// # Errors
    /// The peer failed or the connection broke; nothing completed for the timeout.
    pub fn wait<W: Wire, P: Peer>(
        &mut self,
        wire: &mut W,
        peer: &P,
        until: Option<Instant>,
    ) -> Result<PollCounts> {
        let progress = self.poll(wire)?;
        if progress.completions > 0 {
            return Ok(progress);
        }
        match self.how {
            Wait::Poll => self.spin(wire, peer, until, None),
            Wait::Events => self.sleep(wire, peer, until),
            Wait::Adaptive => {
                let window = self.window.next();
                if !window.is_zero() {
                    let progress = self.spin(wire, peer, until, Some(window))?;
                    if progress.completions > 0 {
                        self.window.helped();
                        return Ok(progress);
                    }
                    if peer.finished().is_some() {
                        return Ok(progress);
                    }
                }
                let begin = Instant::now();
                let progress = self.sleep(wire, peer, until)?;
                self.window.missed(begin.elapsed());
                Ok(progress)
            }
        }
    }

    /// Polls until something completes, `until` has passed, or `window` is over.
    fn spin<W: Wire, P: Peer>(
        &mut self,
        wire: &mut W,
        peer: &P,
        until: Option<Instant>,
        window: Option<Duration>,
    ) -> Result<PollCounts> {
        let mut polls = 0_u64;
        let (mut next_clock, mut next_look) = (POLLS_PER_CLOCK.start, POLLS_PER_LOOK.start);
        let mut begin = None;
        let mut give_away = self.alone;
        loop {
            // Else no pause: each poll runs through the driver, and a pause (140 cycles and more,
            // an exit where processors are virtual) would be a part of what is
            // measured.
            if give_away {
                std::thread::yield_now();
            }
            let progress = self.poll(wire)?;
            if progress.completions > 0 {
                return Ok(progress);
            }
            polls += 1;
            if polls >= next_clock && (until.is_some() || window.is_some()) {
                // The first look starts the window.
                let now = Instant::now();
                let spun = now.duration_since(*begin.get_or_insert(now));
                if window.is_some_and(|window| spun >= window) || until.is_some_and(|t| now >= t) {
                    return Ok(progress);
                }
                give_away |= window.is_some() && spun >= PURE;
                let soon = until.is_some_and(|t| t < now + SOON);
                next_clock = if soon {
                    polls + POLLS_PER_CLOCK.start
                } else {
                    polls + polls.min(POLLS_PER_CLOCK.end)
                };
            }
            if polls >= next_look {
                next_look = polls + polls.min(POLLS_PER_LOOK.end);
                self.check_liveness(wire, peer)?;
                if peer.finished().is_some() {
                    return Ok(progress);
                }
            }
        }
    }

    /// Sleeps until an event, for a nap at most.
    fn sleep<W: Wire, P: Peer>(
        &mut self,
        wire: &mut W,
        peer: &P,
        until: Option<Instant>,
    ) -> Result<PollCounts> {
        wire.arm(self.solicited)?;
        let progress = self.poll(wire)?;
        if progress.completions > 0 {
            return Ok(progress);
        }
        wire.sleep(until.map_or(NAP, |t| {
            t.saturating_duration_since(Instant::now()).min(NAP)
        }))?;
        let progress = self.poll(wire)?;
        if progress.completions == 0 {
            self.check_liveness(wire, peer)?;
        }
        Ok(progress)
    }

    /// Whether there is still something to wait for.
    #[cold]
    fn check_liveness<W: Wire, P: Peer>(&mut self, wire: &mut W, peer: &P) -> Result<()> {
        if let Some(failure) = peer.failure() {
            return Err(failure);
        }
        let now = Instant::now();
        wire.check(now)?;
        let since = *self.quiet_since.get_or_insert(now);
        let longest = self
            .silence
            .as_ref()
            .map_or(Duration::ZERO, |silence| silence.end - silence.start);
        if self.max_completions > 0 && now.duration_since(since) > longest {
            self.silence = Some(since..now);
        }
        // A peer that says that it is at work has not come to its end yet, where nothing need
        // arrive before that.
        let silent = || peer.silence().is_none_or(|silence| silence >= self.timeout);
        if now.duration_since(since) >= self.timeout && silent() {
            return Err(Error::test(format!(
                "nothing arrived from the peer for {}: is it still running, and the link up? --timeout (-to) sets how long to wait",
                show_time(self.timeout)
            )));
        }
        Ok(())
    }
}
