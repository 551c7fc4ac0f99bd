//! The options that apply to every test, as clap parses them. The options of the data path are in
//! `tuning`, those of servers in `server`.

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use base::device_id::DeviceList;
use base::ports;
use base::units::{Size, parse_time};
use clap::{CommandFactory, Parser};
use measure::spec::modes::{Cm, Wait};

use super::limits::LimitOptions;
use super::per_end::{End, PerEnd, per_end, value};
use super::server::ServerArgs;
use super::sockets::SocketOptions;
use super::tuning::TuningOptions;
use super::values::{Detail, duration, interval, on_off};

// Headings of the help text.
const DEVICE: &str = "Device and connection";
const TEST: &str = "Test";
const WAITING: &str = "Waiting";
const OUTPUT: &str = "Output, for the whole run";
const SERVER: &str = "Server";

/// Measures RDMA bandwidth and latency between two hosts, or within one.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rperf",
    version,
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    override_usage = "rperf                              run a server\n       rperf [OPTIONS] HOST TEST…         run tests against the server on HOST\n       rperf [OPTIONS] TEST…              run tests with both ends on this host\n       rperf mesh [OPTIONS] HOST,… TEST…  measure all pairs of hosts\n       rperf monitor [OPTIONS] HOST,…     probe the paths to hosts until interrupted\n       rperf --auto [OPTIONS] [HOST]      find the best settings and the bottleneck\n       rperf compare OLD NEW              compare two outputs of --json\n       rperf report FILE… --output PAGE   write an HTML page with plots"
)]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line.
pub struct Options {
    /// RDMA device and port, or several: mlx5_0,mlx5_1; they are measured at the same time, each
    /// with the server's device at the same position of the list [default: the port that has the
    /// address of the control connection, otherwise the first active port]
    #[arg(long, value_name = "DEV[:PORT],…", help_heading = DEVICE)]
    pub id: Vec<PerEnd<DeviceList>>,
    /// Connect with rdma_cm: on, off or auto; auto connects with it only if the device requires it,
    /// as iWARP does [default: auto]
    #[arg(long, value_name = "on|off|auto", help_heading = DEVICE)]
    pub use_cm: Option<Cm>,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096 [default: the smaller active MTU of the two
    /// ports]
    #[arg(long, value_name = "SIZE", help_heading = DEVICE)]
    pub mtu: Option<Size>,

    /// Size of each message in bytes, such as 64K or 1M [default: 1 for latency, 64K for
    /// bandwidth; 32K for UDP and SCTP, 8K for RDS, 2K for UD]
    #[arg(long, value_name = "SIZE", help_heading = TEST)]
    pub msg_size: Option<Size>,
    /// Stop after N messages in each direction; overrides --time
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub messages: Option<u64>,
    /// Stop after this time in seconds, or with a unit, such as 500ms; `unlimited` runs until
    /// interrupted, if the server has --max-time unlimited [default: 2 s]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = TEST)]
    pub time: Option<Duration>,
    /// Maximum number of messages in flight on each queue pair [default: 1024, at most 16 MiB in
    /// flight, at least 2]
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub depth: Option<u32>,
    /// Number of queue pairs of each thread [default: 1]
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub qps: Option<u32>,
    /// Send to a multicast group (ud_bw only); N queue pairs of the server each receive every
    /// message (-g)
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub multicast: Option<u32>,
    /// IP address of the multicast group [default: a random one in 239.255.0.0/16]
    #[arg(long, hide = true, value_name = "ADDRESS", requires = "multicast", help_heading = TEST)]
    pub multicast_group: Option<IpAddr>,
    /// Number of threads at each end; each has its own CPU (one of --cpu-affinity, if given) and
    /// its own queue pairs [default: 1]
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub threads: Option<u32>,
    /// Use immediate data: on or off [default: on in RDMA writes, so that the receiver counts them,
    /// except on iWARP; off in sends]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TEST)]
    pub immediate: Option<bool>,
    /// Reverse the direction of a one-way test; the server then sends: on or off
    /// [default: off]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TEST)]
    pub flip: Option<bool>,
    /// Send without flow control (UC and UD only); lost messages are counted and shown
    #[arg(long, help_heading = TEST)]
    pub flood: bool,
    /// Send a different payload in every message and check each received byte
    #[arg(long, help_heading = TEST)]
    pub verify: bool,

    /// Options that tune a test.
    #[command(flatten)]
    pub tuning: TuningOptions,

    /// Method of waiting for completions: adaptive (poll briefly, then sleep), poll (-cp1) or
    /// events (-cp0, --events) [default: adaptive]
    #[arg(long, value_name = "HOW", help_heading = WAITING)]
    pub wait: Vec<PerEnd<Wait>>,
    /// Fail if the peer does not respond for this time [default: 5 s]
    #[arg(long, value_name = "TIME", value_parser = per_end(parse_time), help_heading = WAITING)]
    pub timeout: Vec<PerEnd<Duration>>,
    /// Retry the connection to the server for up to this time [default: 5 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub wait_server: Option<Duration>,

    /// Find the best settings and the bottleneck; varies depth, post list, inline size, waiting and
    /// queue pairs in about 40 tests of 0.3 s each (or of --time)
    #[arg(long, help_heading = TEST)]
    pub auto: bool,

    /// Print a line of JSON for each test when it ends, instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Report each interval of this length, and dips and stalls; at least 10 ms; with --json as a
    /// line of its own
    #[arg(long, value_name = "TIME", value_parser = interval, help_heading = OUTPUT)]
    pub interval: Option<Duration>,
    /// Continue with the next test if one fails; the exit status is still 1
    #[arg(long, help_heading = OUTPUT)]
    pub keep_going: bool,
    /// Number of significant digits [default: 3]
    #[arg(long, value_name = "DIGITS", value_parser = clap::value_parser!(u8).range(1..=15), help_heading = OUTPUT)]
    pub precision: Option<u8>,
    /// Print bandwidth in bits per second instead of bytes
    #[arg(long, help_heading = OUTPUT)]
    pub bits: bool,
    /// Print numbers in base units without separators, for scripts
    #[arg(long, hide = true, help_heading = OUTPUT)]
    pub unify_units: bool,
    /// Print conf, stat, time and used, or those in WHAT; conf is devices and ports, stat is
    /// statistics, time is CPU use, and used is parameters; more-conf, more-stat, more-time and
    /// more-used print all of them, and more prints everything; a server logs each test (-v, -vc,
    /// -vvs …)
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "some", hide_possible_values = true, value_delimiter = ',', action = clap::ArgAction::Append, help_heading = OUTPUT)]
    pub verbose: Vec<Detail>,

    /// TCP port of the server; set it on both ends
    #[arg(long, value_name = "PORT", default_value_t = ports::CONTROL, help_heading = SERVER)]
    pub port: u16,
    /// Server: listen only on this address. Client: connect from this address, which also selects
    /// the device [default: all addresses]
    #[arg(long, value_name = "ADDRESS", help_heading = SERVER)]
    pub bind: Option<IpAddr>,
    /// Options of tests over sockets.
    #[command(flatten)]
    pub sockets: SocketOptions,
    /// Limits for the results.
    #[command(flatten)]
    pub limits: LimitOptions,
    /// Limits of a server, and how a client identifies itself to it.
    #[command(flatten)]
    pub server: ServerArgs,
}

static COMMAND: LazyLock<clap::Command> = LazyLock::new(Options::command);

impl Options {
    /// Returns the long options.
    pub(super) fn all() -> impl Iterator<Item = &'static clap::Arg> {
        COMMAND.get_arguments()
    }

    /// Returns `true` if an option names several devices of one end.
    pub(super) fn names_several_devices(&self) -> bool {
        End::ALL
            .into_iter()
            .filter_map(|end| value(&self.id, end))
            .any(|list| list.as_slice().len() > 1)
    }
}
