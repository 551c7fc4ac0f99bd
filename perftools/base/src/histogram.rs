//! A histogram of latencies with three significant digits.
//!
//! Latencies are counted in the buckets of a [`Histogram`], which computes the statistics at the
//! end. Recording each latency with [`Histogram::record`] would take more instructions, in the
//! middle of the measurement.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A histogram of latencies from 1 ns to 1 h.
#[derive(Debug)]
pub struct Latencies {
    /// Number of latencies in each bucket.
    counts: Vec<u64>,
}

/// One hour, in nanoseconds. Longer latencies are recorded as one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Number of buckets between two powers of two, for three significant digits. Values below twice
/// this number have a bucket each.
const STEPS: u64 = 1024;

/// Returns the index of the bucket of a value.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the largest index is below 65,536"
)]
fn bucket(nanos: u64) -> usize {
    let shift = (nanos | STEPS).ilog2() - STEPS.ilog2();
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// Returns the smallest value of a bucket.
fn smallest(bucket: usize) -> u64 {
    let (bucket, steps) = (bucket as u64, STEPS);
    match bucket / steps {
        0 | 1 => bucket,
        power => (steps + bucket % steps) << (power - 1),
    }
}

impl Latencies {
    /// Creates an empty histogram. This allocates all its memory, so that recording never does.
    pub fn new() -> Self {
        Self {
            counts: vec![0; bucket(LONGEST) + 1],
        }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        match self.counts.get_mut(bucket(nanos)) {
            Some(count) => *count += 1,
            None => self.record(LONGEST),
        }
    }

    /// Returns the histogram that computes statistics.
    ///
    /// # Panics
    /// Never: the constant bounds are valid.
    fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, LONGEST, 3).expect("constant bounds");
        for (bucket, count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            histogram.saturating_record_n(smallest(bucket), *count);
        }
        histogram
    }

    /// Returns the percentiles, or `None` if nothing was recorded.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let h = self.histogram();
        let at = |q| h.value_at_quantile(q);
        (!h.is_empty()).then(|| Percentiles {
            samples: h.len(),
            min: h.min(),
            mean: h.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: h.max(),
        })
    }

    /// Returns the number of latencies in each bucket that has any. The width of a bucket is at
    /// most 10 % of its values.
    pub fn buckets(&self) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        for value in self.histogram().iter_recorded() {
            let from = bucket_start(value.value_iterated_to());
            match buckets.last_mut().filter(|last| last.from == from) {
                Some(last) => last.count += value.count_since_last_iteration(),
                None => buckets.push(Bucket {
                    from,
                    count: value.count_since_last_iteration(),
                }),
            }
        }
        buckets
    }
}

/// Returns the first value of the bucket that contains `nanos`: the value with all digits after the
/// second one set to 0.
fn bucket_start(nanos: u64) -> u64 {
    let mut unit = 1;
    while nanos / unit >= 100 {
        unit *= 10;
    }
    nanos / unit * unit
}

/// Number of latencies in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Bucket {
    /// Shortest latency of the bucket in nanoseconds, a number with at most two digits that are
    /// not
    /// 0. The bucket ends before the next such number.
    pub from: u64,
    /// Number of latencies.
    pub count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Statistics of a latency histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Percentiles {
    /// Number of recorded latencies.
    pub samples: u64,
    /// Minimum.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// Maximum.
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_match_the_recorded_latencies() {
        let mut l = Latencies::new();
        assert_eq!(l.percentiles(), None);
        for n in 1..=1000 {
            l.record(n * 1000);
        }
        l.record(u64::MAX);
        let p = l.percentiles().unwrap();
        assert_eq!(p.samples, 1001);
        assert_eq!(p.min / 10, 100);
        assert!((499_000..=502_000).contains(&p.p50), "{p:?}");
        assert!((989_000..=993_000).contains(&p.p99), "{p:?}");
        assert!(p.max >= LONGEST, "{p:?}");
    }

    proptest::proptest! {
        #[test]
        fn a_latency_is_counted_like_in_a_histogram(bits in 0_u32..42, value: u64) {
            let nanos = (value >> (63 - bits)).min(LONGEST);
            let mut latencies = Latencies::new();
            latencies.record(nanos);
            let mut expected = Histogram::<u64>::new_with_bounds(1, LONGEST, 3).unwrap();
            expected.record(nanos).unwrap();
            proptest::prop_assert_eq!(latencies.histogram(), expected);
        }
    }

    #[test]
    fn buckets_contain_each_latency_once() {
        let mut l = Latencies::new();
        assert_eq!(l.buckets(), []);
        for nanos in [5, 99, 1234, 1299, 1300, 1300] {
            l.record(nanos);
        }
        let buckets: Vec<_> = l.buckets().iter().map(|b| (b.from, b.count)).collect();
        assert_eq!(buckets, [(5, 1), (99, 1), (1200, 2), (1300, 2)]);
    }
}
