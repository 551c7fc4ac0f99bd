//! The long options: what clap reads, and their help.

use std::net::IpAddr;
use std::time::Duration;

use clap::Parser;

use super::server::ServerOptions;
use super::sockets::SocketOptions;
use super::tuning::TuningOptions;
use super::values::{interval, on_off};
use crate::common::device_id::DeviceId;
use crate::common::error::{Error, Result};
use crate::common::protocol::DEFAULT_PORT;
use crate::common::units::{Size, parse_time};
use crate::rperf::spec::modes::{Cm, Wait};

/// The fewest measurements of `--auto`: each goal with the settings at the start, and two of them
/// once more, asleep.
pub const FEWEST_TRIES: u32 = 5;

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
    override_usage = "rperf                              be the server\n       rperf [OPTIONS] HOST TEST…         run tests against the server on HOST\n       rperf [OPTIONS] TEST…              run tests with both ends on this machine\n       rperf --auto [OPTIONS] [HOST]      find the best settings, and what limits\n       rperf compare OLD NEW              hold two records of --json against each other\n       rperf report FILE… --output PAGE   make a page with plots of them"
)]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line.
pub struct Options {
    /// RDMA device and port on both ends [default: the one that owns the address of the control
    /// connection, else the first active]
    #[arg(long, value_name = "DEV[:PORT]", help_heading = DEVICE)]
    pub id: Option<DeviceId>,
    /// RDMA device and port on this end
    #[arg(long, value_name = "DEV[:PORT]", help_heading = DEVICE)]
    pub local_id: Option<DeviceId>,
    /// RDMA device and port on the server
    #[arg(long, value_name = "DEV[:PORT]", help_heading = DEVICE)]
    pub remote_id: Option<DeviceId>,
    /// Connect by rdma_cm: on, off, or auto (where the device can connect no other way)
    #[arg(long, value_name = "on|off|auto", help_heading = DEVICE)]
    pub use_cm: Option<Cm>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the smaller of the two ports' active MTUs]
    #[arg(long, value_name = "SIZE", help_heading = DEVICE)]
    pub mtu: Option<Size>,

    /// Bytes a message, such as 64K or 1M [default: 64K for bandwidth, 1 for latency]
    #[arg(long, value_name = "SIZE", help_heading = TEST)]
    pub msg_size: Option<Size>,
    /// End after N messages in each direction instead of after a time (--time is ignored then)
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub messages: Option<u64>,
    /// End after this time; seconds unless ms, s, m, h or d follows [default: 2]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = TEST)]
    pub time: Option<Duration>,
    /// Messages in flight at most, on each queue pair [default: 1024, or 16 MiB of large ones, but
    /// 8]
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub depth: Option<u32>,
    /// Queue pairs, of each thread [default: 1]
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub qps: Option<u32>,
    /// UD: send to a multicast group (-g), of which N queue pairs of the server receive every
    /// message
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub multicast: Option<u32>,
    /// The address of that group [default: one of 239.255.0.0/16 by chance]
    #[arg(long, value_name = "ADDRESS", requires = "multicast", help_heading = TEST)]
    pub multicast_group: Option<IpAddr>,
    /// Threads at each end, each on a processor of its own (of --cpu-affinity, where that is
    /// given) and with queue pairs of its own
    #[arg(long, value_name = "N", help_heading = TEST)]
    pub threads: Option<u32>,
    /// RDMA writes with immediate data, so that the peer counts them: on or off [default: on,
    /// where the link has it]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TEST)]
    pub immediate: Option<bool>,
    /// Where data goes one way, let the server send and this end receive: on or off [default: off]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TEST)]
    pub flip: Option<bool>,
    /// UC and UD: send as fast as can be, without regard to what the receiver is ready for; what
    /// is lost is shown
    #[arg(long, help_heading = TEST)]
    pub flood: bool,
    /// Send a different payload in every message and check each byte on arrival
    #[arg(long, help_heading = TEST)]
    pub verify: bool,

    /// Options that tune a test.
    #[command(flatten)]
    pub tuning: TuningOptions,

    /// How to wait for completions: adaptive (poll briefly, then sleep), poll (-cp1), events
    /// (-cp0, --events)
    #[arg(long, value_name = "HOW", help_heading = WAITING)]
    pub wait: Option<Wait>,
    /// The same for this end only
    #[arg(long, value_name = "HOW", help_heading = WAITING)]
    pub local_wait: Option<Wait>,
    /// The same for the server only
    #[arg(long, value_name = "HOW", help_heading = WAITING)]
    pub remote_wait: Option<Wait>,
    /// Give a silent peer up after this time [default: 5]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub timeout: Option<Duration>,
    /// The same for this end only
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub local_timeout: Option<Duration>,
    /// The same for the server only
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub remote_timeout: Option<Duration>,
    /// Keep trying to reach the server for this time [default: 5]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    pub wait_server: Option<Duration>,

    /// Find the best settings (depth, post list, inline, waiting, queue pairs) and what limits:
    /// `rperf --auto HOST`; some 40 tests of 0.3 s, or of --time
    #[arg(long, help_heading = TEST)]
    pub auto: bool,
    /// With --auto: this many tests at most, where time is short (5 at least) [default: 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(FEWEST_TRIES)..=1000), requires = "auto", help_heading = TEST)]
    pub tries: Option<u32>,

    /// Print one JSON document instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Print a line of JSON for each test, as soon as it has ended
    #[arg(long, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    pub json_lines: bool,
    /// A line for every interval of this length as it ends, and what dips and stalls there were;
    /// in --json and --json-lines too
    #[arg(long, value_name = "TIME", value_parser = interval, help_heading = OUTPUT)]
    pub interval: Option<Duration>,
    /// Print a line of comma-separated values for each test, after a heading
    #[arg(long, conflicts_with = "json", help_heading = OUTPUT)]
    pub csv: bool,
    /// Go on with the next test when one fails; the exit status tells that one did
    #[arg(long, help_heading = OUTPUT)]
    pub keep_going: bool,
    /// Significant digits [default: 3]
    #[arg(long, value_name = "DIGITS", value_parser = clap::value_parser!(u8).range(1..=15), help_heading = OUTPUT)]
    pub precision: Option<u8>,
    /// Bits instead of bytes per second
    #[arg(long, help_heading = OUTPUT)]
    pub bits: bool,
    /// Base units and no commas, for scripts
    #[arg(long, help_heading = OUTPUT)]
    pub unify_units: bool,
    /// Say local and remote instead of send and receive
    #[arg(long, help_heading = OUTPUT)]
    pub unify_nodes: bool,
    /// More: configuration, statistics, times and parameters; a server logs each test
    #[arg(long, help_heading = OUTPUT)]
    pub verbose: bool,
    /// More of the configuration: which devices, ports and addresses were used
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_conf: bool,
    /// More statistics
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_stat: bool,
    /// More about times and CPU use
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_time: bool,
    /// The parameters that were set
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_used: bool,
    /// Still more of everything
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more: bool,
    /// Still more of the configuration
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more_conf: bool,
    /// Still more statistics
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more_stat: bool,
    /// Still more about times
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more_time: bool,
    /// All parameters, set or not
    #[arg(long, help_heading = OUTPUT)]
    pub verbose_more_used: bool,

    /// TCP port of the server, for both ends
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT, help_heading = SERVER)]
    pub listen_port: u16,
    /// Listen on this address only
    #[arg(long, value_name = "ADDRESS", help_heading = SERVER)]
    pub bind: Option<IpAddr>,
    /// Of tests over sockets.
    #[command(flatten)]
    pub sockets: SocketOptions,
    /// What a server allows, and what a client shows it.
    #[command(flatten)]
    pub server: ServerOptions,
}

impl Options {
    /// The first option in use that only a client has.
    pub fn client_only(&self) -> Option<&'static str> {
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
                self.sockets.in_use(),
                "--ip-port (-ip) or --sock-buf-size (-sb)",
            ),
            (self.server.qperf, "--qperf"),
        ];
        uses.into_iter()
            .find(|u| u.0)
            .map(|u| u.1)
            .or_else(|| self.tuning.in_use())
    }

    /// Refuses options that only a server has.
    ///
    /// # Errors
    /// Names the option.
    pub fn refuse_server_only(&self) -> Result<()> {
        let option = if self.bind.is_some() {
            Some("--bind")
        } else {
            self.server.server_only()
        };
        let Some(option) = option else { return Ok(()) };
        Err(Error::usage(format!(
            "{option} is for the server (`rperf` alone, without tests)"
        )))
    }
}
