//! What is measured: latencies ([`histogram`]), processor time ([`cpu`]), and the figures made of them
//! ([`summary`]); and, while a test runs, what a thread beside it sees ([`watch`]).

pub mod counters;
pub mod cpu;
pub mod histogram;
pub mod interval;
pub mod lane;
mod sampler;
pub mod summary;
pub mod watch;

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

/// What one end counted while its clock ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Processor time used meanwhile.
    pub cpu: CpuUse,
    /// Bytes that were checked by `--verify`, all of them right.
    pub verified: u64,
}
