//! The loop that waits for the next event of a completion queue, a socket or a memory location.
//!
//! Polling notices an event soonest, but on a busy processor it keeps the peer, or the kernel
//! thread that moves the data, from running. The adaptive mode therefore polls for a limited time
//! (see `PollWindow`) and then blocks until an event. It polls without a pause at first and
//! yields the processor between polls after `PURE_POLLING`, or from the first poll if there is
//! only one processor.
//!
//! No wait blocks for longer than `MAX_SLEEP`, so that the timeout and messages on the control
//! connection are noticed.

use std::ops::Range;
use std::time::{Duration, Instant};

use base::error::Result;

use super::poll_window::PollWindow;
use crate::spec::modes::Wait;
use crate::stats::cpu::available_cpus;

/// Polling time after which the adaptive mode yields the processor between polls. It is shorter
/// than a time slice of the scheduler, which would interrupt the polling anyway.
const PURE_POLLING: Duration = Duration::from_millis(2);
/// Longest time that a wait blocks.
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// Empty polls between readings of the clock. Reading the clock takes at least as long as a poll,
/// and on emulated processors all clocks share one lock with the kernel.
const POLLS_PER_CLOCK: Range<u64> = 8..64;
/// Empty polls between calls of [`PollSource::check`].
const POLLS_PER_CHECK: Range<u64> = 64..1024;
/// Events between calls of [`PollSource::check`]. A peer that sends without a pause must not keep
/// this end from noticing that the control connection ended.
const EVENTS_PER_CHECK: u64 = 64;
/// Remaining time below which the clock is read at the shortest interval.
const SOON: Duration = Duration::from_millis(1);

/// Anything that a [`WaitLoop`] can poll.
pub trait PollSource {
    /// Result of a successful poll.
    type Event;

    /// Polls once; returns `None` if nothing happened.
    fn poll(&mut self) -> Result<Option<Self::Event>>;

    /// Blocks until something happens, at most for about `limit`.
    fn block(&mut self, limit: Duration) -> Result<Option<Self::Event>>;

    /// Checks that waiting can still succeed. This is called now and then; `idle` is the time
    /// without an event so far.
    fn check(&mut self, idle: Range<Instant>) -> Result<()>;

    /// Returns `true` if the peer has finished. A wait then returns without an event.
    fn is_finished(&self) -> bool;
}

/// Waits for events of a [`PollSource`] in one of the modes of [`Wait`].
#[derive(Debug)]
pub struct WaitLoop {
    mode: Wait,
    /// Time of polling before blocking, in the adaptive mode.
    window: PollWindow,
    /// The processor is yielded between polls from the start.
    yields: bool,
    /// Time of the first check since the latest [`WaitLoop::reset`].
    idle_since: Option<Instant>,
    /// Number of waits that returned an event.
    events: u64,
}

impl WaitLoop {
    /// Creates a wait loop for a latency test or for a bandwidth test.
    pub fn new(mode: Wait, latency: bool) -> Self {
        let single_processor = available_cpus() < 2;
        Self {
            mode,
            window: if latency {
                PollWindow::for_latency()
            } else {
                PollWindow::for_bandwidth(single_processor)
            },
            yields: single_processor,
            idle_since: None,
            events: 0,
        }
    }

    /// Yields the processor after every empty poll, however many processors there are.
    #[must_use]
    pub fn yielding(self) -> Self {
        Self {
            yields: true,
            ..self
        }
    }

    /// Restarts the idle time. The caller does this whenever data moved.
    #[inline]
    pub fn reset(&mut self) {
        self.idle_since = None;
    }

    /// Waits until the source has an event. Returns `None` if `until` passed or the peer finished
    /// first; a blocking wait also returns `None` after `MAX_SLEEP`.
    pub fn wait<S: PollSource>(
        &mut self,
        source: &mut S,
        until: Option<Instant>,
    ) -> Result<Option<S::Event>> {
        let event = self.wait_for_event(source, until)?;
        if event.is_some() {
            self.events += 1;
            if self.events % EVENTS_PER_CHECK == 0 {
                let now = Instant::now();
                source.check(now..now)?;
            }
        }
        Ok(event)
    }

    #[inline]
    fn wait_for_event<S: PollSource>(
        &mut self,
        source: &mut S,
        until: Option<Instant>,
    ) -> Result<Option<S::Event>> {
        match self.mode {
            Wait::Poll => self.spin(source, until, None),
            Wait::Events => self.block(source, until),
            Wait::Adaptive => {
                let window = self.window.next();
                if !window.is_zero() {
                    if let Some(event) = self.spin(source, until, Some(window))? {
                        self.window.helped();
                        return Ok(Some(event));
                    }
                    if source.is_finished() {
                        return Ok(None);
                    }
                }
                let begin = Instant::now();
                let event = self.block(source, until)?;
                self.window.missed(begin.elapsed());
                Ok(event)
            }
        }
    }

    /// Checks the source once.
    #[cold]
    pub(crate) fn check<S: PollSource>(&mut self, source: &mut S) -> Result<()> {
        let now = Instant::now();
        let since = *self.idle_since.get_or_insert(now);
        source.check(since..now)
    }

    /// Polls until there is an event, the peer has finished, or `until` or `window` has passed.
    #[inline]
    fn spin<S: PollSource>(
        &mut self,
        source: &mut S,
        until: Option<Instant>,
        window: Option<Duration>,
    ) -> Result<Option<S::Event>> {
        let mut polls = 0_u64;
        let mut clock = GrowingInterval::new(POLLS_PER_CLOCK);
        let mut check = GrowingInterval::new(POLLS_PER_CHECK);
        let mut begin = None;
        let mut yields = self.yields;
        loop {
            if let Some(event) = source.poll()? {
                return Ok(Some(event));
            }
            polls += 1;
            if clock.is_due(polls) && (until.is_some() || window.is_some()) {
                // The window begins at the first reading of the clock.
                let now = Instant::now();
                let spun = now.duration_since(*begin.get_or_insert(now));
                if window.is_some_and(|window| spun >= window) || until.is_some_and(|t| now >= t) {
                    return Ok(None);
                }
                yields |= window.is_some() && spun >= PURE_POLLING;
                if until.is_some_and(|t| t < now + SOON) {
                    clock.shrink(polls);
                } else {
                    clock.grow(polls);
                }
            }
            if check.is_due(polls) {
                check.grow(polls);
                self.check(source)?;
                if source.is_finished() {
                    return Ok(None);
                }
            }
            // There is no pause instruction here: it takes 140 cycles or more (an exit on virtual
            // processors), which would become part of the measured time.
            if yields {
                std::thread::yield_now();
            }
        }
    }

    /// Blocks once; checks the source if nothing happened.
    fn block<S: PollSource>(
        &mut self,
        source: &mut S,
        until: Option<Instant>,
    ) -> Result<Option<S::Event>> {
        let limit = until.map_or(MAX_SLEEP, |until| {
            until
                .saturating_duration_since(Instant::now())
                .min(MAX_SLEEP)
        });
        let event = source.block(limit)?;
        if event.is_none() {
            self.check(source)?;
        }
        Ok(event)
    }
}

/// An interval in polls that doubles the elapsed number of polls each time, up to a limit: waits
/// that end soon are observed closely, and long ones cheaply.
#[derive(Debug)]
struct GrowingInterval {
    next: u64,
    bounds: Range<u64>,
}

impl GrowingInterval {
    fn new(bounds: Range<u64>) -> Self {
        Self {
            next: bounds.start,
            bounds,
        }
    }

    #[inline]
    fn is_due(&self, polls: u64) -> bool {
        polls >= self.next
    }

    /// Schedules the next time after as many polls as there were so far, within the bounds.
    fn grow(&mut self, polls: u64) {
        self.next = polls + polls.clamp(self.bounds.start, self.bounds.end);
    }

    /// Schedules the next time after the shortest interval.
    fn shrink(&mut self, polls: u64) {
        self.next = polls + self.bounds.start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::Error;

    /// A source with an event at one poll, or at no poll.
    #[derive(Default)]
    struct Fake {
        event_at: Option<u64>,
        finished_at: Option<u64>,
        polls: u64,
        checks: u64,
        blocks: u64,
    }

    impl PollSource for Fake {
        type Event = u64;

        fn poll(&mut self) -> Result<Option<u64>> {
            self.polls += 1;
            Ok(self.event_at.filter(|at| *at == self.polls))
        }

        fn block(&mut self, limit: Duration) -> Result<Option<u64>> {
            assert!(limit <= MAX_SLEEP);
            self.blocks += 1;
            self.poll()
        }

        fn check(&mut self, idle: Range<Instant>) -> Result<()> {
            assert!(idle.start <= idle.end);
            self.checks += 1;
            if self.checks > 50 {
                return Err(Error::test("too many checks"));
            }
            Ok(())
        }

        fn is_finished(&self) -> bool {
            self.finished_at.is_some_and(|at| self.polls >= at)
        }
    }

    #[test]
    fn intervals_double_up_to_their_bound() {
        let mut interval = GrowingInterval::new(8..64);
        let mut due = Vec::new();
        for polls in 1..=256 {
            if interval.is_due(polls) {
                due.push(polls);
                interval.grow(polls);
            }
        }
        assert_eq!(due, [8, 16, 32, 64, 128, 192, 256]);
        interval.shrink(256);
        assert!(!interval.is_due(263) && interval.is_due(264));
    }

    #[test]
    fn every_mode_returns_the_event() {
        for mode in [Wait::Poll, Wait::Events, Wait::Adaptive] {
            let mut source = Fake {
                event_at: Some(1),
                ..Fake::default()
            };
            let event = WaitLoop::new(mode, false).wait(&mut source, None).unwrap();
            assert_eq!((event, source.checks), (Some(1), 0), "{mode:?}");
        }
    }

    #[test]
    fn polling_ends_at_the_deadline() {
        let until = Instant::now() + Duration::from_millis(5);
        let event = WaitLoop::new(Wait::Poll, true)
            .yielding()
            .wait(&mut Endless, Some(until))
            .unwrap();
        assert!(event.is_none() && Instant::now() >= until);
    }

    /// A source without events.
    struct Endless;

    impl PollSource for Endless {
        type Event = ();

        fn poll(&mut self) -> Result<Option<()>> {
            Ok(None)
        }

        fn block(&mut self, _: Duration) -> Result<Option<()>> {
            Ok(None)
        }

        fn check(&mut self, _: Range<Instant>) -> Result<()> {
            Ok(())
        }

        fn is_finished(&self) -> bool {
            false
        }
    }

    #[test]
    fn polling_ends_when_the_peer_has_finished() {
        let mut source = Fake {
            finished_at: Some(100),
            ..Fake::default()
        };
        let event = WaitLoop::new(Wait::Poll, false)
            .wait(&mut source, None)
            .unwrap();
        assert_eq!((event, source.polls, source.checks), (None, 128, 2));
    }

    #[test]
    fn an_error_of_a_check_ends_the_wait() {
        let mut wait_loop = WaitLoop::new(Wait::Poll, false);
        let error = wait_loop.wait(&mut Fake::default(), None).unwrap_err();
        assert!(error.to_string().contains("too many checks"), "{error}");
    }

    /// A source that always has an event, and whose checks fail.
    struct Flood;

    impl PollSource for Flood {
        type Event = ();

        fn poll(&mut self) -> Result<Option<()>> {
            Ok(Some(()))
        }

        fn block(&mut self, _: Duration) -> Result<Option<()>> {
            Ok(Some(()))
        }

        fn check(&mut self, _: Range<Instant>) -> Result<()> {
            Err(Error::test("the peer is gone"))
        }

        fn is_finished(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_flood_of_events_is_checked() {
        for mode in [Wait::Poll, Wait::Events, Wait::Adaptive] {
            let mut wait_loop = WaitLoop::new(mode, false);
            let waits = (0..1000).take_while(|_| wait_loop.wait(&mut Flood, None).is_ok());
            assert!(waits.count() < 100, "{mode:?}");
        }
    }

    #[test]
    fn a_blocking_wait_checks_after_each_empty_block() {
        let mut source = Fake::default();
        let mut wait_loop = WaitLoop::new(Wait::Events, false);
        for n in 1..4 {
            assert_eq!(wait_loop.wait(&mut source, None).unwrap(), None);
            assert_eq!((source.blocks, source.checks), (n, n));
        }
    }
}
