//! The end of a wait.

use std::time::{Duration, Instant};

/// When a wait ends: at a moment, or never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// After this time; a time beyond the clock's range, as `None`, is never.
    pub(crate) fn after(timeout: impl Into<Option<Duration>>) -> Self {
        Self(
            timeout
                .into()
                .and_then(|timeout| Instant::now().checked_add(timeout)),
        )
    }

    /// What is left; `None` is for ever.
    pub(crate) fn remaining(self) -> Option<Duration> {
        self.0
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// The same, or earlier: at most this long from now.
    pub(crate) fn capped(self, time: Duration) -> Self {
        match self.remaining() {
            Some(left) if left <= time => self,
            _ => Self::after(time),
        }
    }

    /// Whether it has passed.
    pub(crate) fn has_passed(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// A time as the milliseconds that librdmacm takes: rounded up, and at least 1.
pub(crate) fn as_millis(time: Duration) -> i32 {
    let millis = time.as_nanos().div_ceil(1_000_000).max(1);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_up_and_never_overflow() {
        assert_eq!(as_millis(Duration::ZERO), 1);
        assert_eq!(as_millis(Duration::from_micros(1500)), 2);
        assert_eq!(as_millis(Duration::from_secs(3)), 3000);
        assert_eq!(as_millis(Duration::MAX), i32::MAX);
    }

    #[test]
    fn a_deadline_beyond_the_clock_is_never() {
        assert!(Deadline::after(Duration::MAX).remaining().is_none());
        assert!(!Deadline::after(None).has_passed());
        assert!(Deadline::after(Duration::ZERO).has_passed());
        assert_eq!(
            Deadline::after(Duration::ZERO).remaining(),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn a_deadline_can_be_brought_forward_and_not_put_off() {
        let second = Duration::from_secs(1);
        assert!(
            Deadline::after(None)
                .capped(second)
                .remaining()
                .is_some_and(|left| left <= second)
        );
        assert!(Deadline::after(Duration::ZERO).capped(second).has_passed());
    }
}
