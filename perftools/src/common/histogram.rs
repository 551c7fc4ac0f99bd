//! A histogram of latencies with three significant digits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A histogram of latencies from 1 ns to 1 h.
#[derive(Debug)]
pub struct Latencies {
    nanos: Histogram<u64>,
}

/// One hour, in nanoseconds. Longer latencies are recorded as one hour.
const LONGEST: u64 = 3_600_000_000_000;

impl Latencies {
    /// Creates an empty histogram. This allocates all its memory, so that recording never does.
    ///
    /// # Panics
    /// Never: the constant bounds are valid.
    pub fn new() -> Self {
        Self {
            nanos: Histogram::new_with_bounds(1, LONGEST, 3).expect("constant bounds"),
        }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.nanos.saturating_record(nanos);
    }

    /// Returns the percentiles, or `None` if nothing was recorded.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let h = &self.nanos;
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
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Statistics of a latency histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
}
