//! Facts that are not in files. They are queried from libibverbs, the kernel and the commands of
//! the packet filter, and are saved in the `probe.json` of a captured tree.

use std::fmt;
use std::fs::{self, DirEntry};
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::socket::SockaddrStorage;
use serde::{Deserialize, Serialize};

use super::command::output;
use super::dcb_output::{self, DcbOutput};
use super::fact::Fact;
use super::limits;
use super::link_caps::{self, PortCaps};
use super::link_log::{self, LinkLog};
use super::listeners::Listener;
use super::pci::{self, PciFunction};
use super::resources::{GsiQp, gsi_qps};
use super::sm::PortSm;
use super::transceiver::{self, Transceiver};
use super::verbs::Verbs;

/// Size of the test registration in bytes. It exceeds the 8 MiB that many systems allow by default.
const REGISTRATION: usize = 16 << 20;

/// The facts of a host that are not in files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probe {
    /// The device nodes in `/dev/infiniband`.
    pub nodes: Fact<Vec<Node>>,
    /// Processes with an open RDMA device and a small limit of locked memory: name, ID and limit.
    pub limited_processes: Fact<Vec<String>>,
    /// A test registration on each device that can be opened.
    pub registrations: Fact<Vec<Registration>>,
    /// The IP addresses of the network interfaces.
    pub addresses: Fact<Vec<Address>>,
    /// The source addresses, each with the length of its prefix, that have rules of routing.
    pub source_rules: Fact<Vec<String>>,
    /// The rules of the packet filter.
    pub firewall: Fact<Firewall>,
    /// Flow control of the network interfaces of RoCE ports.
    pub dcb: Fact<Vec<DcbOutput>>,
    /// The servers of RDMA tests that listen on a TCP port.
    pub listeners: Fact<Vec<Listener>>,
    /// The devices and their verbs attributes.
    pub verbs: Fact<Verbs>,
    /// The widths and speeds of the links of the InfiniBand ports.
    pub link_caps: Fact<Vec<PortCaps>>,
    /// The subnet managers of the InfiniBand ports.
    pub sms: Fact<Vec<PortSm>>,
    /// The queue pairs for general services of the ports.
    pub gsi_qps: Fact<Vec<GsiQp>>,
    /// The adapters, the GPUs and the bridges above them.
    pub pci: Fact<Vec<PciFunction>>,
    /// The changes of links since the kernel was started.
    pub link_log: Fact<LinkLog>,
    /// The transceivers of network interfaces.
    pub transceivers: Fact<Vec<Transceiver>>,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The name in `/dev/infiniband`.
    pub name: String,
    /// The permission bits.
    pub mode: u32,
    /// The node is a character device.
    pub device: bool,
    /// The result of opening the node for reading and writing.
    pub open: Result<(), String>,
}

/// The result of a test registration of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The name of the device.
    pub device: String,
    /// The size of the registration.
    pub bytes: u64,
    /// Success, or an error message.
    pub result: Result<(), String>,
}

/// An address of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The interface.
    pub netdev: String,
    /// The address.
    pub ip: IpAddr,
    /// The length of the network prefix, in bits.
    #[serde(default)]
    pub bits: Option<u32>,
}

impl fmt::Display for Address {
    /// Writes the address as `ip addr` accepts it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits {
            Some(bits) => write!(f, "{}/{bits}", self.ip),
            None => write!(f, "{}/BITS", self.ip),
        }
    }
}

/// The rules of the packet filter as text. A field is `None` if its command is missing or failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Firewall {
    /// The output of `nft -j list ruleset`.
    pub nft_json: Option<String>,
    /// The output of `nft -a list ruleset`, for the texts of the rules.
    pub nft: Option<String>,
    /// The output of `iptables-save`.
    pub iptables: Option<String>,
    /// The output of `iptables-legacy-save`, if it differs from `iptables-save` and has rules.
    pub iptables_legacy: Option<String>,
    /// The output of `ip6tables-save`.
    pub ip6tables: Option<String>,
    /// The output of `ip6tables-legacy-save`, if it differs from `ip6tables-save` and has rules.
    pub ip6tables_legacy: Option<String>,
    /// The output of `ipset save`.
    pub ipsets: Option<String>,
}

impl Firewall {
    fn query() -> Self {
        let save = |command| output(command, &[]);
        // The command itself would load the kernel module of the older packet filter.
        let legacy = |command, save: &Option<String>, names| {
            let is_loaded = fs::read_to_string(names).is_ok_and(|names| !names.is_empty());
            let is_read = save
                .as_ref()
                .is_some_and(|save| save.contains('*') && !save.contains("(nf_tables)"));
            (is_loaded && !is_read)
                .then(|| output(command, &[]))
                .flatten()
        };
        let (iptables, ip6tables) = (save("iptables-save"), save("ip6tables-save"));
        Self {
            nft_json: output("nft", &["-j", "list", "ruleset"]),
            nft: output("nft", &["-a", "list", "ruleset"]),
            iptables_legacy: legacy(
                "iptables-legacy-save",
                &iptables,
                "/proc/net/ip_tables_names",
            ),
            ip6tables_legacy: legacy(
                "ip6tables-legacy-save",
                &ip6tables,
                "/proc/net/ip6_tables_names",
            ),
            iptables,
            ip6tables,
            ipsets: output("ipset", &["save"]),
        }
    }
}

impl Probe {
    /// Returns the facts of this host. Each is queried when it is first used. `node_directory`
    /// contains the device nodes.
    pub fn of_host(node_directory: PathBuf) -> Self {
        Self {
            nodes: Fact::new(move || nodes(&node_directory)),
            limited_processes: Fact::new(limits::limited_processes),
            registrations: Fact::new(registrations),
            addresses: Fact::new(addresses),
            source_rules: Fact::new(source_rules),
            firewall: Fact::new(Firewall::query),
            dcb: Fact::new(dcb_output::query),
            listeners: Fact::new(super::listeners::query),
            verbs: Fact::new(Verbs::query),
            link_caps: Fact::new(link_caps::query),
            sms: Fact::new(|| super::sm::query().unwrap_or_default()),
            gsi_qps: Fact::new(|| gsi_qps().unwrap_or_default()),
            pci: Fact::new(pci::query),
            link_log: Fact::new(link_log::query),
            transceivers: Fact::new(transceiver::query),
        }
    }
}

fn nodes(directory: &Path) -> Vec<Node> {
    let read = |entry: DirEntry| {
        let metadata = fs::symlink_metadata(entry.path())
            .ok()
            .filter(|metadata| !metadata.is_dir())?;
        let device = metadata.file_type().is_char_device();
        let open = || {
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
                .open(entry.path())
        };
        let open = if device {
            open().map(drop).map_err(|error| error.to_string())
        } else {
            Err("not a device".to_owned())
        };
        Some(Node {
            name: entry.file_name().to_string_lossy().into_owned(),
            mode: metadata.mode() & 0o7777,
            device,
            open,
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
    // The check `nodes` reports devices that cannot be opened.
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
    all.filter_map(|interface| {
        let bits = match interface.netmask.as_ref().and_then(ip) {
            Some(IpAddr::V4(mask)) => Some(mask.to_bits().count_ones()),
            Some(IpAddr::V6(mask)) => Some(mask.to_bits().count_ones()),
            None => None,
        };
        Some(Address {
            netdev: interface.interface_name,
            ip: interface.address.as_ref().and_then(ip)?,
            bits,
        })
    })
    .collect()
}

/// Returns the sources in the output of `ip rule`, for IPv4 and IPv6.
fn source_rules() -> Vec<String> {
    /// A rule as `ip -j rule` writes it. The source of most rules is `all`.
    #[derive(Deserialize)]
    struct Rule {
        src: String,
        srclen: Option<u8>,
    }
    let query = |family| {
        let text = output("ip", &[family, "-j", "rule"])?;
        serde_json::from_str::<Vec<Rule>>(&text).ok()
    };
    let rules = ["-4", "-6"].into_iter().filter_map(query).flatten();
    let source = |rule: Rule| {
        let ip: IpAddr = rule.src.parse().ok()?;
        let bits = rule.srclen.unwrap_or(if ip.is_ipv4() { 32 } else { 128 });
        Some(format!("{ip}/{bits}"))
    };
    rules.filter_map(source).collect()
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}
