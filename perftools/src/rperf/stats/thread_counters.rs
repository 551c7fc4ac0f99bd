//! What a test has moved so far, for who watches it from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts that one thread writes, with plain stores: the loop that is timed pays about a nanosecond
/// for each poll that brought something. Any thread may read them; each by itself is right,
/// together they may be a message apart.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounters {
    sent: AtomicU64,
    received: AtomicU64,
    bytes: AtomicU64,
    samples: AtomicU64,
    nanos: AtomicU64,
    longest: AtomicU64,
}

/// What a lane says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Messages that are known to be sent.
    pub sent: u64,
    /// Messages that arrived.
    pub received: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Latencies that were recorded.
    pub samples: u64,
    /// Their sum.
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

fn add(to: &AtomicU64, what: u64) {
    to.store(
        to.load(Ordering::Relaxed).wrapping_add(what),
        Ordering::Relaxed,
    );
}

impl ThreadCounters {
    /// So many messages were sent, from the start.
    #[inline]
    pub fn sent(&self, total: u64) {
        self.sent.store(total, Ordering::Relaxed);
    }

    /// So many messages more arrived.
    #[inline]
    pub fn received(&self, msgs: u64, bytes: u64) {
        add(&self.received, msgs);
        add(&self.bytes, bytes);
    }

    /// A latency was recorded.
    #[inline]
    pub fn latency(&self, nanos: u64) {
        add(&self.samples, 1);
        add(&self.nanos, nanos);
        if nanos > self.longest.load(Ordering::Relaxed) {
            self.longest.store(nanos, Ordering::Relaxed);
        }
    }

    /// What it says now.
    pub fn counts(&self) -> CounterSnapshot {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CounterSnapshot {
            sent: read(&self.sent),
            received: read(&self.received),
            bytes: read(&self.bytes),
            samples: read(&self.samples),
            nanos: read(&self.nanos),
        }
    }

    /// The longest latency since this was asked last.
    pub fn longest(&self) -> u64 {
        self.longest.swap(0, Ordering::Relaxed)
    }
}

/// What several lanes say together.
pub fn counts(counters: &[Arc<ThreadCounters>]) -> CounterSnapshot {
    counters
        .iter()
        .fold(CounterSnapshot::default(), |sum, counters| {
            sum + counters.counts()
        })
}

/// The longest latency on any of them since this was asked last.
pub fn longest(counters: &[Arc<ThreadCounters>]) -> u64 {
    counters
        .iter()
        .map(|counters| counters.longest())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_what_was_noted() {
        let counters = ThreadCounters::default();
        counters.sent(5);
        counters.sent(9);
        counters.received(2, 20);
        counters.received(1, 10);
        for nanos in [7, 30, 5] {
            counters.latency(nanos);
        }
        assert_eq!(
            counters.counts(),
            CounterSnapshot {
                sent: 9,
                received: 3,
                bytes: 30,
                samples: 3,
                nanos: 42
            }
        );
        assert_eq!((counters.longest(), counters.longest()), (30, 0));
    }

    #[test]
    fn several_lanes_say_their_sum_and_the_longest_of_all() {
        let counters: [Arc<ThreadCounters>; 3] = Default::default();
        for (counters, n) in counters.iter().zip([3, 9, 5]) {
            counters.sent(n);
            counters.received(1, n);
            counters.latency(n * 10);
        }
        assert_eq!(
            counts(&counters),
            CounterSnapshot {
                sent: 17,
                received: 3,
                bytes: 17,
                samples: 3,
                nanos: 170
            }
        );
        assert_eq!((longest(&counters), longest(&counters)), (90, 0));
    }
}
