//! Options that tune a test: sweeps, warm-up, the rate limit, how requests are posted, the fields
//! of the packets, the memory of the buffers and the CPUs of the threads.

use std::time::Duration;

use base::cpus::CpuList;
use base::units::{Rate, parse_time};
use clap::Args;
use measure::spec::gpu::GpuId;
use measure::spec::path::{PathSettings, StaticRate};
use measure::spec::payload_file::PayloadFile;
use measure::spec::tuning::{Pages, Tuning};

use super::per_end::{End, PerEnd, both, only, per_end, value};
use super::values::{InlineSize, in_range, inline, on_off, pages, payload_file};

const SWEEP: &str = "Sweeps";
const TUNING: &str = "Tuning";

/// Options that tune a test.
#[derive(Clone, Debug, Default, Args)]
pub struct TuningOptions {
    /// Run each test with each of these message sizes: `2..8M` (doubling) or `64,4K,1M`
    #[arg(long, value_name = "SIZES", help_heading = SWEEP)]
    pub sizes: Option<String>,
    /// Run each test with a range of values of an option, such as `msg-size:1:64K:*2` or
    /// `depth:1:128:+16`; may be repeated [default step: *2]
    #[arg(long = "loop", value_name = "OPTION:FIRST:LAST[:STEP]", help_heading = SWEEP)]
    pub loops: Vec<String>,

    /// Repeat the whole list of tests N times; `rperf compare` then sees the spread [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = SWEEP)]
    pub repeat: Option<u16>,

    /// Run the test for this time before the measurement starts [default: 0 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = TUNING)]
    pub warm_up: Option<Duration>,
    /// Limit the payload of each sender, such as 10Gb/s or 500MB/s [default: no limit]
    #[arg(long, value_name = "RATE", help_heading = TUNING)]
    pub rate_limit: Option<Rate>,
    /// With --rate-limit, send N messages at a time instead of spreading them evenly [default: 1]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub burst: Option<u32>,
    /// Maximum number of messages posted with one doorbell [default: 16]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pub post_list: Option<u32>,
    /// Repost receive requests in batches of N with one doorbell [default: at most --depth / 4]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    pub recv_list: Option<u32>,
    /// Send to N targets of the peer from each DC initiator, the next one for each list of requests
    /// (--post-list) [default: 1]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    pub dc_targets: Option<u32>,
    /// Use one shared receive queue for all queue pairs of a thread
    #[arg(long, help_heading = TUNING)]
    pub srq: bool,
    /// Read each received byte, as an application would: on or off [default: off]
    #[arg(long, hide = true, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TUNING)]
    pub access_received: Option<bool>,
    /// Fill all messages with the repeated bytes of this file; at most 32 KiB. With --verify, the
    /// receiver compares them
    #[arg(long, value_name = "FILE", value_parser = payload_file, help_heading = TUNING)]
    pub payload_file: Option<PayloadFile>,
    /// Send messages of up to this many bytes inline; auto is 236 bytes in latency tests, as
    /// ib_send_lat, and 64 in other tests, if the device supports it [default: auto]
    #[arg(long, value_name = "SIZE|auto", value_parser = inline, help_heading = TUNING)]
    pub inline: Option<InlineSize>,
    /// Request a completion for every Nth send; on iWARP, every RDMA read has one [default: a
    /// quarter of the depth]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    pub cq_moderation: Option<u32>,
    /// Maximum number of RDMA reads and atomics in flight on each queue pair [default: the maximum
    /// of both devices, at most 16]
    #[arg(long, value_name = "N", value_parser = per_end(in_range(1_u8..=255)), help_heading = TUNING)]
    pub rd_atomic: Vec<PerEnd<u8>>,
    /// Index of the GID in the port's GID table [default: the GID of the IP address
    /// in use]
    #[arg(long, value_name = "N", value_parser = per_end(in_range(0_u8..=255)), help_heading = TUNING)]
    pub gid_index: Vec<PerEnd<u8>>,
    /// Index of the partition key in the port's P_Key table [default: 0]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    pub pkey_index: Option<u16>,
    /// InfiniBand service level [default: 0]
    #[arg(long, hide = true, value_name = "0-15", value_parser = per_end(in_range(0_u8..=15)), help_heading = TUNING)]
    pub service_level: Vec<PerEnd<u8>>,
    /// Static rate limit of the packets in Gbit/s, such as 10 or 4xQDR (InfiniBand only) [default:
    /// no limit]
    #[arg(long, hide = true, value_name = "RATE", help_heading = TUNING)]
    pub static_rate: Vec<PerEnd<StaticRate>>,
    /// Traffic class of the packets: DSCP and ECN bits on RoCE v2; with rdma_cm the type of
    /// service [default: 0]
    #[arg(long, value_name = "0-255", help_heading = TUNING)]
    pub traffic_class: Option<u8>,
    /// Flow label of the packets, which some devices use for the UDP source port on RoCE v2 and
    /// switches for ECMP [default: 0]
    #[arg(long, value_name = "0-1048575", value_parser = clap::value_parser!(u32).range(0..=0xf_ffff), help_heading = TUNING)]
    pub flow_label: Option<u32>,
    /// Acknowledgement timeout of the queue pairs: 4.096 µs × 2^N, or 0 to wait forever [default:
    /// 14 (67 ms); with rdma_cm it depends on the path]
    #[arg(long, value_name = "0-31", value_parser = clap::value_parser!(u8).range(0..=31), help_heading = TUNING)]
    pub qp_timeout: Option<u8>,
    /// Number of retries of a queue pair without an acknowledgement before the test fails
    /// [default: 6]
    #[arg(long, value_name = "0-7", value_parser = clap::value_parser!(u8).range(0..=7), help_heading = TUNING)]
    pub retry_count: Option<u8>,
    /// Completion vector of the completion queues, which selects an interrupt of the device
    /// [default: 0]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    pub cq_vector: Option<u32>,
    /// Let the device's writes to memory become visible in any order before their completion
    /// (PCIe relaxed ordering), as perftest does: on or off [default: on]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TUNING)]
    pub relaxed_ordering: Option<bool>,
    /// Record each latency, up to 1,048,576 of them, in --json
    #[arg(long, help_heading = TUNING)]
    pub samples: bool,
    /// Allocate buffers from huge pages that the administrator has reserved: 2M or 1G
    #[arg(long, value_name = "2M|1G", value_parser = pages, help_heading = TUNING)]
    pub huge_pages: Option<Pages>,
    /// Register buffers for on-demand paging (ODP) instead of pinning them
    #[arg(long, help_heading = TUNING)]
    pub on_demand: bool,
    /// Send from and receive into memory of a GPU, such as cuda:0; needs a GPU driver and an RDMA
    /// device that support dma-buf [default: host memory]
    #[arg(long, value_name = "GPU", help_heading = TUNING)]
    pub gpu: Vec<PerEnd<GpuId>>,
    /// Run on these CPUs: `3`, `0-3,8`, `node1` (all of a NUMA node) or `any`
    /// [default: any]
    #[arg(long, value_name = "CPUS", help_heading = TUNING)]
    pub cpu_affinity: Vec<PerEnd<CpuList>>,
}

impl TuningOptions {
    /// Returns the tuning that these options select, with defaults for options not given.
    pub fn tuning(&self) -> Tuning {
        let default = Tuning::default();
        Tuning {
            warm_up: self.warm_up.unwrap_or_default(),
            rate_limit: self.rate_limit.map(|rate| rate.0),
            post_list: self.post_list.unwrap_or(default.post_list),
            inline: self.inline.and_then(|inline| inline.0),
            signal_every: self.cq_moderation,
            rd_atomic: both(&self.rd_atomic).copied(),
            pkey_index: self.pkey_index.unwrap_or(0),
            service_level: both(&self.service_level).copied().unwrap_or(0),
            traffic_class: self.traffic_class.unwrap_or(0),
            pages: self.huge_pages.unwrap_or_default(),
            on_demand: self.on_demand,
            relaxed_ordering: self.relaxed_ordering.unwrap_or(default.relaxed_ordering),
            flow_label: self.flow_label.unwrap_or(0),
            qp_timeout: self.qp_timeout,
            retry_count: self.retry_count,
            cq_vector: self.cq_vector.unwrap_or(0),
            burst: self.burst,
            samples: self.samples,
            srq: self.srq,
            recv_list: self.recv_list,
            dc_targets: self.dc_targets,
            access_received: self.access_received.unwrap_or(false),
        }
    }

    /// Returns the settings of one end's packets and requests.
    pub fn path(&self, end: End) -> PathSettings {
        PathSettings {
            service_level: only(&self.service_level, end).copied(),
            rd_atomic: only(&self.rd_atomic, end).copied(),
            static_rate: value(&self.static_rate, end).copied(),
        }
    }

    /// Returns `true` if each test runs with several values of an option.
    pub fn is_sweep(&self) -> bool {
        self.sizes.is_some() || !self.loops.is_empty()
    }
}
