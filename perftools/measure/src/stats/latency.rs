//! Records the latencies of a test.

use std::sync::Arc;

use base::histogram::{Bucket, Latencies, Percentiles};

use super::thread_counters::ThreadCounters;

/// Maximum number of latencies that are kept.
pub(crate) const MAX_SAMPLES: usize = 1 << 20;

/// A histogram of latencies that also feeds the counters of its thread, if the test is monitored.
#[derive(Debug, Default)]
pub struct LatencyRecorder {
    latencies: Latencies,
    /// Each latency, up to the capacity.
    samples: Vec<u64>,
    counters: Option<Arc<ThreadCounters>>,
}

impl LatencyRecorder {
    /// Creates an empty recorder. All memory is allocated here, none while recording.
    pub(crate) fn new(counters: Option<Arc<ThreadCounters>>) -> Self {
        Self {
            latencies: Latencies::new(),
            samples: Vec::new(),
            counters,
        }
    }

    /// Keeps each latency as well, up to [`MAX_SAMPLES`] of them.
    #[must_use]
    pub(crate) fn with_samples(mut self, keep: bool) -> Self {
        if keep {
            self.samples = Vec::with_capacity(MAX_SAMPLES);
        }
        self
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.latencies.record(nanos);
        if self.samples.len() < self.samples.capacity() {
            self.samples.push(nanos);
        }
        if let Some(counters) = &self.counters {
            counters.record_latency(nanos);
        }
    }

    /// Returns the number of latencies in each bucket.
    pub fn buckets(&self) -> Vec<Bucket> {
        self.latencies.buckets()
    }

    /// Returns the latencies that were kept, in the order of measurement.
    pub fn into_samples(self) -> Vec<u64> {
        self.samples
    }

    /// Returns the percentiles; `None` if nothing was recorded.
    pub fn percentiles(&self) -> Option<Percentiles> {
        self.latencies.percentiles()
    }
}
