//! The options of perftest and their equivalents.

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
const OTHER_MEMORY: Meaning = Omitted("memory is that of the host, or of a GPU with --gpu");
const DCI_STREAMS: Meaning = Omitted("an initiator has no streams");
const REORDER: Meaning = Omitted("the order of packets is a choice of the driver");
const TPH: Meaning = Omitted("rperf sets no hints for PCIe transactions");
const OFFLOAD: Meaning = Omitted("rperf measures no signatures and no encryption");
const CUDA_MEMORY: Meaning = Omitted("--gpu uses memory of cuMemAlloc, by a dma-buf");
const RAW: Meaning = Omitted("rperf does not measure raw Ethernet");
const OTHER_GPU: Meaning = Omitted("rperf supports GPUs of CUDA only");

/// The options of perftest, in the order of its help.
pub(super) const OPTIONS: &[OptionRow] = &[
    row('a', "all", false, Meaning::AllSizes),
    row('A', "atomic_type", true, Meaning::AtomicType),
    row('b', "bidirectional", false, Meaning::Bidirectional),
    row('c', "connection", true, Meaning::Connection),
    row('C', "report-cycles", false, Omitted("times have units")),
    row('d', "ib-dev", true, Meaning::Device),
    row('D', "duration", true, Value("time")),
    row('e', "events", false, Words("--wait events")),
    row('X', "vector", true, Value("cq-vector")),
    row('f', "margin", true, Value("warm-up")),
    row('F', "CPU-freq", false, NOT_NEEDED),
    row('g', "mcg", false, Meaning::Multicast),
    row('H', "report-histogram", false, Words("--json")),
    row('i', "ib-port", true, Meaning::DevicePort),
    row('I', "inline_size", true, Value("inline")),
    row('l', "post_list", true, Value("post-list")),
    long("recv_post_list", true, Value("recv-list")),
    row(
        'L',
        "hop_limit",
        true,
        Omitted("the packets of a test are not limited in hops"),
    ),
    row('m', "mtu", true, Value("mtu")),
    row(
        'M',
        "MGID",
        true,
        Omitted("use --multicast-group with an IP address"),
    ),
    row('n', "iters", true, Value("messages")),
    row('N', "noPeak", false, NOT_NEEDED),
    row('o', "outs", true, Value("rd-atomic")),
    row(
        'O',
        "dualport",
        false,
        Omitted("run one rperf for each port"),
    ),
    row('p', "port", true, Value("port")),
    row('q', "qp", true, Value("qps")),
    row('Q', "cq-mod", true, Value("cq-moderation")),
    row('r', "rx-depth", true, Omitted("receives follow --depth")),
    row('R', "rdma_cm", false, Words("--use-cm on")),
    row('s', "size", true, Value("msg-size")),
    row('S', "sl", true, Value("service-level")),
    row('t', "tx-depth", true, Value("depth")),
    row('T', "tos", true, Value("traffic-class")),
    row('u', "qp-timeout", true, Value("qp-timeout")),
    row('U', "report-unsorted", false, Words("--samples --json")),
    row('w', "limit_bw", true, Meaning::LimitBandwidth),
    row(
        'W',
        "report-counters",
        true,
        Omitted("all counters of the port are read, and shown with -vvs"),
    ),
    row('x', "gid-index", true, Value("gid-index")),
    row(
        'y',
        "limit_msgrate",
        true,
        Omitted("use --min-bw with a bandwidth"),
    ),
    row('z', "comm_rdma_cm", false, NOT_NEEDED),
    long("out_json", false, Words("--json")),
    long("out_json_file", true, Omitted("use --json > FILE")),
    long("cpu_util", false, Words("--verbose=time")),
    long("dlid", true, Omitted("the server sends its LID")),
    long("dont_xchg_versions", false, NOT_NEEDED),
    long("force-link", true, NOT_NEEDED),
    long("use-srq", false, Words("--srq")),
    long("ipv6", false, NOT_NEEDED),
    long("ipv6-addr", false, NOT_NEEDED),
    long("bind_source_ip", true, Value("bind")),
    long(
        "latency_gap",
        true,
        Omitted("the next message is sent when the reply has arrived"),
    ),
    long("mmap", true, OTHER_MEMORY),
    long("mr_per_qp", false, Omitted("a thread has one registration")),
    long("odp", false, Words("--on-demand")),
    long("output", true, Omitted("use --json")),
    long(
        "payload_file_path",
        true,
        Omitted("use --payload-file with a file of the bytes themselves"),
    ),
    long("use_old_post_send", false, NOT_NEEDED),
    long("perform_warm_up", false, Words("--warm-up 100ms")),
    long("pkey_index", true, Value("pkey-index")),
    long("report-both", false, NOT_NEEDED),
    long("report_gbits", false, Meaning::Gigabits),
    long("report-per-port", false, NOT_NEEDED),
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
    long("use_cuda_dmabuf", false, NOT_NEEDED),
    long("use_hugepages", false, Words("--huge-pages 2M")),
    long(
        "use-null-mr",
        false,
        Omitted("the device discards the data, so the test would not transfer it"),
    ),
    long(
        "wait_destroy",
        true,
        Omitted("queue pairs are destroyed when both ends are done"),
    ),
    long(
        "disable_pcie_relaxed",
        false,
        Words("--relaxed-ordering off"),
    ),
    long("burst_size", true, Value("burst")),
    long(
        "typical_pkt_size",
        true,
        Omitted("the sender paces messages, not the device"),
    ),
    long("rate_limit", true, Meaning::RateLimit),
    long("rate_units", true, Meaning::RateUnit),
    long("rate_limit_type", true, NOT_NEEDED),
    long("write_with_imm", false, Meaning::WriteWithImmediate),
    long("report-histogrm", false, Words("--json")),
    long("data_validation", false, Words("--verify")),
    long(
        "data_validation_debug",
        false,
        Omitted("the error of --verify names the byte"),
    ),
    long("pin_cores", true, Value("cpu-affinity")),
    long("numa_node", true, Omitted("use --cpu-affinity nodeN")),
    long("disable_numa", false, NOT_NEEDED),
    long("no_lock", false, NOT_NEEDED),
    long("disable_dynamic_polling", false, NOT_NEEDED),
    long("cqe_poll", true, Omitted("a poll takes all entries")),
    long(
        "congest_type",
        true,
        Omitted("a setting of one driver (hns)"),
    ),
    long(
        "connectionless",
        false,
        Omitted("the two ends always agree on a test"),
    ),
    long("log_dci_streams", true, DCI_STREAMS),
    long("log_active_dci_streams", true, DCI_STREAMS),
    long("send_with_imm", false, Words("--immediate on")),
    long(
        "unsolicited_write",
        false,
        Omitted("each write with immediate data has a receive"),
    ),
    long("use_ooo", false, REORDER),
    long("no_enhanced_reorder", false, REORDER),
    long("tph_mem", true, TPH),
    long("cpu_id", true, TPH),
    long("ph", true, TPH),
    long("sig_offload", false, OFFLOAD),
    long("aes_xts", false, OFFLOAD),
    long("encrypt_on_tx", false, OFFLOAD),
    long("sig_before", false, OFFLOAD),
    long("aes_block_size", true, OFFLOAD),
    long("kek_path", true, OFFLOAD),
    long("credentials_path", true, OFFLOAD),
    long("data_enc_keys_number", true, OFFLOAD),
    long("data_enc_key_app_path", true, OFFLOAD),
    long("mmap-offset", true, OTHER_MEMORY),
    long("use_ib_dm_dmabuf", true, OTHER_MEMORY),
    long("use_data_direct", false, CUDA_MEMORY),
    long("cuda_mem_type", true, CUDA_MEMORY),
    long("use_cuda_pcie_mapping", false, CUDA_MEMORY),
    long(
        "gpu_touch",
        true,
        Omitted("only the RDMA device accesses the memory"),
    ),
    long("use_cuda_bus_id", true, Omitted("use --gpu cuda:N")),
    long("use_rocm", true, OTHER_GPU),
    long("use_rocm_dmabuf", false, OTHER_GPU),
    long("use_musa", true, OTHER_GPU),
    long("use_musa_bus_id", true, OTHER_GPU),
    long("use_musa_dmabuf", false, OTHER_GPU),
    long("use_musa_pcie_mapping", false, OTHER_GPU),
    long("use_neuron", true, OTHER_GPU),
    long("use_neuron_dmabuf", false, OTHER_GPU),
    long("use_hl", true, OTHER_GPU),
    long("use_mlu", true, OTHER_GPU),
    long("use_mlu_dmabuf", false, OTHER_GPU),
    long("use_opencl", true, OTHER_GPU),
    long("opencl_platform_id", true, OTHER_GPU),
    row('B', "source_mac", true, RAW),
    row('E', "dest_mac", true, RAW),
    row('J', "dest_ip", true, RAW),
    row('j', "source_ip", true, RAW),
    row('K', "dest_port", true, RAW),
    row('k', "source_port", true, RAW),
    row('Y', "ethertype", true, RAW),
    row('Z', "server", false, RAW),
    row('P', "client", false, RAW),
    row('v', "mac_fwd", false, RAW),
    row('G', "use_rss", false, RAW),
    long("remote_mac", true, RAW),
    long("local_mac", true, RAW),
    long("remote_ip", true, RAW),
    long("local_ip", true, RAW),
    long("remote_port", true, RAW),
    long("local_port", true, RAW),
    long("tcp", false, RAW),
    long("raw_ipv6", false, RAW),
    long("raw_mcast", false, RAW),
    long("promiscuous", false, RAW),
    long("sniffer", false, RAW),
    long("flows", true, RAW),
    long("flows_burst", true, RAW),
    long("reply_every", true, RAW),
    long("vlan_en", false, RAW),
    long("vlan_pcp", true, RAW),
];

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
        return OPTIONS.iter().find(has_letter);
    };
    let long = long.replace('_', "-");
    let names = |row: &OptionRow| row.long.replace('_', "-");
    let mut rows = OPTIONS.iter().filter(|row| names(row).starts_with(&long));
    match (OPTIONS.iter().find(|row| names(row) == long), rows.next()) {
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
