//! Options that tune a test: how it posts and waits, what its packets carry, where its memory and
//! threads are.

use std::time::Duration;

use clap::Args;

use super::values::{Inline, inline, on_off, pages};
use crate::common::cpus::CpuList;
use crate::common::units::{Size, parse_time};
use crate::rperf::spec::path::{PathSettings, StaticRate};
use crate::rperf::spec::tuning::{Pages, Tuning};

const SWEEP: &str = "Sweeps (-oo)";
const TUNING: &str = "Tuning (-ar, -ca, -nr, -sl, -sp, -sr)";

/// Options that tune a test.
#[derive(Clone, Debug, Default, Args)]
pub struct TuningOptions {
    /// Run each test with each of these message sizes: `2..8M` (doubling) or `64,4K,1M`
    #[arg(long, value_name = "SIZES", help_heading = SWEEP)]
    pub sizes: Option<String>,
    /// Run each test with each value of an option: `msg-size:1:64K:*2`, `depth:1:128:+16` [default
    /// step: *2]
    #[arg(long = "loop", value_name = "OPTION:FIRST:LAST[:STEP]", help_heading = SWEEP)]
    pub loops: Vec<String>,

    /// Run each test so many times, all of them in turn: for `rperf compare`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = SWEEP)]
    pub repeat: Option<u16>,

    /// Run for this time before anything is counted
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = TUNING)]
    pub warm_up: Option<Duration>,
    /// Send no faster than this many bytes a second
    #[arg(long, value_name = "SIZE", help_heading = TUNING)]
    pub rate_limit: Option<Size>,
    /// Messages that one doorbell posts at most [default: 16]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub post_list: Option<u32>,
    /// Receives that one doorbell posts again together, once so many are used [default: as they
    /// come, at most 64]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub recv_list: Option<u32>,
    /// The queue pairs of each thread receive from one shared receive queue
    #[arg(long, help_heading = TUNING)]
    pub srq: bool,
    /// Read each byte once it has arrived, as a program would: on or off [default: off]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TUNING)]
    pub access_received: Option<bool>,
    /// Send up to this many bytes inline: a number, or auto (64, or what the device has)
    #[arg(long, value_name = "SIZE|auto", value_parser = inline, help_heading = TUNING)]
    pub inline: Option<Inline>,
    /// Every so many sends ask for a completion [default: a quarter of the depth]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub cq_moderation: Option<u32>,
    /// RDMA reads and atomics in flight [default: what both devices have, at most 16]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub rd_atomic: Option<u8>,
    /// The same on this end only
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub local_rd_atomic: Option<u8>,
    /// The same on the server only
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub remote_rd_atomic: Option<u8>,
    /// Place of the GID in the port's table, on both ends [default: by the address]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub gid_index: Option<u8>,
    /// The same on this end only
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub local_gid_index: Option<u8>,
    /// The same on the server only
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub remote_gid_index: Option<u8>,
    /// Place of the partition key in the ports' tables [default: 0]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub pkey_index: Option<u16>,
    /// Service level
    #[arg(long, value_name = "0-15", value_parser = clap::value_parser!(u8).range(0..=15), help_heading = TUNING)]
    pub service_level: Option<u8>,
    /// The same on this end only
    #[arg(long, value_name = "0-15", value_parser = clap::value_parser!(u8).range(0..=15), help_heading = TUNING)]
    pub local_service_level: Option<u8>,
    /// The same on the server only
    #[arg(long, value_name = "0-15", value_parser = clap::value_parser!(u8).range(0..=15), help_heading = TUNING)]
    pub remote_service_level: Option<u8>,
    /// InfiniBand: hold packets to this rate in Gbit/s, such as 10 or 4xQDR
    #[arg(long, value_name = "RATE", help_heading = TUNING)]
    pub static_rate: Option<StaticRate>,
    /// The same on this end only
    #[arg(long, value_name = "RATE", help_heading = TUNING)]
    pub local_static_rate: Option<StaticRate>,
    /// The same on the server only
    #[arg(long, value_name = "RATE", help_heading = TUNING)]
    pub remote_static_rate: Option<StaticRate>,
    /// InfiniBand: the LID with these low bits, where a port has several (LMC)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=127), help_heading = TUNING)]
    pub src_path_bits: Option<u8>,
    /// The same on this end only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=127), help_heading = TUNING)]
    pub local_src_path_bits: Option<u8>,
    /// The same on the server only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=127), help_heading = TUNING)]
    pub remote_src_path_bits: Option<u8>,
    /// Traffic class: DSCP and ECN bits of RoCE v2 packets
    #[arg(long, value_name = "0-255", help_heading = TUNING)]
    pub traffic_class: Option<u8>,
    /// Buffers in huge pages, which the administrator has set aside: 2M or 1G
    #[arg(long, value_name = "2M|1G", value_parser = pages, help_heading = TUNING)]
    pub huge_pages: Option<Pages>,
    /// Buffers that are not pinned but brought in on demand (ODP)
    #[arg(long, help_heading = TUNING)]
    pub on_demand: bool,
    /// Run on these processors, on both ends: `3`, `0-3,8`, `node1` (those of a NUMA node), any
    #[arg(long, value_name = "CPUS", help_heading = TUNING)]
    pub cpu_affinity: Option<CpuList>,
    /// The same on this end only
    #[arg(long, value_name = "CPUS", help_heading = TUNING)]
    pub local_cpu_affinity: Option<CpuList>,
    /// The same on the server only
    #[arg(long, value_name = "CPUS", help_heading = TUNING)]
    pub remote_cpu_affinity: Option<CpuList>,
}

/// Which end an option is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichEnd {
    /// This one, the client.
    Local,
    /// The server.
    Remote,
}

impl TuningOptions {
    /// What they come to, with defaults for the rest.
    pub fn tuning(&self) -> Tuning {
        let default = Tuning::default();
        Tuning {
            warm_up: self.warm_up.unwrap_or_default(),
            rate_limit: self.rate_limit.map(|s| s.0),
            post_list: self.post_list.unwrap_or(default.post_list),
            inline: self.inline.and_then(|inline| inline.0),
            signal_every: self.cq_moderation,
            rd_atomic: self.rd_atomic,
            pkey_index: self.pkey_index.unwrap_or(0),
            service_level: self.service_level.unwrap_or(0),
            traffic_class: self.traffic_class.unwrap_or(0),
            pages: self.huge_pages.unwrap_or_default(),
            on_demand: self.on_demand,
            srq: self.srq,
            recv_list: self.recv_list,
            access_received: self.access_received.unwrap_or(false),
        }
    }

    /// What holds for one end's packets and requests only.
    pub fn path(&self, end: WhichEnd) -> PathSettings {
        let (service_level, rd_atomic, static_rate, src_path_bits) = match end {
            WhichEnd::Local => (
                self.local_service_level,
                self.local_rd_atomic,
                self.local_static_rate,
                self.local_src_path_bits,
            ),
            WhichEnd::Remote => (
                self.remote_service_level,
                self.remote_rd_atomic,
                self.remote_static_rate,
                self.remote_src_path_bits,
            ),
        };
        PathSettings {
            service_level,
            rd_atomic,
            static_rate: static_rate.or(self.static_rate),
            src_path_bits: src_path_bits.or(self.src_path_bits),
        }
    }

    /// Whether each test runs with several values.
    pub fn is_sweep(&self) -> bool {
        self.sizes.is_some() || !self.loops.is_empty()
    }

    /// The first option in use; all of them are a client's.
    pub fn in_use(&self) -> Option<&'static str> {
        let set = self.tuning() != Tuning::default()
            || self.path(WhichEnd::Local) != PathSettings::default()
            || self.path(WhichEnd::Remote) != PathSettings::default()
            || self
                .gid_index
                .or(self.local_gid_index)
                .or(self.remote_gid_index)
                .is_some()
            || self.cpu_affinity.is_some()
            || self.local_cpu_affinity.is_some()
            || self.remote_cpu_affinity.is_some();
        let set = set || self.repeat.is_some();
        match (self.sizes.is_some(), !self.loops.is_empty(), set) {
            (true, ..) => Some("--sizes"),
            (_, true, _) => Some("--loop (-oo)"),
            (.., true) => Some("an option that tunes a test"),
            _ => None,
        }
    }
}
