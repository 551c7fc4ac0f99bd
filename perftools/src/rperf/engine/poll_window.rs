//! How long the adaptive way polls before it sleeps.
//!
//! As in Linux's halt polling, the window grows while waits end within its limit, and shrinks when
//! they do not. But a sleep can be long for no other reason than that waking up takes long (an idle
//! processor in deep sleep, a virtual one that was given away), and who only sleeps never learns
//! that. So now and then a wait polls to the limit, and the window opens when that helps.

use std::time::Duration;

/// Where the time to and fro is measured. Longer than a processor that runs something else
/// meanwhile takes to come back (3 ms on Linux): two ends that wait for each other asleep would
/// never find out how soon they could be awake.
const LATENCY_LIMIT: Duration = Duration::from_millis(10);
/// Where processor time is measured too, and the peer's and the kernel's work goes on meanwhile.
const BANDWIDTH_LIMIT: Duration = Duration::from_micros(50);
/// The same, where the only processor is given away between polls.
const BANDWIDTH_LIMIT_ALONE: Duration = Duration::from_micros(500);
/// The shortest window that is not none.
const LEAST: Duration = Duration::from_micros(2);
/// Every so many waits without a window, one polls to the limit.
const PROBE_EVERY: u32 = 32;

/// The time of polling that a wait begins with.
#[derive(Debug)]
pub(super) struct PollWindow {
    now: Duration,
    limit: Duration,
    without: u32,
}

impl PollWindow {
    /// Waits of a latency test.
    pub(super) fn for_latency() -> Self {
        Self::new(LATENCY_LIMIT)
    }

    /// Waits of a bandwidth test; `alone` where there is one processor only.
    pub(super) fn for_bandwidth(alone: bool) -> Self {
        Self::new(if alone {
            BANDWIDTH_LIMIT_ALONE
        } else {
            BANDWIDTH_LIMIT
        })
    }

    fn new(limit: Duration) -> Self {
        Self {
            now: limit,
            limit,
            without: 0,
        }
    }

    /// How long the next wait polls.
    pub(super) fn next(&mut self) -> Duration {
        if self.now.is_zero() {
            self.without += 1;
            if self.without % PROBE_EVERY == 0 {
                return self.limit;
            }
        }
        self.now
    }

    /// Polling brought something.
    pub(super) fn helped(&mut self) {
        if self.now.is_zero() {
            self.now = self.limit;
        }
    }

    /// Polling brought nothing, and the sleep after it took `slept`: would polling to the limit
    /// have spared it?
    pub(super) fn missed(&mut self, slept: Duration) {
        self.now = if self.now + slept < self.limit {
            (self.now * 2).clamp(LEAST, self.limit)
        } else if self.now < LEAST * 2 {
            Duration::ZERO
        } else {
            self.now / 2
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(20);

    fn closed() -> PollWindow {
        let mut window = PollWindow::for_latency();
        for _ in 0..16 {
            window.missed(LONG);
        }
        assert_eq!(window.now, Duration::ZERO);
        window
    }

    #[test]
    fn long_waits_close_it() {
        let mut window = closed();
        assert_eq!(window.next(), Duration::ZERO);
    }

    #[test]
    fn short_sleeps_open_it_step_by_step() {
        let mut window = closed();
        window.missed(LEAST);
        assert_eq!(window.now, LEAST);
        for _ in 0..20 {
            window.missed(LEAST);
        }
        assert!(
            window.now <= window.limit && window.now > window.limit / 4,
            "{window:?}"
        );
    }

    #[test]
    fn a_probe_that_helps_opens_it_whatever_the_sleeps_say() {
        let mut window = closed();
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
