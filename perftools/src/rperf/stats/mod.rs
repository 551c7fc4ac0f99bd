//! Measured values: latencies ([`latency`]), CPU time ([`cpu`]), port counters and the figures
//! derived from them ([`summary`]). While a test runs, [`monitor`] samples the counters of its
//! threads. The engines fill these types; [`report`](crate::rperf::report) prints them.

pub mod cpu;
pub mod interval;
pub mod jitter;
pub mod latency;
pub mod monitor;
pub mod port_counters;
mod sampler;
pub mod summary;
pub mod tcp;
pub mod thread_counters;

use serde::{Deserialize, Serialize};

use cpu::CpuUse;
use port_counters::CounterChanges;

/// Messages and bytes of one direction, counted by completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
            msgs: self.msgs + other.msgs,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Measurements of one thread of one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Returns the measured time in seconds.
    #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}
