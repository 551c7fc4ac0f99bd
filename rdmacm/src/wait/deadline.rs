//! Time limits.

use std::time::{Duration, Instant};

/// The end of a wait: a point in time, or never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Returns the deadline `timeout` from now. It is never reached if `timeout` is `None` or
    /// exceeds the range of the clock.
    pub(crate) fn after(timeout: impl Into<Option<Duration>>) -> Self {
        Self(
            timeout
                .into()
                .and_then(|timeout| Instant::now().checked_add(timeout)),
        )
    }

    /// Returns the remaining time, or `None` if the deadline is never reached.
    pub(crate) fn remaining(self) -> Option<Duration> {
        self.0
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Returns this deadline or the one `time` from now, whichever is earlier.
    pub(crate) fn capped(self, time: Duration) -> Self {
        match self.remaining() {
            Some(remaining) if remaining <= time => self,
            _ => Self::after(time),
        }
    }

    /// Returns `true` if the deadline has passed.
    pub(crate) fn has_passed(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// Converts a duration to the milliseconds that librdmacm expects: rounded up and at least 1.
pub(crate) fn as_millis(time: Duration) -> i32 {
    let millis = time.as_nanos().div_ceil(1_000_000).max(1);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up_and_saturate() {
        assert_eq!(as_millis(Duration::ZERO), 1);
        assert_eq!(as_millis(Duration::from_micros(1500)), 2);
        assert_eq!(as_millis(Duration::from_secs(3)), 3000);
        assert_eq!(as_millis(Duration::MAX), i32::MAX);
    }

    #[test]
    fn a_deadline_beyond_the_clock_range_is_never_reached() {
        assert!(Deadline::after(Duration::MAX).remaining().is_none());
        assert!(!Deadline::after(None).has_passed());
        assert!(Deadline::after(Duration::ZERO).has_passed());
        assert_eq!(
            Deadline::after(Duration::ZERO).remaining(),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn capping_only_makes_a_deadline_earlier() {
        let second = Duration::from_secs(1);
        assert!(
            Deadline::after(None)
                .capped(second)
                .remaining()
                .is_some_and(|remaining| remaining <= second)
        );
        assert!(Deadline::after(Duration::ZERO).capped(second).has_passed());
    }
}
