//! Time limits.

use std::time::{Duration, Instant};

/// The remaining time of a wait whose result is usually there at once. It begins with the first
/// sleep, so that a wait that never sleeps does not read the clock, which can be a system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LazyDeadline {
    timeout: Option<Duration>,
    deadline: Option<Deadline>,
}

impl LazyDeadline {
    /// Returns the deadline `timeout` after the first sleep. It is never reached if `timeout` is
    /// `None`.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            deadline: None,
        }
    }

    /// Calls `sleep` with the remaining time, or returns `false` if the deadline has passed.
    pub(crate) fn sleep<E>(
        &mut self,
        sleep: impl FnOnce(Option<Duration>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let remaining = match (self.timeout, self.deadline) {
            (None, _) => None,
            (Some(timeout), None) => {
                self.deadline = Some(Deadline::after(timeout));
                Some(timeout)
            }
            (Some(_), Some(deadline)) => deadline.remaining(),
        };
        if remaining == Some(Duration::ZERO) {
            return Ok(false);
        }
        sleep(remaining).map(|()| true)
    }
}

/// The end of a wait: a point in time, or never.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Returns the deadline `timeout` from now. It is never reached if `timeout` is `None` or
    /// exceeds the range of the clock.
    pub fn after(timeout: impl Into<Option<Duration>>) -> Self {
        Self(
            timeout
                .into()
                .and_then(|timeout| Instant::now().checked_add(timeout)),
        )
    }

    /// Returns the remaining time, or `None` if the deadline is never reached.
    pub fn remaining(self) -> Option<Duration> {
        self.0
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Returns `true` if the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// Converts a duration to the milliseconds that librdmacm expects: rounded up and at least 1.
pub fn as_millis(time: Duration) -> i32 {
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
    fn a_lazy_deadline_limits_the_sum_of_the_sleeps() {
        let sleep = |deadline: &mut LazyDeadline| {
            let mut given = None;
            let slept = deadline.sleep(|timeout| {
                given = Some(timeout);
                Ok::<_, ()>(())
            });
            assert_eq!(slept, Ok(given.is_some()));
            given
        };
        let mut forever = LazyDeadline::after(None);
        assert_eq!([sleep(&mut forever), sleep(&mut forever)], [Some(None); 2]);
        assert_eq!(sleep(&mut LazyDeadline::after(Some(Duration::ZERO))), None);
        let second = Duration::from_secs(1);
        let mut deadline = LazyDeadline::after(Some(second));
        assert_eq!(sleep(&mut deadline), Some(Some(second)));
        let next = sleep(&mut deadline).flatten();
        assert!(next.is_some_and(|next| next < second), "{next:?}");
        let short = Duration::from_millis(1);
        let mut deadline = LazyDeadline::after(Some(short));
        assert_eq!(sleep(&mut deadline), Some(Some(short)));
        std::thread::sleep(short);
        assert_eq!(sleep(&mut deadline), None);
    }
}
