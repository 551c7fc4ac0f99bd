//! Records the latencies of a test.

use std::sync::Arc;

use super::thread_counters::ThreadCounters;
use crate::common::histogram::{Bucket, Latencies, Percentiles};

/// A histogram of latencies that also feeds the counters of its thread, if the test is monitored.
#[derive(Debug, Default)]
pub struct LatencyRecorder {
    latencies: Latencies,
    counters: Option<Arc<ThreadCounters>>,
}

impl LatencyRecorder {
    /// Creates an empty recorder. All memory is allocated here, none while recording.
    pub fn new(counters: Option<Arc<ThreadCounters>>) -> Self {
        Self {
            latencies: Latencies::new(),
            counters,
        }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.latencies.record(nanos);
        if let Some(counters) = &self.counters {
            counters.record_latency(nanos);
        }
    }

    /// Returns the number of latencies in each bucket.
    pub fn buckets(&self) -> Vec<Bucket> {
        self.latencies.buckets()
    }

    /// Returns the percentiles; `None` if nothing was recorded.
    pub fn percentiles(&self) -> Option<Percentiles> {
        self.latencies.percentiles()
    }
}
