//! Measured values: latencies ([`latency`]), CPU time ([`cpu`]), port counters and the figures
//! derived from them ([`summary`]). While a test runs, [`monitor`] samples the counters of its
//! threads. The engines fill these types; the crate `report` prints them.

pub mod cpu;
pub mod interval;
pub mod jitter;
pub mod latency;
pub mod monitor;
pub mod port_counters;
mod sampler;
pub mod summary;
pub mod thread_counters;

use serde::{Deserialize, Serialize};

use cpu::CpuUse;
use port_counters::CounterChanges;

/// Messages and bytes of one direction, counted by completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Count {
    /// Number of messages.
    pub msgs: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl std::ops::Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            msgs: self.msgs.saturating_add(other.msgs),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Measurements of one thread of one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct ThreadStats {
    /// Processor that the thread was bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// Completed sends.
    pub sent: Count,
    /// Completed receives.
    pub received: Count,
    /// Measured time of the thread in nanoseconds.
    pub nanos: u64,
    /// Processor time that the thread used in the measured time, in seconds.
    pub cpu: f64,
}

impl Eq for ThreadStats {}

/// Measurements of one end. The measured time excludes the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct SideStats {
    /// Completed sends.
    pub sent: Count,
    /// Completed receives.
    pub received: Count,
    /// Messages that the peer sent and that never arrived.
    #[serde(default)]
    pub lost: u64,
    /// Messages of the peer that arrived again. They are counted only here.
    #[serde(default)]
    pub duplicates: u64,
    /// Messages that arrived from another sender than the peer. They are counted only here.
    #[serde(default)]
    pub foreign: u64,
    /// TCP segments that this end retransmitted during the test, over all connections of the test.
    /// Only in tests over TCP, and over devices whose connections are those of the kernel's TCP
    /// (Soft-iWARP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<u64>,
    /// Jitter of the datagrams that arrived, in nanoseconds: the smoothed difference between the
    /// transit times of consecutive datagrams (RFC 3550). Only in `udp_bw` without `--verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// Increases of the counters of the port during the test. Null if they are unknown (a qperf
    /// peer, or an older version of rperf).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_counters: Option<CounterChanges>,
    /// Measured time in nanoseconds.
    pub nanos: u64,
    /// Largest number of completions that one poll returned. Absent if it is unknown (sockets).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cqe: Option<u32>,
    /// Longest stall, a time without completions, in nanoseconds; 0 if there was none. Null if it
    /// is unknown (sockets, a qperf peer).
    #[serde(default)]
    pub stalled: Option<u64>,
    /// Processor time used in the measured time.
    pub cpu: CpuUse,
    /// Number of bytes that `--verify` checked. All of them were correct.
    pub verified: u64,
    /// Measurements of each thread, if the end has several. The counts above are the sums over all
    /// threads; `nanos` is the longest time of any thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadStats>,
}

impl Eq for SideStats {}

impl SideStats {
    /// Sums the measurements of parts that ran at the same time: threads, or sessions of several
    /// devices. The counters of the ports are omitted.
    ///
    /// The processor times of the process and of the host are those of the part that ran longest.
    /// The times of waiting for a processor and of stalls are the maxima, because one part can
    /// spoil the result. If the retransmissions of one part are unknown, so is the sum.
    pub fn sum(parts: &[Self]) -> Self {
        let Some((first, others)) = parts.split_first() else {
            return Self::default();
        };
        let mut sum = Self {
            port_counters: None,
            ..first.clone()
        };
        let max = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        for part in others {
            sum.sent = sum.sent + part.sent;
            sum.received = sum.received + part.received;
            sum.lost = sum.lost.saturating_add(part.lost);
            sum.duplicates = sum.duplicates.saturating_add(part.duplicates);
            sum.foreign = sum.foreign.saturating_add(part.foreign);
            sum.verified = sum.verified.saturating_add(part.verified);
            sum.max_cqe = sum.max_cqe.max(part.max_cqe);
            sum.stalled = sum.stalled.max(part.stalled);
            let retransmitted = sum.retransmitted.zip(part.retransmitted);
            sum.retransmitted = retransmitted.map(|(a, b)| a.saturating_add(b));
            sum.jitter = max(sum.jitter, part.jitter);
            let thread = sum.cpu.thread.zip(part.cpu.thread).map(|(a, b)| a + b);
            let waited = max(sum.cpu.waited, part.cpu.waited);
            if part.nanos > sum.nanos {
                (sum.nanos, sum.cpu) = (part.nanos, part.cpu);
            }
            (sum.cpu.thread, sum.cpu.waited) = (thread, waited);
            sum.threads.extend(part.threads.iter().cloned());
        }
        sum
    }

    /// Returns the measured time in seconds.
    #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}
