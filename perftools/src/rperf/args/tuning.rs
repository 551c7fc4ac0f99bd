//! Options that tune a test: sweeps, warm-up, the rate limit, how requests are posted, the fields
//! of the packets, the memory of the buffers and the CPUs of the threads.

use std::time::Duration;

use base::cpus::CpuList;
use base::units::{Rate, parse_time};
use clap::Args;
use measure::spec::Side;
use measure::spec::gpu::GpuId;
use measure::spec::path::StaticRate;
use measure::spec::payload_file::PayloadFile;
use measure::spec::tuning::Pages;

use super::option::OtherCommand::{Mesh, Tune};
use super::option::{Scope, each_end, each_own, entry, on, options, set};
use super::per_end::{PerEnd, both, per_end};
use super::sweep::Quantity;
use super::test_class::{
    BANDWIDTH, DATA, DC, FETCHES, HEADERS, INLINE, LATENCY, MODERATED, OWN_RECEIVES, PAYLOAD, RDMA,
    RDMA_BANDWIDTH, RECEIVES, RELIABLE,
};
use super::values::{InlineSize, in_range, inline, on_off, pages, payload_file};

const SWEEP: &str = "Sweeps";
const TUNING: &str = "Tuning";

options! {
/// Options that tune a test.
#[derive(Clone, Debug, Default, Args)]
pub struct TuningOptions {
    /// Run each test with each of these message sizes: `2..8M` (doubling) or `64,4K,1M`
    #[arg(long, value_name = "SIZES", help_heading = SWEEP)]
    sizes: Option<String> =
        on(DATA).common().not_in(&[Tune, Mesh]).sample(&["72"]),
    /// Run each test with a range of values of an option, such as `msg-size:1:64K:*2` or
    /// `depth:1:128:+16`; may be repeated [default step: *2]
    #[arg(long = "loop", value_name = "OPTION:FIRST:LAST[:STEP]", help_heading = SWEEP)]
    loops: Vec<String> =
        on(DATA).names(&["-oo"]).not_in(&[Tune, Mesh]).sample(&["m:72:72"]),

    /// Repeat the whole list of tests N times; `rperf compare` then sees the spread [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = SWEEP)]
    repeat: Option<u16> =
        entry(Scope::Run).not_in(&[Tune, Mesh]),

    /// Run the test for this time before the measurement starts [default: 0 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = TUNING)]
    warm_up: Option<Duration> =
        on(RDMA).sweep(Quantity::Time).sample(&["1"])
            .sets(|o, spec| set(&mut spec.tuning.warm_up, o.tuning.warm_up)),
    /// Limit the payload of each sender, such as 10Gb/s or 500MB/s [default: no limit]
    #[arg(long, value_name = "RATE", help_heading = TUNING)]
    rate_limit: Option<Rate> =
        on(BANDWIDTH).sweep(Quantity::Rate).sample(&["1Gb/s"])
            .sets(|o, spec| spec.tuning.rate_limit = o.tuning.rate_limit.map(|rate| rate.0)),
    /// With --rate-limit, send N messages at a time instead of spreading them evenly [default: 1]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    burst: Option<u32> =
        on(BANDWIDTH).sweep(Quantity::Number).sample(&["3", "--rate-limit=1Gb/s"])
            .sets(|o, spec| spec.tuning.burst = o.tuning.burst),
    /// Maximum number of messages posted with one doorbell [default: 16]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    post_list: Option<u32> =
        on(RDMA_BANDWIDTH).sweep(Quantity::Number).varied_by_tune().sample(&["3"])
            .sets(|o, spec| set(&mut spec.tuning.post_list, o.tuning.post_list)),
    /// Repost receive requests in batches of N with one doorbell [default: at most --depth / 4]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    recv_list: Option<u32> =
        on(RECEIVES).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| spec.tuning.recv_list = o.tuning.recv_list),
    /// Send to N targets of the peer from each DC initiator, the next one for each list of requests
    /// (--post-list) [default: 1]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    dc_targets: Option<u32> =
        on(DC).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| spec.tuning.dc_targets = o.tuning.dc_targets),
    /// Use one shared receive queue for all queue pairs of a thread
    #[arg(long, help_heading = TUNING)]
    srq: bool =
        on(OWN_RECEIVES).sample(&[""]).sets(|o, spec| spec.tuning.srq = o.tuning.srq),
    /// Read each received byte, as an application would: on or off [default: off]
    #[arg(long, hide = true, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TUNING)]
    access_received: Option<bool> =
        on(DATA).names(&["-ar", "-Ar", "--access-recv"])
            .shorthands(&[("-ar1", "on"), ("-aro", "on")]).sample(&["on"])
            .sets(|o, spec| set(&mut spec.tuning.access_received, o.tuning.access_received)),
    /// Fill all messages with the repeated bytes of this file; at most 32 KiB. With --verify, the
    /// receiver compares them
    #[arg(long, value_name = "FILE", value_parser = payload_file, help_heading = TUNING)]
    payload_file: Option<PayloadFile> =
        on(PAYLOAD).not_in(&[Mesh]).sample(&["Cargo.toml"])
            .sets(|o, spec| spec.payload.clone_from(&o.tuning.payload_file)),
    /// Send messages of up to this many bytes inline; auto is 236 bytes in latency tests, as
    /// ib_send_lat, and 64 in other tests, if the device supports it [default: auto]
    #[arg(long, value_name = "SIZE|auto", value_parser = inline, help_heading = TUNING)]
    inline: Option<InlineSize> =
        on(INLINE).sweep(Quantity::Number).varied_by_tune().sample(&["3"])
            .sets(|o, spec| spec.tuning.inline = o.tuning.inline.and_then(|size| size.0)),
    /// Request a completion for every Nth send; on iWARP, every RDMA read has one [default: a
    /// quarter of the depth]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    cq_moderation: Option<u32> =
        on(MODERATED).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| spec.tuning.signal_every = o.tuning.cq_moderation),
    /// Maximum number of RDMA reads and atomics in flight on each queue pair [default: the maximum
    /// of both devices, at most 16]
    #[arg(long, value_name = "N", value_parser = per_end(in_range(1_u8..=255)), help_heading = TUNING)]
    rd_atomic: Vec<PerEnd<u8>> =
        on(FETCHES).names(&["-nr"]).former("-R").sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| {
                spec.tuning.rd_atomic = both(&o.tuning.rd_atomic).copied();
                each_own(&o.tuning.rd_atomic, spec, |side, n| side.path.rd_atomic = Some(*n));
            }),
    /// Index of the GID in the port's GID table [default: the GID of the IP address
    /// in use]
    #[arg(long, value_name = "N", value_parser = per_end(in_range(0_u8..=255)), help_heading = TUNING)]
    gid_index: Vec<PerEnd<u8>> =
        on(RDMA).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| {
                each_end(&o.tuning.gid_index, spec, |side, n| side.gid_index = Some(*n));
            }),
    /// Index of the partition key in the port's P_Key table [default: 0]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    pkey_index: Option<u16> =
        on(RDMA).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| set(&mut spec.tuning.pkey_index, o.tuning.pkey_index)),
    /// InfiniBand service level [default: 0]
    #[arg(long, hide = true, value_name = "0-15", value_parser = per_end(in_range(0_u8..=15)), help_heading = TUNING)]
    service_level: Vec<PerEnd<u8>> =
        on(HEADERS).names(&["-sl"]).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| {
                set(&mut spec.tuning.service_level, both(&o.tuning.service_level).copied());
                let own = |side: &mut Side, n: &u8| side.path.service_level = Some(*n);
                each_own(&o.tuning.service_level, spec, own);
            }),
    /// Static rate limit of the packets in Gbit/s, such as 10 or 4xQDR (InfiniBand only) [default:
    /// no limit]
    #[arg(long, hide = true, value_name = "RATE", help_heading = TUNING)]
    static_rate: Vec<PerEnd<StaticRate>> =
        on(HEADERS).names(&["-sr", "--rate"]).former("-r").sample(&["10"])
            .sets(|o, spec| {
                let set = |side: &mut Side, rate: &StaticRate| side.path.static_rate = Some(*rate);
                each_end(&o.tuning.static_rate, spec, set);
            }),
    /// Traffic class of the packets: DSCP and ECN bits on RoCE v2; with rdma_cm the type of
    /// service [default: 0]
    #[arg(long, value_name = "0-255", help_heading = TUNING)]
    traffic_class: Option<u8> =
        on(HEADERS).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| set(&mut spec.tuning.traffic_class, o.tuning.traffic_class)),
    /// Flow label of the packets, which some devices use for the UDP source port on RoCE v2 and
    /// switches for ECMP [default: 0]
    #[arg(long, value_name = "0-1048575", value_parser = clap::value_parser!(u32).range(0..=0xf_ffff), help_heading = TUNING)]
    flow_label: Option<u32> =
        on(HEADERS).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| set(&mut spec.tuning.flow_label, o.tuning.flow_label)),
    /// Acknowledgement timeout of the queue pairs: 4.096 µs × 2^N, or 0 to wait forever [default:
    /// 14 (67 ms); with rdma_cm it depends on the path]
    #[arg(long, value_name = "0-31", value_parser = clap::value_parser!(u8).range(0..=31), help_heading = TUNING)]
    qp_timeout: Option<u8> =
        on(RELIABLE).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| spec.tuning.qp_timeout = o.tuning.qp_timeout),
    /// Number of retries of a queue pair without an acknowledgement before the test fails
    /// [default: 6]
    #[arg(long, value_name = "0-7", value_parser = clap::value_parser!(u8).range(0..=7), help_heading = TUNING)]
    retry_count: Option<u8> =
        on(RELIABLE).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| spec.tuning.retry_count = o.tuning.retry_count),
    /// Completion vector of the completion queues, which selects an interrupt of the device
    /// [default: 0]
    #[arg(long, hide = true, value_name = "N", help_heading = TUNING)]
    cq_vector: Option<u32> =
        on(RDMA).sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| set(&mut spec.tuning.cq_vector, o.tuning.cq_vector)),
    /// Let the device's writes to memory become visible in any order before their completion
    /// (PCIe relaxed ordering), as perftest does: on or off [default: on]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TUNING)]
    relaxed_ordering: Option<bool> =
        on(RDMA).sample(&["off"])
            .sets(|o, spec| set(&mut spec.tuning.relaxed_ordering, o.tuning.relaxed_ordering)),
    /// Record each latency, up to 1,048,576 of them, in --json
    #[arg(long, help_heading = TUNING)]
    samples: bool =
        on(LATENCY).not_in(&[Mesh]).sample(&[""])
            .sets(|o, spec| spec.tuning.samples = o.tuning.samples),
    /// Allocate buffers from huge pages that the administrator has reserved: 2M or 1G
    #[arg(long, value_name = "2M|1G", value_parser = pages, help_heading = TUNING)]
    huge_pages: Option<Pages> =
        on(RDMA).sample(&["2M"]).sets(|o, spec| set(&mut spec.tuning.pages, o.tuning.huge_pages)),
    /// Register buffers for on-demand paging (ODP) instead of pinning them
    #[arg(long, help_heading = TUNING)]
    on_demand: bool =
        on(RDMA).sample(&[""]).sets(|o, spec| spec.tuning.on_demand = o.tuning.on_demand),
    /// Send from and receive into memory of a GPU, such as cuda:0; needs a GPU driver and an RDMA
    /// device that support dma-buf [default: host memory]
    #[arg(long, value_name = "GPU", help_heading = TUNING)]
    gpu: Vec<PerEnd<GpuId>> =
        on(RDMA).sample(&["cuda:3"])
            .sets(|o, spec| each_end(&o.tuning.gpu, spec, |side, gpu| side.gpu = Some(*gpu))),
    /// Run on these CPUs: `3`, `0-3,8`, `node1` (all of a NUMA node) or `any`
    /// [default: any]
    #[arg(long, value_name = "CPUS", help_heading = TUNING)]
    cpu_affinity: Vec<PerEnd<CpuList>> =
        on(DATA).names(&["-ca", "--affinity"]).former("-a").sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| {
                let set = |side: &mut Side, cpus: &CpuList| side.cpus = Some(cpus.clone());
                each_end(&o.tuning.cpu_affinity, spec, set);
            }),
}
}

impl TuningOptions {
    /// Returns `true` if each test runs with several values of an option.
    pub fn is_sweep(&self) -> bool {
        self.sizes.is_some() || !self.loops.is_empty()
    }
}
