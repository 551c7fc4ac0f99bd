//! Latencies in a histogram of three significant digits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies from 1 ns to an hour.
#[derive(Debug)]
pub struct Latencies {
    nanos: Histogram<u64>,
}

/// One hour: what takes longer counts as an hour.
const LONGEST: u64 = 3_600_000_000_000;

impl Latencies {
    /// An empty histogram. All memory is taken here, none while recording.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts (a test holds it).
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

    /// The figures, or none if nothing was recorded.
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

/// Figures of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Percentiles {
    /// How many were recorded.
    pub samples: u64,
    /// The shortest.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: u64,
    /// 90 % are at most this.
    pub p90: u64,
    /// 99 % are at most this.
    pub p99: u64,
    /// 99.9 % are at most this.
    pub p99_9: u64,
    /// 99.99 % are at most this.
    pub p99_99: u64,
    /// The longest.
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
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
