//! Command-line arguments of `ribinfo`.

use std::path::PathBuf;
use std::time::Duration;

use base::files::read_text;
use base::ports;
use base::units::parse_time;
use checks::expect::Expectation;
use checks::selection::Selection;
use clap::{Args, Parser, Subcommand};
use fleet::export;
use fleet::http::ListenAddr;
use ipnet::IpNet;

const AFTER_HELP: &str = "\
Examples:
  ribinfo check                check the configuration of this host
  ribinfo check --peer node1   also check compatibility with node1, which runs `rperf`
  ribinfo capture /tmp/tree    save all facts of this host, for use with --root

Exit status:
  0  no fault was found, or the command succeeded
  1  check found a fault (with --strict, also a warning), or the command failed
  2  the command line is invalid";

const CHECK_EXAMPLES: &str = "\
Examples:
  ribinfo check --status --expect ports=2,rate=100
                                      one line for Slurm's NHC or a Kubernetes probe
  ribinfo check --fix-script          the remedies as a shell script";

/// Show RDMA devices and check the RDMA configuration of a host
#[derive(Clone, Debug, Parser)]
#[command(name = "ribinfo", version, after_help = AFTER_HELP, term_width = 100)]
pub struct Info {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    #[allow(missing_docs, reason = "flattened")]
    pub global: Global,
}

/// Options of all subcommands.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Read files below DIR instead of /; in a captured tree, probe.json replaces queries to this
    /// host
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show devices and ports from libibverbs, as ibv_devices and ibv_devinfo
    #[command(alias = "devinfo")]
    Devices {
        /// Show all attributes, under the names of ibv_query_device_ex(3) and ibv_query_port(3)
        #[arg(short, long)]
        verbose: bool,
        /// Show only this device
        #[arg(short = 'd', long, value_name = "DEV")]
        device: Option<String>,
        /// Same as -d
        #[arg(value_name = "DEV", conflicts_with = "device")]
        name: Option<String>,
        /// Show only this port
        #[arg(short = 'i', long, value_name = "PORT")]
        port: Option<u32>,
    },
    /// Show devices and ports from sysfs, as ibstat
    Stat {
        /// Show only this device
        #[arg(value_name = "DEV")]
        device: Option<String>,
        /// Same as DEV
        #[arg(
            short = 'd',
            long = "device",
            value_name = "DEV",
            conflicts_with = "device"
        )]
        name: Option<String>,
        /// Show only this port
        #[arg(value_name = "PORT")]
        port: Option<u32>,
    },
    /// Show the GID tables: index, GID, IP address, RoCE version, network interface
    Gids,
    /// Show links and their network interfaces, as rdma link
    Links,
    /// Show the subnet manager of each InfiniBand port: LID, GUID, priority, state, as sminfo
    Sm {
        /// Query the subnet manager with this LID
        #[arg(value_name = "LID", value_parser = lid)]
        lid: Option<u16>,
    },
    /// Check this host: one line per finding, with its remedy
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Check),
    /// Print the devices, firmware and links of this host, for check --expect
    Expect,
    /// Print the facts of this host as JSON, for check --peer-facts on another host
    Facts,
    /// Show the counters of ports, or how fast they increase
    Counters {
        /// Show only this device or port, such as mlx5_0 or mlx5_0/1
        #[arg(value_name = "DEV[/PORT]")]
        port: Option<String>,
        /// Show also the counters that are 0
        #[arg(short, long)]
        all: bool,
        /// Show the counters that increase, until interrupted
        #[arg(short, long, conflicts_with = "json")]
        watch: bool,
        /// Time between two readings of --watch
        #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1", requires = "watch")]
        interval: Duration,
    },
    /// Print counters, links, objects and findings as metrics for Prometheus, or serve them
    Export(Export),
    /// Save all facts of this host to a directory, for --root on another host
    Capture {
        /// Empty or new directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Options of `export`.
#[derive(Args, Clone, Debug)]
pub struct Export {
    /// Serve the metrics over HTTP at /metrics until interrupted [default: print them once]
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    pub listen: Option<ListenAddr>,
    /// Answer only clients from these networks and from this host; may be repeated [default:
    /// answer all clients]
    #[arg(long, value_name = "CIDR", value_delimiter = ',', requires = "listen")]
    pub allow: Vec<IpNet>,
    /// Time between two runs of the checks, in seconds
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "300", requires = "listen")]
    pub check_interval: Duration,
    /// Do not check this host
    #[arg(long)]
    pub no_check: bool,
    /// Run only these checks
    #[arg(
        long,
        value_name = "CHECK",
        value_delimiter = ',',
        conflicts_with = "no_check"
    )]
    pub check: Vec<String>,
    /// Omit the findings of a check, a device or a port (mlx5_0/2); may be repeated
    #[arg(
        long,
        value_name = "CHECK|PORT",
        value_delimiter = ',',
        conflicts_with = "no_check"
    )]
    pub skip: Vec<String>,
    /// Require ports=N ACTIVE ports, and rate=GBPS of each (with a comma between); or compare with
    /// FILE, the output of `ribinfo expect` on a good host
    #[arg(long, value_name = "ports=N,…|FILE", value_parser = expectation)]
    pub expect: Option<Expectation>,
}

impl Export {
    /// Returns the options of the exporter.
    pub(crate) fn options(&self) -> export::ExportOptions {
        export::ExportOptions {
            listen: self.listen,
            allow: self.allow.clone(),
            check_interval: self.check_interval,
            checks: (!self.no_check).then(|| Selection {
                checks: self.check.clone(),
                skip: self.skip.clone(),
                expect: self.expect.clone(),
            }),
        }
    }
}

/// Options of `check`.
#[derive(Args, Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "a command line has switches")]
pub struct Check {
    /// Run only these checks
    #[arg(value_name = "CHECK")]
    pub checks: Vec<String>,
    /// Compare with this host, which runs `rperf`
    #[arg(long, value_name = "HOST")]
    pub peer: Option<String>,
    /// TCP port of the peer
    #[arg(long, alias = "peer-port", value_name = "PORT", default_value_t = ports::CONTROL, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// File with the shared secret of the peer
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub token_file: Option<PathBuf>,
    /// Compare with the output of `ribinfo facts` on the peer
    #[arg(long, value_name = "FILE", conflicts_with = "peer")]
    pub peer_facts: Option<PathBuf>,
    /// Print only warnings, faults, and what could not be decided but can be
    #[arg(short, long)]
    pub quiet: bool,
    /// Print one line for each finding, also if several ports have the same
    #[arg(short, long)]
    pub verbose: bool,
    /// Omit a check, a device or a port (mlx5_0/2); may be repeated
    #[arg(long, value_name = "CHECK|PORT", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Require ports=N ACTIVE ports, and rate=GBPS of each (with a comma between); or compare with
    /// FILE, the output of `ribinfo expect` on a good host
    #[arg(long, value_name = "ports=N,…|FILE", value_parser = expectation)]
    pub expect: Option<Expectation>,
    /// Exit with status 1 for warnings, too
    #[arg(long)]
    pub strict: bool,
    /// Print one line: the result, and the first problem
    #[arg(long, conflicts_with_all = ["fix_script", "json"])]
    pub status: bool,
    /// Print the remedies as a shell script
    #[arg(long, conflicts_with = "json")]
    pub fix_script: bool,
    /// List the checks
    #[arg(long)]
    pub list: bool,
}

/// Parses requirements, or reads them from a file.
fn expectation(text: &str) -> Result<Expectation, String> {
    if text.contains('=') {
        return text.parse();
    }
    let read = read_text(text.as_ref()).map_err(|e| e.to_string())?;
    Expectation::from_manifest(&read).map_err(|e| format!("{text}: {e}"))
}

/// Parses a LID, decimal or hexadecimal with `0x`.
fn lid(text: &str) -> Result<u16, String> {
    let lid = match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    lid.filter(|lid| (1..0xc000).contains(lid))
        .ok_or_else(|| format!("`{text}` is not a LID; expected 1 to 49151"))
}

/// Words of other tools, each with the subcommand that they follow, and the equivalent.
const OTHER_TOOLS: &[(&str, &str, &str)] = &[
    ("devices", "-l", DEVICES),
    ("devinfo", "-l", DEVICES),
    ("stat", "-l", DEVICES),
    ("stat", "-s", "`ribinfo links` has one line for each port"),
    ("stat", "-p", "`ribinfo stat` shows the GUID of each port"),
    ("counters", "-r", NO_RESET),
    ("counters", "-R", NO_RESET),
    ("", "ibdev2netdev", "run `ribinfo links`"),
    ("", "ibping", "run `ribping`"),
    ("", "ibstatus", "run `ribinfo stat`"),
    ("", "ibv_devices", DEVICES),
    ("", "ibv_devinfo", DEVICES),
    ("", "perfquery", "run `ribinfo counters`"),
    ("", "show_gids", "run `ribinfo gids`"),
    ("", "sminfo", "run `ribinfo sm`"),
];
const DEVICES: &str = "`ribinfo devices` lists the devices";
const NO_RESET: &str =
    "counters are not reset: `ribinfo counters --watch` shows how fast they increase";

/// Returns the equivalent of a word of another tool in a command line.
pub(super) fn other_tool(args: &[String], word: &str) -> Option<&'static str> {
    let is_subcommand = |name: &str| name.is_empty() || args.iter().any(|arg| arg == name);
    let mut rows = OTHER_TOOLS.iter();
    let found = rows.find(|(after, name, _)| *name == word && is_subcommand(after));
    found.map(|row| row.2)
}
