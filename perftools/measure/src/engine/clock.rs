//! The clock of the latency loops: the clock of [`Instant`](std::time::Instant) on Linux, as a
//! number of nanoseconds. Differences of such numbers take fewer instructions than those of
//! `Instant`.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A time of the clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nanos(u64);

/// Reads the clock.
///
/// # Panics
/// Never: every Linux has this clock.
#[inline]
#[allow(
    clippy::cast_sign_loss,
    reason = "the clock begins at 0 when the host starts"
)]
pub(super) fn now() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the monotonic clock");
    Nanos((time.tv_sec() as u64).wrapping_mul(1_000_000_000) + time.tv_nsec() as u64)
}

impl Nanos {
    /// Returns the nanoseconds since an earlier time.
    #[inline]
    pub(super) fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Nanos {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_clock_agrees_with_instant() {
        let (instant, time) = (Instant::now(), now());
        std::thread::sleep(Duration::from_millis(20));
        let least = now().since(time);
        let most = u64::try_from(instant.elapsed().as_nanos()).unwrap();
        assert!((20_000_000..=most).contains(&least), "{least} {most}");
        let later = time + Duration::from_secs(3);
        assert_eq!((later.since(time), time.since(later)), (3_000_000_000, 0));
    }
}
