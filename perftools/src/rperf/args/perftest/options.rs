//! The options of perftest and their equivalents.

use std::sync::LazyLock;

/// Equivalent of an option of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// An option of rperf with the same value.
    Value(&'static str),
    /// These words, instead of an option without a value.
    Words(&'static str),
    /// All sizes: up to 8 MiB, or for datagrams up to the MTU.
    AllSizes,
    /// The name of the device, which `--id` combines with the port.
    Device,
    /// The port of the device.
    DevicePort,
    /// The transport service, which is part of the name of the test.
    Connection,
    /// A multicast group, which perftest uses over UD only.
    Multicast,
    /// Both directions, which is part of the name of the test.
    Bidirectional,
    /// The kind of atomic operation, which is part of the name of the test.
    AtomicType,
    /// Writes with immediate data.
    WriteWithImmediate,
    /// Minimum bandwidth, in Gb/s or MiB/s.
    LimitBandwidth,
    /// Bandwidth in bits.
    Gigabits,
    /// Rate limit, in the unit of the next row.
    RateLimit,
    /// Unit of the rate limit.
    RateUnit,
    /// The number of a GPU of CUDA.
    Gpu,
    /// No equivalent, for this reason.
    Omitted(&'static str),
}

use Meaning::{Omitted, Value, Words};

/// An option of perftest.
pub(super) struct OptionRow {
    short: Option<char>,
    long: &'static str,
    pub(super) takes_value: bool,
    pub(super) meaning: Meaning,
}

const fn row(short: char, long: &'static str, takes_value: bool, meaning: Meaning) -> OptionRow {
    OptionRow {
        short: Some(short),
        long,
        takes_value,
        meaning,
    }
}

const fn long(long: &'static str, takes_value: bool, meaning: Meaning) -> OptionRow {
    OptionRow {
        short: None,
        long,
        takes_value,
        meaning,
    }
}

pub(super) const NOT_NEEDED: Meaning = Omitted("not needed");
const RAW: Meaning = Omitted("rperf does not measure raw Ethernet");

/// The options of perftest with an equivalent, in the order of its help.
const OPTIONS: &[OptionRow] = &[
    row('a', "all", false, Meaning::AllSizes),
    row('A', "atomic_type", true, Meaning::AtomicType),
    row('b', "bidirectional", false, Meaning::Bidirectional),
    row('c', "connection", true, Meaning::Connection),
    row('d', "ib-dev", true, Meaning::Device),
    row('D', "duration", true, Value("time")),
    row('e', "events", false, Words("--wait events")),
    row('X', "vector", true, Value("cq-vector")),
    row('f', "margin", true, Value("warm-up")),
    row('g', "mcg", false, Meaning::Multicast),
    row('H', "report-histogram", false, Words("--json")),
    row('i', "ib-port", true, Meaning::DevicePort),
    row('I', "inline_size", true, Value("inline")),
    row('l', "post_list", true, Value("post-list")),
    long("recv_post_list", true, Value("recv-list")),
    row('m', "mtu", true, Value("mtu")),
    row('n', "iters", true, Value("messages")),
    row('o', "outs", true, Value("rd-atomic")),
    row('p', "port", true, Value("port")),
    row('q', "qp", true, Value("qps")),
    row('Q', "cq-mod", true, Value("cq-moderation")),
    row('R', "rdma_cm", false, Words("--use-cm on")),
    row('s', "size", true, Value("msg-size")),
    row('S', "sl", true, Value("service-level")),
    row('t', "tx-depth", true, Value("depth")),
    row('T', "tos", true, Value("traffic-class")),
    row('u', "qp-timeout", true, Value("qp-timeout")),
    row('U', "report-unsorted", false, Words("--samples --json")),
    row('w', "limit_bw", true, Meaning::LimitBandwidth),
    row('x', "gid-index", true, Value("gid-index")),
    long("out_json", false, Words("--json")),
    long("cpu_util", false, Words("--verbose=time")),
    long("use-srq", false, Words("--srq")),
    long("bind_source_ip", true, Value("bind")),
    long("odp", false, Words("--on-demand")),
    long("perform_warm_up", false, Words("--warm-up 100ms")),
    long("pkey_index", true, Value("pkey-index")),
    long("report_gbits", false, Meaning::Gigabits),
    long("reversed", false, Words("--flip on")),
    long(
        "run_infinitely",
        false,
        Words("--time unlimited --interval 5s"),
    ),
    long("retry_count", true, Value("retry-count")),
    long("tclass", true, Value("traffic-class")),
    long("flow_label", true, Value("flow-label")),
    long("use_cuda", true, Meaning::Gpu),
    long("use_hugepages", false, Words("--huge-pages 2M")),
    long(
        "disable_pcie_relaxed",
        false,
        Words("--relaxed-ordering off"),
    ),
    long("burst_size", true, Value("burst")),
    long("rate_limit", true, Meaning::RateLimit),
    long("rate_units", true, Meaning::RateUnit),
    long("write_with_imm", false, Meaning::WriteWithImmediate),
    long("report-histogrm", false, Words("--json")),
    long("data_validation", false, Words("--verify")),
    long("pin_cores", true, Value("cpu-affinity")),
    long("send_with_imm", false, Words("--immediate on")),
];

/// The options of perftest without an equivalent: the reason, then the names of each, with `=`
/// if it takes a value.
const OMITTED: &str = "\
times have units: C,report-cycles
not needed: F,CPU-freq N,noPeak z,comm_rdma_cm dont_xchg_versions force-link= ipv6 ipv6-addr
not needed: use_old_post_send report-both report-per-port use_cuda_dmabuf rate_limit_type=
not needed: disable_numa no_lock disable_dynamic_polling
the packets of a test are not limited in hops: L,hop_limit=
use --multicast-group with an IP address: M,MGID=
run one rperf for each port: O,dualport
receives follow --depth: r,rx-depth=
all counters of the port are read, and shown with -vvs: W,report-counters=
use --min-bw with a bandwidth: y,limit_msgrate=
use --json > FILE: out_json_file=
the server sends its LID: dlid=
the next message is sent when the reply has arrived: latency_gap=
memory is that of the host, or of a GPU with --gpu: mmap= mmap-offset= use_ib_dm_dmabuf=
a thread has one registration: mr_per_qp
use --json: output=
use --payload-file with a file of the bytes themselves: payload_file_path=
the device discards the data, so the test would not transfer it: use-null-mr
queue pairs are destroyed when both ends are done: wait_destroy=
the sender paces messages, not the device: typical_pkt_size=
the error of --verify names the byte: data_validation_debug
use --cpu-affinity nodeN: numa_node=
a poll takes all entries: cqe_poll=
a setting of one driver (hns): congest_type=
the two ends always agree on a test: connectionless
an initiator has no streams: log_dci_streams= log_active_dci_streams=
each write with immediate data has a receive: unsolicited_write
the order of packets is a choice of the driver: use_ooo no_enhanced_reorder
rperf sets no hints for PCIe transactions: tph_mem= cpu_id= ph=
rperf measures no signatures and no encryption: sig_offload aes_xts encrypt_on_tx sig_before
rperf measures no signatures and no encryption: aes_block_size= kek_path= credentials_path=
rperf measures no signatures and no encryption: data_enc_keys_number= data_enc_key_app_path=
--gpu uses memory of cuMemAlloc, by a dma-buf: use_data_direct cuda_mem_type=
--gpu uses memory of cuMemAlloc, by a dma-buf: use_cuda_pcie_mapping
only the RDMA device accesses the memory: gpu_touch=
use --gpu cuda:N: use_cuda_bus_id=
rperf supports GPUs of CUDA only: use_rocm= use_rocm_dmabuf use_musa= use_musa_bus_id=
rperf supports GPUs of CUDA only: use_musa_dmabuf use_musa_pcie_mapping use_neuron=
rperf supports GPUs of CUDA only: use_neuron_dmabuf use_hl= use_mlu= use_mlu_dmabuf use_opencl=
rperf supports GPUs of CUDA only: opencl_platform_id=
rperf does not measure raw Ethernet: B,source_mac= E,dest_mac= J,dest_ip= j,source_ip=
rperf does not measure raw Ethernet: K,dest_port= k,source_port= Y,ethertype= Z,server P,client
rperf does not measure raw Ethernet: v,mac_fwd G,use_rss remote_mac= local_mac= remote_ip=
rperf does not measure raw Ethernet: local_ip= remote_port= local_port= tcp raw_ipv6 raw_mcast
rperf does not measure raw Ethernet: promiscuous sniffer flows= flows_burst= reply_every= vlan_en
rperf does not measure raw Ethernet: vlan_pcp=";

/// Returns the options of perftest.
pub(super) fn all() -> impl Iterator<Item = &'static OptionRow> {
    static OMITTED_ROWS: LazyLock<Vec<OptionRow>> = LazyLock::new(|| {
        let groups = OMITTED.lines().filter_map(|line| line.split_once(": "));
        let rows = groups.flat_map(|(reason, names)| {
            names.split(' ').map(move |names| {
                let (short, name) = names.split_once(',').unwrap_or(("", names));
                OptionRow {
                    short: short.chars().next(),
                    long: name.trim_end_matches('='),
                    takes_value: name.ends_with('='),
                    meaning: Omitted(reason),
                }
            })
        });
        rows.collect()
    });
    OPTIONS.iter().chain(OMITTED_ROWS.iter())
}

impl OptionRow {
    /// Returns a phrase for the equivalent in rperf.
    pub(super) fn equivalent(&self) -> String {
        match self.meaning {
            Value(option) => format!("--{option}"),
            Words(words) => words.to_owned(),
            Meaning::AllSizes => "--sizes 2..8M (UD: up to the MTU)".to_owned(),
            Meaning::Device => "--id DEVICE".to_owned(),
            Meaning::DevicePort => "--id DEVICE:PORT".to_owned(),
            Meaning::Connection => {
                "part of the test: rc_bw, uc_bw, ud_bw, xrc_bw, srd_bw, dc_bw".to_owned()
            }
            Meaning::Multicast => "--multicast 1".to_owned(),
            Meaning::Bidirectional => "part of the test, such as rc_bi_bw".to_owned(),
            Meaning::AtomicType => {
                "part of the test: rc_fetch_add_mr, rc_compare_swap_mr".to_owned()
            }
            Meaning::WriteWithImmediate => "--immediate on".to_owned(),
            Meaning::LimitBandwidth => "--min-bw, with a unit".to_owned(),
            Meaning::Gigabits => "--bits".to_owned(),
            Meaning::RateLimit | Meaning::RateUnit => "--rate-limit, with a unit".to_owned(),
            Meaning::Gpu => "--gpu cuda:N".to_owned(),
            Omitted(reason) => format!("– ({reason})"),
        }
    }

    /// Returns the names, such as `-s, --size`.
    pub(super) fn names(&self) -> String {
        match self.short {
            Some(short) => format!("-{short}, --{}", self.long),
            None => format!("    --{}", self.long),
        }
    }
}

/// Returns the option with this name, such as `-s` or `--size`. Like perftest, it also accepts the
/// beginning of a long name, if it is the beginning of one only.
pub(super) fn find(name: &str) -> Option<&'static OptionRow> {
    let Some(long) = name.strip_prefix("--") else {
        let has_letter =
            |row: &&OptionRow| row.short.is_some_and(|short| name == format!("-{short}"));
        return all().find(has_letter);
    };
    let long = long.replace('_', "-");
    let names = |row: &OptionRow| row.long.replace('_', "-");
    let mut rows = all().filter(|row| names(row).starts_with(&long));
    match (all().find(|row| names(row) == long), rows.next()) {
        (Some(row), _) => Some(row),
        (None, first) if !long.is_empty() && rows.next().is_none() => first,
        _ => None,
    }
}

/// Returns a hint for an option of perftest that rperf does not have.
pub(in crate::rperf::args) fn option_hint(name: &str) -> Option<String> {
    let row = find(name).filter(|row| row.meaning != RAW)?;
    Some(match row.meaning {
        Omitted(reason) => format!(
            "perftest's {} has no equivalent: {reason}",
            row.names().trim()
        ),
        _ => format!(
            "perftest's {} is {} in rperf",
            row.names().trim(),
            row.equivalent()
        ),
    })
}

/// Returns a hint for a letter that stands for another option here than in perftest.
pub(in crate::rperf::args) fn collision(letter: &str, own: &str) -> Option<String> {
    let row = find(letter).filter(|_| !letter.starts_with("--"))?;
    match row.meaning {
        Value(option) if option != own => Some(format!(
            "{letter} is --{own} in rperf, and perftest's {} is --{option}",
            row.names()
        )),
        _ => None,
    }
}
