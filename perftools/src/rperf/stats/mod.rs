//! Measured values: latencies ([`latency`]), CPU time ([`cpu`]), port counters and the figures
//! derived from them ([`summary`]). While a test runs, [`monitor`] samples the counters of its
//! threads. The engines fill these types; [`report`](crate::rperf::report) prints them.

pub mod cpu;
pub mod interval;
pub mod latency;
pub mod monitor;
pub mod port_counters;
mod sampler;
pub mod summary;
pub mod thread_counters;

use serde::{Deserialize, Serialize};

use cpu::CpuUse;

/// Messages and bytes of one direction, counted by completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Count {
    /// Messages.
    pub msgs: u64,
    /// Bytes.
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

/// What one thread of an end counted, where there are several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThreadStats {
    /// The processor that it was bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// What its sends' completions say.
    pub sent: Count,
    /// What its receives' completions say.
    pub received: Count,
    /// Nanoseconds that its clock ran.
    pub nanos: u64,
    /// Seconds of processor time that it used meanwhile.
    pub cpu: f64,
}

impl Eq for ThreadStats {}

/// What one end counted while its clock ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SideStats {
    /// What its sends' completions say.
    pub sent: Count,
    /// What its receives' completions say.
    pub received: Count,
    /// Messages that the peer sent and that never arrived.
    #[serde(default)]
    pub lost: u64,
    /// Nanoseconds that its clock ran.
    pub nanos: u64,
    /// Most completions that one poll returned.
    pub max_cqe: u32,
    /// Nanoseconds of the longest stall, in which nothing completed; 0 where there was none, or
    /// nobody looked (sockets, a peer that is a qperf).
    #[serde(default)]
    pub stalled: u64,
    /// Processor time used meanwhile.
    pub cpu: CpuUse,
    /// Bytes that were checked by `--verify`, all of them right.
    pub verified: u64,
    /// Each of its threads, where there are several; the figures above are their sums, the time
    /// that of the longest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadStats>,
}

impl SideStats {
    /// Seconds that its clock ran.
    #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}
