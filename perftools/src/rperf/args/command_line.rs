//! The options that apply to every test, as clap parses them. The options of the data path are in
//! [`tuning`](super::tuning), those of servers in [`server`](super::server).

use std::net::IpAddr;
use std::time::Duration;

use base::device_id::DeviceList;
use base::error::{Error, Result};
use base::ports;
use base::units::{Size, parse_time};
use clap::Parser;
use measure::spec::modes::{Cm, Wait};

use super::limits::LimitOptions;
use super::server::ServerOptions;
use super::sockets::SocketOptions;
use super::tuning::TuningOptions;
use super::values::{duration, interval, on_off};

/// Minimum number of measurements of `--auto`: one of each of the three goals with the initial
/// settings, and two repeated with both ends waiting for events.
pub const MIN_TRIES: u32 = 5;

// Headings of the help text, with qperf's short spellings.
const DEVICE: &str = "Device and connection (-i, -li, -ri, -cm1, -mt)";
const TEST: &str = "Test (-f, -m, -n, -t)";
const WAITING: &str = "Waiting (-cp, -to, -ws)";
const OUTPUT: &str = "Output, for the whole run (-e, -ub, -uu, -un, -v, -vc, -vvs …)";
const SERVER: &str = "Server (-lp)";

/// Measures RDMA bandwidth and latency between two hosts, or within one.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rperf",
    version,
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    override_usage = "rperf                              run a server\n       rperf [OPTIONS] HOST TEST…         run tests against the server on HOST\n       rperf [OPTIONS] TEST…              run tests with both ends on this host\n       rperf --auto [OPTIONS] [HOST]      find the best settings and the bottleneck\n       rperf compare OLD NEW              compare two outputs of --json\n       rperf report FILE… --output PAGE   write an HTML page with plots"
)]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line.
pub struct Options {
    /// RDMA device and port on both ends, or a list such as mlx5_0,mlx5_1 to measure several
    /// devices at the same time [default: the port that has the address of the control connection,
    /// otherwise the first active port]
    #[arg(long, value_name = "DEV[:PORT],…", help_heading = DEVICE)]
    pub id: Option<DeviceList>,
    /// RDMA devices and ports on this end only
    #[arg(long, value_name = "DEV[:PORT],…", help_heading = DEVICE)]
    pub local_id: Option<DeviceList>,
    /// RDMA devices and ports on the server only; each device of a list is the peer of the local
    /// device at the same position
    #[arg(long, value_name = "DEV[:PORT],…", help_heading = DEVICE)]
    pub remote_id: Option<DeviceList>,
    /// Connect with rdma_cm: on, off, or auto (only if the device requires it, as iWARP does)
    /// [default: auto]
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
    /// Stop after this time, in seconds unless a unit (ms, s, m, h or d) follows, or run until
    /// interrupted: unlimited, if the server has --max-time unlimited [default: 2 s]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = TEST)]
    pub time: Option<Duration>,
    /// Maximum number of messages in flight on each queue pair [default: 1024, at most 16 MiB in
    /// flight, at least 8]
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
    #[arg(long, value_name = "ADDRESS", requires = "multicast", help_heading = TEST)]
    pub multicast_group: Option<IpAddr>,
    /// Number of threads at each end, each with its own CPU (one of --cpu-affinity, if given) and
    /// its own queue pairs [default: 1]
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub threads: Option<u32>,
    /// Use RDMA writes with immediate data, which the receiver counts: on or off [default: on,
    /// except on iWARP]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TEST)]
    pub immediate: Option<bool>,
    /// Reverse the direction of a one-way test, so that the server sends: on or off [default: off]
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
    pub wait: Option<Wait>,
    /// Like --wait, on this end only
    #[arg(long, value_name = "HOW", help_heading = WAITING)]
    pub local_wait: Option<Wait>,
    /// Like --wait, on the server only
    #[arg(long, value_name = "HOW", help_heading = WAITING)]
    pub remote_wait: Option<Wait>,
    /// Fail if the peer does not respond for this time [default: 5 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub timeout: Option<Duration>,
    /// Like --timeout, on this end only
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub local_timeout: Option<Duration>,
    /// Like --timeout, on the server only
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub remote_timeout: Option<Duration>,
    /// Retry the connection to the server for up to this time [default: 5 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub wait_server: Option<Duration>,

    /// Find the best settings (depth, post list, inline, waiting, queue pairs) and the bottleneck
    /// with about 40 tests of 0.3 s each (or of --time)
    #[arg(long, help_heading = TEST)]
    pub auto: bool,
    /// Maximum number of tests that --auto runs, at least 5 [default: 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(MIN_TRIES)..=1000), requires = "auto", help_heading = TEST)]
    pub tries: Option<u32>,

    /// Print one JSON document with all results instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Print one line of JSON per test when the test ends
    #[arg(long, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    pub json_lines: bool,
    /// Report each interval of this length (at least 10 ms), and the dips and stalls of the test;
    /// also in --json and --json-lines
    #[arg(long, value_name = "TIME", value_parser = interval, help_heading = OUTPUT)]
    pub interval: Option<Duration>,
    /// Print a header line and one line of comma-separated values per test
    #[arg(long, conflicts_with = "json", help_heading = OUTPUT)]
    pub csv: bool,
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
    #[arg(long, help_heading = OUTPUT)]
    pub unify_units: bool,
    /// Label figures loc and rem in all tests, instead of send and recv in one-way tests
    #[arg(long, help_heading = OUTPUT)]
    pub unify_nodes: bool,
    /// Print configuration, statistics, times and parameters; a server logs each test
    #[arg(long, help_heading = OUTPUT)]
    pub verbose: bool,
    /// Print the configuration: devices, ports and addresses
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_conf: bool,
    /// Print statistics
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_stat: bool,
    /// Print times and CPU use
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_time: bool,
    /// Print the parameters that were set
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_used: bool,
    /// Print all details that the four options above select
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more: bool,
    /// Print all details of the configuration
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more_conf: bool,
    /// Print all statistics
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more_stat: bool,
    /// Print all times
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more_time: bool,
    /// Print all parameters, including those not set
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more_used: bool,

    /// TCP port of the server; set it on both ends
    #[arg(long, value_name = "PORT", default_value_t = ports::CONTROL, help_heading = SERVER)]
    pub listen_port: u16,
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
    pub server: ServerOptions,
}

impl Options {
    /// Returns the first option in use that only a client accepts.
    pub fn first_client_option(&self) -> Option<&'static str> {
        let uses = [
            (
                self.id.is_some() || self.local_id.is_some() || self.remote_id.is_some(),
                "--id (-i)",
            ),
            (self.use_cm.is_some(), "--use-cm (-cm)"),
            (self.mtu.is_some(), "--mtu (-mt)"),
            (self.msg_size.is_some(), "--msg-size (-m)"),
            (self.messages.is_some(), "--messages (-n)"),
            (self.time.is_some(), "--time (-t)"),
            (self.depth.is_some(), "--depth"),
            (self.qps.is_some(), "--qps"),
            (self.threads.is_some(), "--threads"),
            (self.multicast.is_some(), "--multicast (-g)"),
            (self.immediate.is_some(), "--immediate"),
            (self.flip.is_some(), "--flip (-f)"),
            (self.flood, "--flood"),
            (self.verify, "--verify"),
            (
                self.wait.is_some() || self.local_wait.is_some() || self.remote_wait.is_some(),
                "--wait (-cp)",
            ),
            (self.wait_server.is_some(), "--wait-server (-ws)"),
            (self.json, "--json"),
            (self.json_lines, "--json-lines"),
            (self.csv, "--csv"),
            (self.interval.is_some(), "--interval"),
            (self.keep_going, "--keep-going"),
            (
                self.sockets.any_in_use(),
                "--ip-port (-ip), --parallel, --bidir or --sock-buf-size (-sb)",
            ),
            (
                self.limits.any_in_use(),
                "a limit for results, such as --min-bw,",
            ),
            (self.server.qperf, "--qperf"),
        ];
        uses.into_iter()
            .find(|u| u.0)
            .map(|u| u.1)
            .or_else(|| self.tuning.first_in_use())
    }

    /// Returns `true` if an option names several devices of one end.
    pub(super) fn names_several_devices(&self) -> bool {
        [&self.id, &self.local_id, &self.remote_id]
            .into_iter()
            .flatten()
            .any(|list| list.as_slice().len() > 1)
    }

    /// Checks that no option of a server is in use.
    ///
    /// # Errors
    /// A usage error that names the first such option.
    pub fn reject_server_options(&self) -> Result<()> {
        let Some(option) = self.server.first_server_option() else {
            return Ok(());
        };
        Err(Error::usage(format!(
            "{option} is an option of the server, not of a client"
        ))
        .with_help("pass it to `rperf` without tests, which runs a server"))
    }
}
