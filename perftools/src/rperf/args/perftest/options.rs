//! The options of perftest and their equivalents.

/// Equivalent of an option of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// An option of rperf with the same value.
    Value(&'static str),
    /// These words, instead of an option without a value.
    Words(&'static str),
    /// The name of the device, which `--id` combines with the port.
    Device,
    /// The port of the device.
    DevicePort,
    /// The transport service, which is part of the name of the test.
    Connection,
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
pub(super) struct Row {
    short: Option<char>,
    long: &'static str,
    pub(super) takes_value: bool,
    pub(super) meaning: Meaning,
}

const fn row(short: char, long: &'static str, takes_value: bool, meaning: Meaning) -> Row {
    Row {
        short: Some(short),
        long,
        takes_value,
        meaning,
    }
}

const fn long(long: &'static str, takes_value: bool, meaning: Meaning) -> Row {
    Row {
        short: None,
        long,
        takes_value,
        meaning,
    }
}

pub(super) const NOT_NEEDED: Meaning = Omitted("not needed");

/// The options of perftest, in the order of its help.
pub(super) const OPTIONS: &[Row] = &[
    row('a', "all", false, Words("--sizes 2..8M")),
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
    row('g', "mcg", false, Words("--multicast 1")),
    row('H', "report-histogram", false, Words("--json")),
    row('i', "ib-port", true, Meaning::DevicePort),
    row('I', "inline_size", true, Value("inline")),
    row('l', "post_list", true, Value("post-list")),
    long("recv_post_list", true, Value("recv-list")),
    row('L', "hop_limit", true, Omitted("not supported")),
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
    row('p', "port", true, Value("listen-port")),
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
        Omitted("all counters of the port are read, and shown with -vs"),
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
    long("cpu_util", false, Words("--verbose-time")),
    long("dlid", true, Omitted("not supported")),
    long("dont_xchg_versions", false, NOT_NEEDED),
    long("force-link", true, NOT_NEEDED),
    long("use-srq", false, Words("--srq")),
    long("ipv6", false, NOT_NEEDED),
    long("ipv6-addr", false, NOT_NEEDED),
    long("bind_source_ip", true, Value("bind")),
    long("latency_gap", true, Omitted("not supported")),
    long("mmap", true, Omitted("not supported")),
    long("mr_per_qp", false, Omitted("not supported")),
    long("odp", false, Words("--on-demand")),
    long("output", true, Omitted("use --csv or --json")),
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
    long("use-null-mr", false, Omitted("not supported")),
    long("wait_destroy", true, Omitted("not supported")),
    long(
        "disable_pcie_relaxed",
        false,
        Words("--relaxed-ordering off"),
    ),
    long("burst_size", true, Value("burst")),
    long("typical_pkt_size", true, Omitted("not supported")),
    long("rate_limit", true, Meaning::RateLimit),
    long("rate_units", true, Meaning::RateUnit),
    long("rate_limit_type", true, NOT_NEEDED),
    long("write_with_imm", false, Meaning::WriteWithImmediate),
];

impl Row {
    /// Returns a phrase for the equivalent in rperf.
    pub(super) fn equivalent(&self) -> String {
        match self.meaning {
            Value(option) => format!("--{option}"),
            Words(words) => words.to_owned(),
            Meaning::Device => "--id DEVICE".to_owned(),
            Meaning::DevicePort => "--id DEVICE:PORT".to_owned(),
            Meaning::Connection => "part of the test: rc_bw, uc_bw, ud_bw, xrc_bw".to_owned(),
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

/// Returns the option with this name, such as `-s` or `--size`.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    OPTIONS.iter().find(|row| match name.strip_prefix("--") {
        Some(long) => row.long.replace('_', "-") == long.replace('_', "-"),
        None => row.short.is_some_and(|short| name == format!("-{short}")),
    })
}

/// Returns a hint for an option of perftest that rperf does not have.
pub(in crate::rperf::args) fn option_hint(name: &str) -> Option<String> {
    let row = find(name)?;
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
