//! The end of a test by time, with few readings of the clock.

use std::time::{Duration, Instant};

/// Time between two readings of the clock while messages move. Where the kernel cannot map its
/// clock into programs, a reading is a system call, as expensive as sending a message.
const READING_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of messages between two readings, so that a network that becomes slow does not
/// make the test much longer.
const MAX_MESSAGES: u32 = 64;

/// Tells when the time of a test is over.
///
/// The clock is read after a number of messages that follows their rate. The result does not depend
/// on it: it is computed from the time when the loop ends.
pub(super) struct TimeLimit {
    deadline: Option<Instant>,
    /// Number of messages between two readings.
    interval: u32,
    /// Number of messages before the next reading.
    left: u32,
    latest: Instant,
}

impl TimeLimit {
    /// Creates a limit for a loop that begins at `start`, or one that never passes.
    pub(super) fn new(start: Instant, duration: Option<Duration>) -> Self {
        Self {
            deadline: duration.and_then(|duration| start.checked_add(duration)),
            interval: 1,
            left: 1,
            latest: start,
        }
    }

    /// Returns the end of the time, if there is one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns `true` if the time is over. This is called after each message.
    #[inline]
    pub(super) fn is_over_after_message(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && self.is_over()
    }

    /// Reads the clock if there is a limit, and returns `true` if the time is over.
    pub(super) fn is_over(&mut self) -> bool {
        let Some(deadline) = self.deadline else {
            self.left = MAX_MESSAGES;
            return false;
        };
        self.is_over_at(Instant::now(), deadline)
    }

    fn is_over_at(&mut self, now: Instant, deadline: Instant) -> bool {
        let remaining = deadline.saturating_duration_since(now);
        let allowed = READING_INTERVAL.min(remaining);
        let elapsed = now.saturating_duration_since(self.latest);
        self.latest = now;
        self.interval = if elapsed > allowed {
            1
        } else if elapsed * 2 <= allowed {
            (self.interval * 2).min(MAX_MESSAGES)
        } else {
            self.interval
        };
        self.left = self.interval;
        remaining.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of readings and of messages of a loop that sends a message each `gap`.
    fn run(duration: Duration, gap: Duration) -> (u32, u32) {
        let start = Instant::now();
        let mut limit = TimeLimit::new(start, Some(duration));
        let (mut readings, mut messages) = (0, 0);
        loop {
            messages += 1;
            limit.left -= 1;
            if limit.left == 0 {
                readings += 1;
                if limit.is_over_at(start + gap * messages, start + duration) {
                    return (readings, messages);
                }
            }
        }
    }

    #[test]
    fn fast_messages_need_few_readings() {
        let (readings, messages) = run(Duration::from_secs(1), Duration::from_micros(1));
        assert!(readings < 17_000, "{readings}");
        assert!((1_000_000..1_000_100).contains(&messages), "{messages}");
    }

    #[test]
    fn slow_messages_end_in_time() {
        let (_, messages) = run(Duration::from_secs(1), Duration::from_millis(3));
        assert_eq!(messages, 334);
        let (readings, messages) = run(Duration::from_secs(1), Duration::from_millis(30));
        assert_eq!((readings, messages), (34, 34));
    }

    #[test]
    fn messages_that_become_slow_are_noticed() {
        let start = Instant::now();
        let (duration, mut now) = (Duration::from_secs(1), start);
        let mut limit = TimeLimit::new(start, Some(duration));
        while now < start + Duration::from_millis(500) {
            now += Duration::from_micros(1);
            limit.left -= 1;
            assert!(limit.left > 0 || !limit.is_over_at(now, start + duration));
        }
        assert!(!limit.is_over_at(now + Duration::from_millis(100), start + duration));
        assert_eq!(limit.left, 1, "the clock is read after the next message");
    }

    #[test]
    fn a_loop_without_a_limit_never_ends() {
        let mut limit = TimeLimit::new(Instant::now(), None);
        assert!((0..10_000).all(|_| !limit.is_over_after_message()));
        assert_eq!(limit.deadline(), None);
    }
}
