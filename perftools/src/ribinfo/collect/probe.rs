//! What is no file: asked of the library, the kernel and the packet filter's commands; kept in a
//! tree's `probe.json`.

use std::fmt;
use std::fs::{self, DirEntry};
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::socket::SockaddrStorage;
use serde::{Deserialize, Serialize};

use super::link_caps::{self, PortCaps};
use super::sm::PortSm;
use super::verbs::Verbs;

/// What is registered to see whether it can be: more than the 8 MiB that many systems allow by
/// default.
const REGISTRATION: usize = 16 << 20;

/// What is no file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probe {
    /// The nodes in `/dev/infiniband`.
    pub nodes: Vec<Node>,
    /// A registration on each device that can be opened.
    pub registrations: Vec<Registration>,
    /// The addresses of the network interfaces.
    pub addresses: Vec<Address>,
    /// What the packet filter's commands print.
    pub firewall: Firewall,
    /// What the verbs say.
    pub verbs: Verbs,
    /// What the links of the InfiniBand ports can do.
    pub link_caps: Vec<PortCaps>,
    /// The subnet managers of the InfiniBand ports; asked where they are shown or kept, not for
    /// `check`.
    pub sms: Vec<PortSm>,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name in `/dev/infiniband`.
    pub name: String,
    /// The permission bits.
    pub mode: u32,
    /// Whether it is a character device.
    pub device: bool,
    /// Whether this user may open it for reading and writing; else why not.
    pub open: Result<(), String>,
}

/// A registration of memory that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The device.
    pub device: String,
    /// How much.
    pub bytes: u64,
    /// What came of it.
    pub result: Result<(), String>,
}

/// An address of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The interface.
    pub netdev: String,
    /// The address.
    pub ip: IpAddr,
    /// How many of its bits are the network's.
    #[serde(default)]
    pub bits: Option<u32>,
}

impl fmt::Display for Address {
    /// As `ip addr` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits {
            Some(bits) => write!(f, "{}/{bits}", self.ip),
            None => write!(f, "{}/BITS", self.ip),
        }
    }
}

/// The rules of the packet filter as text; none where the command is missing or not allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Firewall {
    /// `nft list ruleset`.
    pub nft: Option<String>,
    /// `iptables-save`.
    pub iptables: Option<String>,
    /// `ip6tables-save`.
    pub ip6tables: Option<String>,
}

impl Probe {
    /// Asks this host, whose device nodes are in this directory; devices are opened, memory is
    /// registered and commands are run only for the subjects that want them.
    pub fn ask(nodes_in: &Path, wanted: impl Fn(&str) -> bool) -> Self {
        let output = |command, args| {
            if wanted("firewall") {
                output(command, args)
            } else {
                None
            }
        };
        Self {
            nodes: nodes(nodes_in),
            registrations: if wanted("memlock") {
                registrations()
            } else {
                Vec::new()
            },
            addresses: addresses(),
            firewall: Firewall {
                nft: output("nft", &["list", "ruleset"]),
                iptables: output("iptables-save", &[]),
                ip6tables: output("ip6tables-save", &[]),
            },
            // Opening devices takes time.
            verbs: if ["nodes", "mtu", "ipoib", "peer"].into_iter().any(&wanted) {
                Verbs::ask()
            } else {
                Verbs::default()
            },
            link_caps: if wanted("link") {
                link_caps::ask()
            } else {
                Vec::new()
            },
            sms: Vec::new(),
        }
    }
}

fn nodes(directory: &Path) -> Vec<Node> {
    let read = |entry: DirEntry| {
        let metadata = fs::metadata(entry.path())
            .ok()
            .filter(|metadata| !metadata.is_dir())?;
        let open = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(entry.path());
        Some(Node {
            name: entry.file_name().to_string_lossy().into_owned(),
            mode: metadata.mode() & 0o7777,
            device: metadata.file_type().is_char_device(),
            open: open.map(drop).map_err(|error| error.to_string()),
        })
    };
    let mut nodes: Vec<Node> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(read)
        .collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

fn registrations() -> Vec<Registration> {
    let devices = ibverbs::Device::list().unwrap_or_default();
    // What cannot be opened is another finding.
    let open = devices.iter().filter_map(|device| device.open().ok());
    let register = |context: ibverbs::Context| {
        let registered = context.alloc_pd().and_then(|pd| pd.buf(REGISTRATION));
        Registration {
            device: context.device_name().to_owned(),
            bytes: REGISTRATION as u64,
            result: registered.map(drop).map_err(|error| error.to_string()),
        }
    };
    open.map(register).collect()
}

fn addresses() -> Vec<Address> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    all.filter_map(|one| {
        let bits = match one.netmask.as_ref().and_then(ip) {
            Some(IpAddr::V4(mask)) => Some(mask.to_bits().count_ones()),
            Some(IpAddr::V6(mask)) => Some(mask.to_bits().count_ones()),
            None => None,
        };
        Some(Address {
            netdev: one.interface_name,
            ip: one.address.as_ref().and_then(ip)?,
            bits,
        })
    })
    .collect()
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

/// What a command prints, if it is there and ends well. `sbin` is searched too: it is not in every
/// user's path.
fn output(command: &str, args: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    let mut run = Command::new(command);
    run.args(args)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = run.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
