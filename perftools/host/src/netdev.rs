//! Network interfaces, from `/sys/class/net`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use serde::Serialize;

use super::hwaddr::HwAddr;
use super::root::{Root, is_name, unsigned};

/// `ARPHRD_ETHER`.
const TYPE_ETHERNET: u32 = 1;
/// `ARPHRD_INFINIBAND`.
pub(crate) const TYPE_INFINIBAND: u32 = 32;
const IFF_UP: u64 = 1;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Netdev {
    /// The name.
    pub name: String,
    /// The hardware type: 1 Ethernet, 32 InfiniBand.
    pub kind: u32,
    /// The MTU in bytes.
    pub mtu: Option<u32>,
    /// The interface is administratively up (`ip link set … up`).
    pub up: bool,
    /// The link has a carrier. `None` if the interface is not up.
    pub carrier: Option<bool>,
    /// The operational state: `up`, `down`, `dormant`, `unknown` …
    pub operstate: String,
    /// The speed in Mbit/s, if the driver reports it.
    pub speed: Option<u32>,
    /// The hardware address.
    pub address: String,
    /// The port number of the device, from 0.
    pub dev_port: u32,
    /// The attributes of an IPoIB interface.
    pub ipoib: Option<Ipoib>,
    /// The identifier of the switch in an adapter that is in switchdev mode.
    #[serde(skip)]
    pub switch_id: Option<String>,
    /// The interfaces that a bond consists of.
    #[serde(skip)]
    pub slaves: Vec<String>,
    /// The bond, bridge or VRF that the interface belongs to.
    #[serde(skip)]
    pub master: Option<String>,
    /// The interfaces below a VLAN, a bond or another stacked interface.
    #[serde(skip)]
    pub lower: Vec<String>,
}

/// The additional attributes of an IPoIB interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipoib {
    /// The mode: `datagram`, `connected`, or empty in Enhanced mode.
    pub mode: String,
    /// The partition key.
    pub pkey: Option<u16>,
    /// The parent interface.
    pub parent: Option<String>,
    /// The hardware address, parsed.
    pub hwaddr: Option<HwAddr>,
}

/// The handling of ARP requests, from `/proc/sys/net/ipv4/conf`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArpSettings {
    /// The addresses for which requests are answered: 0 all, 1 or more those of the interface.
    pub ignore: Option<u32>,
    /// The source address of requests: 0 any, 2 the best one for the target.
    pub announce: Option<u32>,
    /// Requests are answered on the interface through which the reply is routed.
    pub filter: Option<u32>,
}

impl Netdev {
    /// Returns the link-local address that the hardware address of an Ethernet interface gives
    /// (EUI-64).
    pub fn eui64(&self) -> Option<Ipv6Addr> {
        let bytes = self.address.split(':');
        let bytes = bytes.map(|byte| u8::from_str_radix(byte, 16).ok());
        let mac: [u8; 6] = bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()?;
        let mut octets = [0; 16];
        octets[..2].copy_from_slice(&[0xfe, 0x80]);
        octets[8..11].copy_from_slice(&mac[..3]);
        octets[11..13].copy_from_slice(&[0xff, 0xfe]);
        octets[13..].copy_from_slice(&mac[3..]);
        // The bit for locally administered addresses is inverted.
        octets[8] ^= 2;
        (self.kind == TYPE_ETHERNET).then(|| octets.into())
    }

    /// Returns `true` if the interface is a VLAN of another one, or stacked on it in another way.
    /// Old captures do not have the links of the kernel, only the usual names of VLANs.
    pub fn is_on(&self, netdev: &str) -> bool {
        let id = self.name.strip_prefix(netdev);
        let id = id.and_then(|rest| rest.strip_prefix('.'));
        id.is_some_and(|id| id.parse::<u16>().is_ok())
            || self.lower.iter().any(|name| name == netdev)
    }

    /// Returns `true` if the interface has no hardware address, such as that of a tunnel.
    pub fn lacks_address(&self) -> bool {
        !matches!(self.kind, TYPE_ETHERNET | TYPE_INFINIBAND)
    }
}

/// Returns `true` if an address needs the name of an interface beside it, as the link-local ones of
/// IPv6 do. A peer can connect to those of IPv4 without it.
pub fn needs_interface(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Returns the handling of ARP requests on each interface, and on `all` interfaces.
pub(crate) fn arp_settings(root: &Root, netdevs: &[Netdev]) -> BTreeMap<String, ArpSettings> {
    let names = netdevs.iter().map(|netdev| netdev.name.as_str());
    let read = |name: &str| {
        let file = |file| root.number(&format!("/proc/sys/net/ipv4/conf/{name}/{file}"));
        let settings = ArpSettings {
            ignore: file("arp_ignore"),
            announce: file("arp_announce"),
            filter: file("arp_filter"),
        };
        (name.to_owned(), settings)
    };
    names.chain(["all"]).map(read).collect()
}

/// Returns the names of the network interfaces of the RDMA adapters of this host, sorted.
pub(crate) fn of_adapters() -> Vec<String> {
    let names = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok())
    };
    let devices = Path::new("/sys/class/infiniband");
    let netdevs: BTreeSet<String> = names(devices)
        .flat_map(|device| names(&devices.join(device).join("device/net")))
        .collect();
    netdevs.into_iter().collect()
}

/// Returns the network interfaces, sorted by name.
pub(crate) fn all(root: &Root) -> Vec<Netdev> {
    // The directory also contains files: bonding_masters and eth_ipoib_interfaces.
    root.list("/sys/class/net")
        .into_iter()
        .filter_map(|name| read(root, &name))
        .collect()
}

fn read(root: &Root, name: &str) -> Option<Netdev> {
    // The name becomes part of commands.
    if !is_name(name) {
        return None;
    }
    let file = |file: &str| format!("/sys/class/net/{name}/{file}");
    let kind = root.number(&file("type"))?;
    let address = root.value(&file("address")).unwrap_or_default();
    let ipoib = (kind == TYPE_INFINIBAND).then(|| Ipoib {
        mode: root.value(&file("mode")).unwrap_or_default(),
        pkey: root.number(&file("pkey")),
        parent: root.value(&file("parent")).filter(|name| is_name(name)),
        hwaddr: address.parse().ok(),
    });
    Some(Netdev {
        name: name.to_owned(),
        kind,
        mtu: root.number(&file("mtu")),
        up: root
            .value(&file("flags"))
            .and_then(|f| unsigned(&f))
            .is_some_and(|flags| flags & IFF_UP != 0),
        carrier: root
            .number::<u8>(&file("carrier"))
            .map(|carrier| carrier == 1),
        operstate: root.value(&file("operstate")).unwrap_or_default(),
        // The kernel writes -1 for an unknown speed.
        speed: root.number(&file("speed")).filter(|speed| *speed > 0),
        address,
        dev_port: root.number(&file("dev_port")).unwrap_or(0),
        switch_id: root.value(&file("phys_switch_id")),
        ipoib,
        slaves: root
            .value(&file("bonding/slaves"))
            .map(|names| names.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        master: root.link(&file("master")).filter(|name| is_name(name)),
        lower: root
            .list(&format!("/sys/class/net/{name}"))
            .iter()
            .filter_map(|entry| entry.strip_prefix("lower_").map(str::to_owned))
            .filter(|name| is_name(name))
            .collect(),
    })
}
