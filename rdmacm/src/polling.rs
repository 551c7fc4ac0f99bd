//! Polling before a thread sleeps: for how long it pays.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Shortest window above zero, in microseconds.
const SHORTEST: u32 = 2;
/// Number of waits without a window until one polls up to the limit.
const PROBE_EVERY: u32 = 32;
/// Empty polls between readings of the clock, which can be a system call.
const POLLS_PER_CLOCK: u32 = 16;

/// Polling time at the beginning of a wait, in microseconds. It grows while waits end within the
/// limit, and shrinks to zero while they do not. Then a wait polls up to the limit from time to
/// time, because a sleep can also be long because waking up takes long.
///
/// Several threads may use a window at the same time. They only lose adjustments.
#[derive(Debug, Default)]
pub struct PollWindow {
    current: AtomicU32,
    limit: u32,
    waits_without: AtomicU32,
}

impl PollWindow {
    /// Returns the window of waits that poll for at most `limit`.
    pub fn new(limit: Duration) -> Self {
        let limit = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
        Self {
            current: AtomicU32::new(limit),
            limit,
            waits_without: AtomicU32::new(0),
        }
    }

    /// Returns the longest time for which a wait polls.
    pub fn limit(&self) -> Duration {
        Duration::from_micros(self.limit.into())
    }

    /// Calls `poll` until it returns a value or the window has passed. Yields the processor before
    /// each call, because software devices do their work in threads of the kernel.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn poll<T, E>(
        &self,
        mut poll: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let mut polling = self.begin();
        while polling.goes_on() {
            thread::yield_now();
            if let Some(value) = poll()? {
                self.helped();
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Begins a wait.
    pub fn begin(&self) -> Polling {
        Polling {
            window: Duration::from_micros(self.next().into()),
            began: None,
            polls: 0,
        }
    }

    fn next(&self) -> u32 {
        let current = self.current.load(Ordering::Relaxed);
        if current == 0 && self.limit > 0 {
            let waits = self.waits_without.fetch_add(1, Ordering::Relaxed);
            if waits % PROBE_EVERY == PROBE_EVERY - 1 {
                return self.limit;
            }
        }
        current
    }

    /// Records that polling noticed the end of the wait.
    pub fn helped(&self) {
        if self.current.load(Ordering::Relaxed) == 0 {
            self.current.store(self.limit, Ordering::Relaxed);
        }
    }

    /// Records that polling noticed nothing and the thread then slept for `slept`.
    pub fn missed(&self, slept: Duration) {
        let slept = u32::try_from(slept.as_micros()).unwrap_or(u32::MAX);
        let current = self.current.load(Ordering::Relaxed);
        let next = if current.saturating_add(slept) < self.limit {
            current.saturating_mul(2).clamp(SHORTEST, self.limit)
        } else if current < SHORTEST * 2 {
            0
        } else {
            current / 2
        };
        self.current.store(next, Ordering::Relaxed);
    }
}

/// Polling at the beginning of one wait.
#[derive(Debug)]
pub struct Polling {
    window: Duration,
    /// Time of the first reading of the clock.
    began: Option<Instant>,
    polls: u32,
}

impl Polling {
    /// Returns `true` if the caller should poll once more.
    pub fn goes_on(&mut self) -> bool {
        if self.window.is_zero() {
            return false;
        }
        self.polls += 1;
        if self.polls % POLLS_PER_CLOCK == 0 {
            let now = Instant::now();
            if now.duration_since(*self.began.get_or_insert(now)) >= self.window {
                self.window = Duration::ZERO;
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(500);
    const LONG: Duration = Duration::from_millis(20);

    /// Polls without success. Returns the number of polls.
    fn count_polls(window: &PollWindow) -> u32 {
        let mut polls = 0;
        let polled = window.poll(|| {
            polls += 1;
            Ok::<_, ()>(None::<()>)
        });
        assert_eq!(polled, Ok(None));
        polls
    }

    fn closed_window() -> PollWindow {
        let window = PollWindow::new(LIMIT);
        for _ in 0..10 {
            window.missed(LONG);
        }
        assert_eq!(window.current.load(Ordering::Relaxed), 0);
        window
    }

    #[test]
    fn polling_ends_with_the_window() {
        let began = Instant::now();
        assert!(count_polls(&PollWindow::new(LIMIT)) > 0);
        assert!(began.elapsed() >= LIMIT);
    }

    #[test]
    fn a_limit_of_zero_never_polls() {
        let window = PollWindow::new(Duration::ZERO);
        for _ in 0..PROBE_EVERY * 2 {
            assert_eq!(count_polls(&window), 0);
            window.missed(Duration::ZERO);
        }
    }

    #[test]
    fn long_waits_close_the_window_but_for_probes() {
        let window = closed_window();
        let probes = (0..PROBE_EVERY * 3).filter(|_| count_polls(&window) > 0);
        assert_eq!(probes.count(), 3);
    }

    #[test]
    fn a_successful_probe_opens_the_window() {
        let window = closed_window();
        let mut poll = || Ok::<_, ()>(Some(7));
        let polled = (0..PROBE_EVERY).find_map(|_| window.poll(&mut poll).transpose());
        assert_eq!(polled, Some(Ok(7)));
        assert_eq!(window.next(), 500);
    }

    #[test]
    fn short_sleeps_open_the_window_step_by_step() {
        let window = closed_window();
        for expected in [2, 4, 8, 16] {
            window.missed(Duration::from_micros(1));
            assert_eq!(window.current.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn an_error_ends_polling() {
        let window = PollWindow::new(LIMIT);
        assert_eq!(window.poll(|| Err::<Option<()>, _>("lost")), Err("lost"));
    }
}
