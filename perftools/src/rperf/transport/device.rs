//! Finds the device and the port for a test, and what they can do.

use std::net::IpAddr;
use std::ops::Range;

use ibverbs::{
    Context, Device, LinkLayer, PortAttr, PortState,
    caps::{AtomicCap, DeviceCapFlags},
    device::TransportType,
    gid::GidType,
};
use nix::ifaddrs::getifaddrs;

use super::address::PortAddress;
use super::{ControlAddrs, LinkType};
use crate::common::device_id::DeviceId;
use crate::common::error::{Error, Result};
use crate::rperf::spec::Bounds;

/// An opened device with an active port.
#[derive(Debug)]
pub struct OpenedDevice {
    /// The device.
    pub context: Context,
    /// The port's number.
    pub port_num: u8,
    /// How the port stands.
    pub port: PortAttr,
    /// What carries its packets.
    pub link: LinkType,
    /// The same in words, with the version of RoCE.
    pub link_name: String,
    /// Its addresses.
    pub addresses: Vec<PortAddress>,
    /// What it allows.
    pub bounds: Bounds,
    /// RDMA reads and atomics in flight: those that it starts, those that it serves.
    pub rd_atomic: (u8, u8),
}

/// Opens the device of this name, or without one the device that owns the control connection's
/// address, or else the first one with an active port.
///
/// # Errors
/// No device, none of this name (those there are, are listed), or no active port; the device that
/// owns the address is down: another one would not be what was meant.
pub fn open(id: Option<&DeviceId>, hosts: ControlAddrs) -> Result<OpenedDevice> {
    let devices = Device::list()?;
    if devices.is_empty() {
        return Err(Error::device(
            "no RDMA device on this machine: is its driver loaded? `rdma link add rxe0 type rxe netdev NETDEV` makes a software one of a network interface",
        ));
    }
    if let Some(id) = id {
        let Some(device) = devices.iter().find(|d| d.name() == id.name) else {
            let names: Vec<&str> = devices.iter().map(Device::name).collect();
            return Err(Error::device(format!(
                "no RDMA device {}: there is {}",
                id.name,
                names.join(", ")
            )));
        };
        return open_port(device, id.port);
    }
    let mut opened = Vec::new();
    let mut first_error = None;
    for device in &devices {
        match open_port(device, None) {
            Ok(device) => opened.push(device),
            Err(error) if owns(device, hosts.local) => {
                let hint = "; --id (-i) names another device";
                return Err(Error::new(
                    error.kind(),
                    format!("{error}{hint}, as {} is this one's address", hosts.local),
                ));
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    let owner = opened
        .iter()
        .position(|d| d.addresses.iter().any(|a| a.ip == Some(hosts.local)));
    if opened.is_empty() {
        return Err(
            first_error.unwrap_or_else(|| Error::device("no RDMA device with an active port"))
        );
    }
    Ok(opened.swap_remove(owner.unwrap_or(0)))
}

/// Whether an address is of an interface of the device, be that up or down.
fn owns(device: &Device, ip: IpAddr) -> bool {
    let Ok(context) = device.open() else {
        return false;
    };
    let ports = context.query_device().map_or(0, |attr| attr.phys_port_cnt);
    let mut netdevs = (1..=ports).filter_map(|port| context.netdev(port));
    netdevs.any(|netdev| {
        interface_addresses(Some(&netdev))
            .iter()
            .any(|candidate| candidate.ip == Some(ip))
    })
}

/// Messages that Soft-iWARP sends faster where each asks for a completion. It copies those; from a
/// page on it sends the others out of the caller's pages, which takes several calls of TCP a
/// message, and up to here longer than to copy.
const SOFT_IWARP_COPIES: Range<u64> = 4096..16384;

/// Opens a device on its port `wanted`, or on its first active one.
fn open_port(device: &Device, wanted: Option<u8>) -> Result<OpenedDevice> {
    let context = device.open()?;
    let attr = context.query_device()?;
    let name = context.device_name().to_owned();
    let ports = match wanted {
        Some(port) if port > attr.phys_port_cnt => {
            return Err(Error::device(format!(
                "{name} has no port {port}: its ports are 1 to {}",
                attr.phys_port_cnt
            )));
        }
        Some(port) => port..=port,
        None => 1..=attr.phys_port_cnt,
    };
    let mut down = None;
    for port_num in ports {
        let port = context.query_port(port_num)?;
        if port.state != PortState::ACTIVE {
            down = down.or(Some(port_down(&context, port_num, &port)));
            continue;
        }
        let link = link_of(device, &port);
        let (addresses, link_name) = addresses(&context, port_num, link)?;
        let bounds = Bounds {
            device: name,
            max_msg: u64::from(port.max_msg_sz),
            max_qp_wr: attr.max_qp_wr,
            max_cqe: attr.max_cqe,
            mtu: port.active_mtu.bytes().unwrap_or(1024),
            infiniband: link != LinkType::Iwarp,
            signalled: if attr.is_soft_iwarp() {
                SOFT_IWARP_COPIES
            } else {
                0..0
            },
            atomics: attr.atomic_cap != AtomicCap::NONE,
            max_srq_wr: if attr.max_srq > 0 { attr.max_srq_wr } else { 0 },
            xrc: attr.device_cap_flags.contains(DeviceCapFlags::XRC) && link != LinkType::Iwarp,
        };
        let least = |n: u32| u8::try_from(n.min(16)).unwrap_or(16);
        let rd_atomic = (least(attr.max_qp_init_rd_atom), least(attr.max_qp_rd_atom));
        return Ok(OpenedDevice {
            context,
            port_num,
            port,
            link,
            link_name,
            addresses,
            bounds,
            rd_atomic,
        });
    }
    Err(down.unwrap_or_else(|| Error::device(format!("{name} has no port"))))
}

fn port_down(context: &Context, port_num: u8, port: &PortAttr) -> Error {
    let name = context.device_name();
    let remedy = match context.netdev(port_num) {
        Some(netdev) => {
            format!("bring its interface up (`ip link set {netdev} up`) and look at the cable")
        }
        None => "look at the cable and whether a subnet manager runs".to_owned(),
    };
    Error::device(format!(
        "port {port_num} of {name} is not active, it is {}: {remedy}",
        port.state
    ))
}

fn link_of(device: &Device, port: &PortAttr) -> LinkType {
    match (device.transport(), port.link_layer) {
        (TransportType::IWARP, _) => LinkType::Iwarp,
        (_, LinkLayer::ETHERNET) => LinkType::Roce,
        _ => LinkType::InfiniBand,
    }
}

/// The addresses that a port is reached by, and what its link is called: GIDs on RoCE (v2 where
/// there is v2), its interface's on iWARP.
fn addresses(
    context: &Context,
    port_num: u8,
    link: LinkType,
) -> Result<(Vec<PortAddress>, String)> {
    let netdev = context.netdev(port_num);
    match link {
        LinkType::InfiniBand => Ok((
            vec![PortAddress {
                ip: None,
                prefix: 0,
                gid_index: None,
            }],
            link.to_string(),
        )),
        LinkType::Iwarp => Ok((interface_addresses(netdev.as_deref()), link.to_string())),
        LinkType::Roce => {
            let gids = context.gids(port_num)?;
            let has_v2 = gids.iter().any(|g| g.kind == GidType::ROCE_V2);
            let prefixes = interface_addresses(None);
            let all = gids
                .iter()
                .filter(|g| !has_v2 || g.kind == GidType::ROCE_V2)
                .map(|g| {
                    let ip = g.gid.to_ip().unwrap_or(IpAddr::V6(g.gid.as_ipv6()));
                    let prefix = prefixes
                        .iter()
                        .find(|c| c.ip == Some(ip))
                        .map_or(0, |c| c.prefix);
                    PortAddress {
                        ip: Some(ip),
                        prefix,
                        gid_index: Some(g.index.into()),
                    }
                })
                .collect();
            Ok((all, if has_v2 { "RoCE v2" } else { "RoCE v1" }.to_owned()))
        }
    }
}

/// The IP addresses of an interface, or of all.
fn interface_addresses(name: Option<&str>) -> Vec<PortAddress> {
    let Ok(all) = getifaddrs() else {
        return Vec::new();
    };
    all.filter(|a| name.is_none_or(|n| a.interface_name == n))
        .filter_map(|a| {
            let (address, mask) = (a.address?, a.netmask);
            if let Some(v4) = address.as_sockaddr_in() {
                let mask =
                    mask.and_then(|m| m.as_sockaddr_in().map(|m| m.ip().to_bits().leading_ones()));
                return Some((IpAddr::V4(v4.ip()), mask));
            }
            let mask =
                mask.and_then(|m| m.as_sockaddr_in6().map(|m| m.ip().to_bits().leading_ones()));
            address
                .as_sockaddr_in6()
                .map(|v6| (IpAddr::V6(v6.ip()), mask))
        })
        .map(|(ip, mask)| PortAddress {
            ip: Some(ip),
            prefix: mask.and_then(|m| u8::try_from(m).ok()).unwrap_or(0),
            gid_index: None,
        })
        .collect()
}

impl OpenedDevice {
    /// Leaves only the address whose GID has this place in the port's table, if one is asked for.
    ///
    /// # Errors
    /// There is none; those there are, are named.
    pub fn at_gid(mut self, index: Option<u8>) -> Result<Self> {
        let Some(index) = index else { return Ok(self) };
        let all: Vec<String> = self
            .addresses
            .iter()
            .filter_map(|a| a.gid_index)
            .map(|i| i.to_string())
            .collect();
        self.addresses.retain(|a| a.gid_index == Some(index.into()));
        if self.addresses.is_empty() {
            return Err(Error::device(format!(
                "no GID {index} to use on {} port {}: there are {}; give --gid-index one of them",
                self.context.device_name(),
                self.port_num,
                if all.is_empty() {
                    "none".to_owned()
                } else {
                    all.join(", ")
                }
            )));
        }
        Ok(self)
    }
}
