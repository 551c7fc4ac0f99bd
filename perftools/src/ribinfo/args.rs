//! What `ribinfo` understands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::common::protocol::DEFAULT_PORT;

const AFTER: &str = "\
Examples:
  ribinfo check                       is this host configured right, and if not, what mends it?
  ribinfo check --peer node1          does it go with node1, where `rperf` or `ribinfo serve` runs?
  ribinfo devinfo -v -d mlx5_0        all that the verbs say of a device, as ibv_devinfo -v
  ribinfo stat mlx5_0 1               a port, as ibstat
  ribinfo capture /tmp/tree           keep what is read, to be looked at elsewhere with --root

Exit status of check: 0 healthy, 1 warnings only, 2 faults. Of all commands: 3 the question was wrong or could not be
answered.";

/// What RDMA devices there are, how they stand, and whether the host is configured right for them
#[derive(Clone, Debug, Parser)]
#[command(name = "ribinfo", version, after_help = AFTER, term_width = 100)]
pub struct Info {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    #[allow(missing_docs, reason = "flattened")]
    pub global: Global,
}

/// What holds for all commands.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Take DIR for /: a captured tree if it holds probe.json, else files only, and the rest from
    /// this host
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// List the devices and their node GUIDs, as ibv_devices
    Devices,
    /// What the verbs say of devices and ports, as ibv_devinfo
    Devinfo {
        /// Everything
        #[arg(short, long)]
        verbose: bool,
        /// Of this device only
        #[arg(short = 'd', long, value_name = "DEV")]
        device: Option<String>,
        /// Of this port only
        #[arg(short = 'i', long, value_name = "PORT")]
        port: Option<u32>,
    },
    /// What sysfs says of devices and ports, as ibstat
    Stat {
        /// Of this device only
        #[arg(value_name = "DEV")]
        device: Option<String>,
        /// Of this port only
        #[arg(value_name = "PORT")]
        port: Option<u32>,
    },
    /// The GID tables: index, GID, IP address, RoCE version, interface
    Gids,
    /// The links and their interfaces, as rdma link
    Links,
    /// The subnet manager of each InfiniBand port: LID, GUID, priority, state, as sminfo
    Sm,
    /// Check this host: one line a finding, with what mends it
    Check(Check),
    /// Print what another host's check --peer-facts wants, as JSON
    Facts,
    /// Answer other hosts' check --peer, until interrupted
    Serve {
        /// TCP port to answer on
        #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
        port: u16,
    },
    /// Write all that is read on this host to a directory, for --root elsewhere
    Capture {
        /// An empty or new directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Options of `check`.
#[derive(Args, Clone, Debug, Default)]
pub struct Check {
    /// Only these subjects
    #[arg(value_name = "SUBJECT")]
    pub subjects: Vec<String>,
    /// Compare with this host, where `ribinfo serve` or an rperf server answers
    #[arg(long, value_name = "HOST")]
    pub peer: Option<String>,
    /// The port that the peer answers on
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    pub peer_port: u16,
    /// Compare with what `ribinfo facts` printed at the peer
    #[arg(long, value_name = "FILE", conflicts_with = "peer")]
    pub peer_facts: Option<PathBuf>,
    /// Print warnings and faults only
    #[arg(short, long)]
    pub quiet: bool,
    /// List the subjects
    #[arg(long)]
    pub list: bool,
}
