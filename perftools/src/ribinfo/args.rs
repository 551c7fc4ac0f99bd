//! Command-line arguments of `ribinfo`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use ipnet::IpNet;

use crate::common::protocol::DEFAULT_PORT;

const AFTER_HELP: &str = "\
Examples:
  ribinfo check                       check the configuration of this host
  ribinfo check --peer node1          also check compatibility with node1, which runs
                                      `rperf` or `ribinfo serve`
  ribinfo devinfo -v -d mlx5_0        all attributes of a device, as ibv_devinfo -v
  ribinfo stat mlx5_0 1               the state of a port, as ibstat
  ribinfo capture /tmp/tree           save all facts of this host, for use with --root

Exit status of check: 0 healthy, 1 warnings only, 2 faults.
Exit status of all commands: 3 invalid arguments, or the command failed.";

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
    /// List devices and their node GUIDs, as ibv_devices
    Devices,
    /// Show verbs attributes of devices and ports, as ibv_devinfo
    Devinfo {
        /// Show all attributes
        #[arg(short, long)]
        verbose: bool,
        /// Show only this device
        #[arg(short = 'd', long, value_name = "DEV")]
        device: Option<String>,
        /// Show only this port
        #[arg(short = 'i', long, value_name = "PORT")]
        port: Option<u32>,
    },
    /// Show devices and ports from sysfs, as ibstat
    Stat {
        /// Show only this device
        #[arg(value_name = "DEV")]
        device: Option<String>,
        /// Show only this port
        #[arg(value_name = "PORT")]
        port: Option<u32>,
    },
    /// Show the GID tables: index, GID, IP address, RoCE version, network interface
    Gids,
    /// Show links and their network interfaces, as rdma link
    Links,
    /// Show the subnet manager of each InfiniBand port: LID, GUID, priority, state, as sminfo
    Sm,
    /// Check this host: one line per finding, with its remedy
    Check(Check),
    /// Print the facts of this host as JSON, for check --peer-facts on another host
    Facts,
    /// Answer check --peer of other hosts until interrupted
    Serve(Serve),
    /// Save all facts of this host to a directory, for --root on another host
    Capture {
        /// Empty or new directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Options of `serve`.
#[derive(Args, Clone, Debug)]
pub struct Serve {
    /// TCP port to listen on
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Listen only on this address [default: all addresses]
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// Answer only clients from these networks and from this host; may be repeated [default:
    /// answer all clients]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub allow: Vec<IpNet>,
    /// File with a shared secret of at least 16 bytes; only clients with the same secret are
    /// answered
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Options of `check`.
#[derive(Args, Clone, Debug, Default)]
pub struct Check {
    /// Check only these subjects
    #[arg(value_name = "SUBJECT")]
    pub subjects: Vec<String>,
    /// Compare with this host, which runs `ribinfo serve` or an rperf server
    #[arg(long, value_name = "HOST")]
    pub peer: Option<String>,
    /// TCP port of the peer
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    pub peer_port: u16,
    /// File with the shared secret of the peer
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub token_file: Option<PathBuf>,
    /// Compare with the output of `ribinfo facts` on the peer
    #[arg(long, value_name = "FILE", conflicts_with = "peer")]
    pub peer_facts: Option<PathBuf>,
    /// Print only warnings and faults
    #[arg(short, long)]
    pub quiet: bool,
    /// List the subjects
    #[arg(long)]
    pub list: bool,
}
