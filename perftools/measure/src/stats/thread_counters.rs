//! Counters of a running test. The thread that runs the test updates them; the
//! [monitor](super::monitor) reads them from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Count;

/// Counters with a single writer, which updates them with plain stores. They cost the measured loop
/// about one nanosecond per poll that returns completions.
///
/// Any thread may read them. Each counter is exact, but a snapshot of several counters may be
/// inconsistent by one message.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounters {
    sent: AtomicU64,
    received: AtomicU64,
    bytes: AtomicU64,
    samples: AtomicU64,
    nanos: AtomicU64,
    max_latency: AtomicU64,
}

/// Values of [`ThreadCounters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Number of messages whose sends have completed.
    pub sent: u64,
    /// Number of messages received.
    pub received: u64,
    /// Number of bytes received.
    pub bytes: u64,
    /// Number of latencies recorded.
    pub samples: u64,
    /// Sum of the recorded latencies in nanoseconds.
    pub nanos: u64,
}

impl std::ops::Add for CounterSnapshot {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            bytes: self.bytes + other.bytes,
            samples: self.samples + other.samples,
            nanos: self.nanos + other.nanos,
        }
    }
}

/// Adds to a counter without a read-modify-write instruction. This is sound for a single writer.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(n),
        Ordering::Relaxed,
    );
}

impl ThreadCounters {
    /// Sets the number of messages sent since the start of the test.
    #[inline]
    pub(crate) fn set_sent(&self, total: u64) {
        self.sent.store(total, Ordering::Relaxed);
    }

    /// Adds messages and bytes that were received.
    #[inline]
    pub(crate) fn add_received(&self, msgs: u64, bytes: u64) {
        add(&self.received, msgs);
        add(&self.bytes, bytes);
    }

    /// Sets the messages and bytes received since the start of the test.
    #[inline]
    pub(crate) fn set_received(&self, total: Count) {
        self.received.store(total.msgs, Ordering::Relaxed);
        self.bytes.store(total.bytes, Ordering::Relaxed);
    }

    /// Records one latency in nanoseconds.
    #[inline]
    pub(crate) fn record_latency(&self, nanos: u64) {
        add(&self.samples, 1);
        add(&self.nanos, nanos);
        if nanos > self.max_latency.load(Ordering::Relaxed) {
            self.max_latency.store(nanos, Ordering::Relaxed);
        }
    }

    /// Returns the current values.
    pub(crate) fn snapshot(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CounterSnapshot {
            sent: read(&self.sent),
            received: read(&self.received),
            bytes: read(&self.bytes),
            samples: read(&self.samples),
            nanos: read(&self.nanos),
        }
    }

    /// Returns the longest latency since the previous call, in nanoseconds.
    pub(crate) fn take_max_latency(&self) -> u64 {
        self.max_latency.swap(0, Ordering::Relaxed)
    }
}

/// Returns the sums of the counters of several threads.
pub(crate) fn snapshot(counters: &[Arc<ThreadCounters>]) -> CounterSnapshot {
    counters
        .iter()
        .fold(CounterSnapshot::default(), |sum, counters| {
            sum + counters.snapshot()
        })
}

/// Returns the longest latency of any thread since the previous call, in nanoseconds.
pub(crate) fn take_max_latency(counters: &[Arc<ThreadCounters>]) -> u64 {
    counters
        .iter()
        .map(|counters| counters.take_max_latency())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_has_all_recorded_values() {
        let counters = ThreadCounters::default();
        counters.set_sent(5);
        counters.set_sent(9);
        counters.add_received(2, 20);
        counters.add_received(1, 10);
        assert_eq!(counters.snapshot().received, 3);
        counters.set_received(Count { msgs: 4, bytes: 40 });
        for nanos in [7, 30, 5] {
            counters.record_latency(nanos);
        }
        assert_eq!(
            counters.snapshot(),
            CounterSnapshot {
                sent: 9,
                received: 4,
                bytes: 40,
                samples: 3,
                nanos: 42
            }
        );
        assert_eq!(
            (counters.take_max_latency(), counters.take_max_latency()),
            (30, 0)
        );
    }

    #[test]
    fn threads_are_summed_and_the_longest_latency_is_kept() {
        let counters: [Arc<ThreadCounters>; 3] = Default::default();
        for (counters, n) in counters.iter().zip([3, 9, 5]) {
            counters.set_sent(n);
            counters.add_received(1, n);
            counters.record_latency(n * 10);
        }
        assert_eq!(
            snapshot(&counters),
            CounterSnapshot {
                sent: 17,
                received: 3,
                bytes: 17,
                samples: 3,
                nanos: 170
            }
        );
        assert_eq!(
            (take_max_latency(&counters), take_max_latency(&counters)),
            (90, 0)
        );
    }
}
