//! Length of the polling time before the adaptive mode blocks.
//!
//! As in Linux's halt polling, the window grows while waits end within its limit and shrinks while
//! they do not. But a sleep can also be long because waking up takes long: an idle processor in a
//! deep sleep state, or a virtual one that was descheduled. A window of zero would never find that
//! out, so from time to time a wait polls up to the limit, and the window opens if that helps.

use std::time::Duration;

/// Limit for latency tests. It is longer than Linux may take to reschedule a process (3 ms):
/// otherwise two sleeping ends would never find out how early polling notices a message.
const LATENCY_LIMIT: Duration = Duration::from_millis(10);
/// Limit for bandwidth tests. It is short because polling takes processor time from the peer and
/// from the kernel.
const BANDWIDTH_LIMIT: Duration = Duration::from_micros(50);
/// Limit for bandwidth tests on one processor, which is yielded between polls.
const BANDWIDTH_LIMIT_ALONE: Duration = Duration::from_micros(500);
/// Shortest window above zero.
const SHORTEST: Duration = Duration::from_micros(2);
/// Number of waits without a window until one polls up to the limit.
const PROBE_EVERY: u32 = 32;

/// Polling time at the beginning of a wait.
#[derive(Debug)]
pub(super) struct PollWindow {
    current: Duration,
    limit: Duration,
    waits_without: u32,
}

impl PollWindow {
    /// Creates the window of a latency test.
    pub(super) fn for_latency() -> Self {
        Self::new(LATENCY_LIMIT)
    }

    /// Creates the window of a bandwidth test.
    pub(super) fn for_bandwidth(single_processor: bool) -> Self {
        Self::new(if single_processor {
            BANDWIDTH_LIMIT_ALONE
        } else {
            BANDWIDTH_LIMIT
        })
    }

    fn new(limit: Duration) -> Self {
        Self {
            current: limit,
            limit,
            waits_without: 0,
        }
    }

    /// Returns the polling time of the next wait.
    pub(super) fn next(&mut self) -> Duration {
        if self.current.is_zero() {
            self.waits_without += 1;
            if self.waits_without % PROBE_EVERY == 0 {
                return self.limit;
            }
        }
        self.current
    }

    /// Records that polling noticed an event.
    pub(super) fn helped(&mut self) {
        if self.current.is_zero() {
            self.current = self.limit;
        }
    }

    /// Records that polling noticed nothing and the wait then slept for `slept`. The window grows
    /// if polling up to the limit would have avoided the sleep.
    pub(super) fn missed(&mut self, slept: Duration) {
        self.current = if self.current + slept < self.limit {
            (self.current * 2).clamp(SHORTEST, self.limit)
        } else if self.current < SHORTEST * 2 {
            Duration::ZERO
        } else {
            self.current / 2
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(20);

    fn closed_window() -> PollWindow {
        let mut window = PollWindow::for_latency();
        for _ in 0..16 {
            window.missed(LONG);
        }
        assert_eq!(window.current, Duration::ZERO);
        window
    }

    #[test]
    fn long_waits_close_the_window() {
        assert_eq!(closed_window().next(), Duration::ZERO);
    }

    #[test]
    fn short_sleeps_open_the_window_step_by_step() {
        let mut window = closed_window();
        window.missed(SHORTEST);
        assert_eq!(window.current, SHORTEST);
        for _ in 0..20 {
            window.missed(SHORTEST);
        }
        assert!(
            window.current <= window.limit && window.current > window.limit / 4,
            "{window:?}"
        );
    }

    #[test]
    fn a_successful_probe_opens_the_window() {
        let mut window = closed_window();
        let probes = (0..PROBE_EVERY * 3)
            .filter(|_| window.next() == LATENCY_LIMIT)
            .count();
        assert_eq!(probes, 3);
        window.helped();
        assert_eq!(window.next(), LATENCY_LIMIT);
    }

    #[test]
    fn a_window_that_helped_keeps_its_size() {
        let mut window = PollWindow::for_bandwidth(false);
        window.missed(LONG);
        window.helped();
        assert_eq!(window.next(), BANDWIDTH_LIMIT / 2);
    }
}
