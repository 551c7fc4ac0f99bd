//! The clock of the loops that measure latency, as a number of nanoseconds.
//!
//! It reads the processor's cycle counter, which is one instruction. Reading the kernel's clock is
//! a system call where there is no vDSO. The kernel must consider the counter stable. Its rate is
//! measured while the test runs: until the end of the first [`INTERVAL`] the clock is the kernel's.
//! After each further one the counter is compared with the kernel's clock, and is not used anymore
//! if it differs, as after the migration of a virtual machine.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Interval in nanoseconds at which the counter is compared with the kernel's clock.
const INTERVAL: u64 = 50_000_000;
/// A reading of both clocks may take this part of the interval. The error of a rate is at most as
/// large, so two rates of the same counter differ by at most two such parts.
const READING_PART: u64 = 1000;
/// Bits of a rate after the binary point.
const FRACTION: u32 = 32;
/// Names of the clock sources of kernels on which the counter is used: x86 kernels no longer list
/// `tsc` after they have found it unstable, and User-Mode Linux, whose only source is `timer`,
/// has the counter of its host.
const STABLE_SOURCES: [&str; 2] = ["tsc", "timer"];

/// A time of the clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nanos(u64);

impl Nanos {
    /// Returns the nanoseconds since an earlier time.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> u64 {
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

/// A clock of one thread.
#[derive(Debug)]
pub(crate) struct Clock {
    /// `None` if there is no stable counter, or if it differed from the kernel's clock.
    counter: Option<Counter>,
    /// Time of this clock minus that of the kernel's clock. It changes with each comparison, so
    /// that the time does not jump.
    offset: u64,
}

#[derive(Debug)]
struct Counter {
    first: Reading,
    /// The reading of the latest comparison.
    latest: Reading,
    /// Time of this clock at the latest comparison.
    base: u64,
    /// Nanoseconds of a tick, with [`FRACTION`] bits after the binary point. 0 if it is unknown.
    rate: u64,
    /// Ticks after the latest comparison until the next one. 0 if the rate is unknown.
    valid_ticks: u64,
}

/// A reading of the kernel's clock and the counter.
#[derive(Clone, Copy, Debug)]
struct Reading {
    nanos: u64,
    ticks: u64,
    /// Number of ticks that the reading took.
    length: u64,
}

impl Clock {
    /// Creates a clock.
    pub(crate) fn new() -> Self {
        Self::with_counter(has_stable_counter().then(Reading::new))
    }

    fn with_counter(first: Option<Reading>) -> Self {
        let counter = first.map(|first| Counter {
            first,
            latest: first,
            base: first.nanos,
            rate: 0,
            valid_ticks: 0,
        });
        Self { counter, offset: 0 }
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn now(&mut self) -> Nanos {
        if let Some(counter) = &self.counter {
            let ticks = read_counter().wrapping_sub(counter.latest.ticks);
            if ticks < counter.valid_ticks {
                return Nanos(counter.base + counter.nanos(ticks));
            }
        }
        self.compare_now()
    }

    #[inline(never)]
    fn compare_now(&mut self) -> Nanos {
        Nanos(match &self.counter {
            Some(_) => self.compare(Reading::new()),
            None => kernel_nanos().wrapping_add(self.offset),
        })
    }

    /// Compares the counter with the kernel's clock. Returns the time of the reading.
    fn compare(&mut self, reading: Reading) -> u64 {
        let time = reading.nanos.wrapping_add(self.offset);
        let Some(counter) = &mut self.counter else {
            return time;
        };
        let (nanos, ticks) = reading.since(&counter.latest);
        let is_precise = reading.length < ticks / READING_PART;
        if counter.rate == 0 {
            if nanos < INTERVAL || !is_precise {
                return time;
            }
            counter.base = time;
        } else if is_precise {
            if counter.nanos(ticks).abs_diff(nanos) > 2 * nanos / READING_PART {
                self.counter = None;
                return time;
            }
            counter.base += counter.nanos(ticks);
        } else {
            // The reading was interrupted. The next one has a longer interval.
            counter.valid_ticks += quotient(INTERVAL, counter.rate);
            return counter.base + counter.nanos(ticks);
        }
        // The error of the rate becomes smaller with each comparison.
        let (nanos, ticks) = reading.since(&counter.first);
        counter.rate = quotient(nanos, ticks);
        counter.valid_ticks = quotient(INTERVAL, counter.rate);
        counter.latest = reading;
        self.offset = counter.base.wrapping_sub(reading.nanos);
        counter.base
    }
}

impl Counter {
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "nanoseconds of 500 years")]
    fn nanos(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.rate)) >> FRACTION) as u64
    }
}

/// Divides two numbers. The result has [`FRACTION`] more bits after the binary point than the
/// quotient of their units.
fn quotient(dividend: u64, divisor: u64) -> u64 {
    let quotient = (u128::from(dividend) << FRACTION) / u128::from(divisor.max(1));
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

impl Reading {
    fn new() -> Self {
        let ticks = read_counter();
        let nanos = kernel_nanos();
        Self {
            nanos,
            ticks,
            length: read_counter().wrapping_sub(ticks),
        }
    }

    /// Returns the nanoseconds and ticks since an earlier reading.
    fn since(&self, earlier: &Self) -> (u64, u64) {
        let nanos = self.nanos.saturating_sub(earlier.nanos);
        (nanos, self.ticks.wrapping_sub(earlier.ticks))
    }
}

/// Reads the clock of [`Instant`](std::time::Instant).
///
/// # Panics
/// Never: every Linux has this clock.
#[allow(
    clippy::cast_sign_loss,
    reason = "the clock begins at 0 when the host starts"
)]
fn kernel_nanos() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the monotonic clock");
    (time.tv_sec() as u64).wrapping_mul(1_000_000_000) + time.tv_nsec() as u64
}

/// Returns `true` if the kernel considers the cycle counter stable on all processors.
fn has_stable_counter() -> bool {
    const SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let sources = fs::read_to_string(SOURCES).unwrap_or_default();
    cfg!(target_arch = "x86_64") && lists_stable_counter(&sources)
}

fn lists_stable_counter(sources: &str) -> bool {
    sources
        .split_whitespace()
        .any(|source| STABLE_SOURCES.contains(&source))
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn read_counter() -> u64 {
    safe_arch::read_timestamp_counter()
}

#[cfg(not(target_arch = "x86_64"))]
fn read_counter() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Ticks of a millisecond.
    const TICKS: u64 = 2_600_000;

    /// Returns a reading after so many milliseconds, with a counter that is ahead by `ahead` ticks.
    fn reading(millis: u64, ahead: i64) -> Reading {
        Reading {
            nanos: 1000 + millis * 1_000_000,
            ticks: (u64::MAX - TICKS)
                .wrapping_add(millis * TICKS)
                .wrapping_add_signed(ahead),
            length: 500,
        }
    }

    /// Compares at these readings. Returns the times, and if the counter is used at the end.
    fn times(readings: &[Reading]) -> (Vec<u64>, bool) {
        let mut clock = Clock::with_counter(Some(reading(0, 0)));
        let times = readings.iter().map(|reading| clock.compare(*reading));
        let times = times.map(|time| time - 1000).collect();
        (times, clock.counter.is_some_and(|c| c.valid_ticks > 0))
    }

    #[test]
    fn the_clock_agrees_with_instant() {
        for mut clock in [Clock::new(), Clock::with_counter(None)] {
            let (begin, least) = (clock.now(), Instant::now());
            let mut latest = begin;
            let passed = loop {
                let passed = least.elapsed();
                let now = clock.now();
                assert!(now >= latest, "{latest:?} {now:?} {clock:?}");
                latest = now;
                if passed > Duration::from_millis(150) {
                    break u64::try_from(passed.as_nanos()).unwrap();
                }
            };
            let nanos = latest.since(begin);
            assert!(nanos * 1000 >= passed * 997, "{nanos} {passed} {clock:?}");
        }
    }

    #[test]
    fn differences_of_times_are_not_negative() {
        let later = Nanos(7) + Duration::from_secs(3);
        assert_eq!(
            (later.since(Nanos(7)), Nanos(7).since(later)),
            (3_000_000_000, 0)
        );
    }

    #[test]
    fn only_a_counter_that_the_kernel_lists_is_used() {
        for sources in ["tsc hpet acpi_pm \n", "kvm-clock tsc\n", "timer\n"] {
            assert!(lists_stable_counter(sources), "{sources}");
        }
        for sources in ["", "hpet acpi_pm\n", "hyperv_clocksource_tsc_page\n"] {
            assert!(!lists_stable_counter(sources), "{sources}");
        }
    }

    #[test]
    fn the_counter_is_used_after_an_interval() {
        assert!(!times(&[reading(49, 0)]).1);
        assert_eq!(times(&[reading(50, 0)]), (vec![50_000_000], true));
        let mut clock = Clock::with_counter(Some(reading(0, 0)));
        clock.compare(reading(50, 0));
        let counter = clock.counter.unwrap();
        assert!(counter.valid_ticks.abs_diff(50 * TICKS) < 100);
        assert!(counter.nanos(2600).abs_diff(1000) < 2);
    }

    #[test]
    fn the_time_does_not_jump_when_the_rate_changes() {
        // The ticks of the reading at 50 ms are 10 us ahead, so the rate is too low at first.
        let (times, is_used) = times(&[reading(50, 26_000), reading(100, 0), reading(150, 0)]);
        assert!(is_used);
        for (time, expected) in times.iter().zip([50_000_000, 99_980_000, 149_980_000]) {
            assert!(time.abs_diff(expected) < 100, "{times:?}");
        }
    }

    #[test]
    fn a_counter_that_differs_is_not_used() {
        for ahead in [1, -1, 20, -20, 49, -49, -90] {
            let far = reading(100, ahead * i64::try_from(TICKS).unwrap());
            let (times, is_used) = times(&[reading(50, 0), far, reading(150, 0)]);
            assert!(!is_used, "{ahead}");
            assert_eq!(times, [50_000_000, 100_000_000, 150_000_000]);
        }
    }

    #[test]
    fn an_interrupted_reading_is_not_compared() {
        let mut late = reading(100, 10 * i64::try_from(TICKS).unwrap());
        late.length = 10 * TICKS;
        let (times, is_used) = times(&[reading(50, 0), late, reading(150, 0)]);
        assert!(is_used);
        assert_eq!(times[1].div_ceil(1000), 110_000);
        assert_eq!(times[2].div_ceil(1000), 150_000);
    }
}
