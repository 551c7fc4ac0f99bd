//! Selects and opens the device and the port of a test, and reads their limits.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::ops::Range;

use base::device_id::DeviceId;
use base::error::{Error, Result};
use ibverbs::{
    Context, Device, Errno, LinkLayer, PortAttr, PortState,
    caps::{AtomicCap, DeviceCapFlags},
    device::TransportType,
    efa::{EfaAttr, EfaCaps},
    gid::GidType,
};
use nix::{ifaddrs::getifaddrs, libc};

use super::address::PortAddress;
use super::{ControlAddrs, LinkType};
use crate::spec::Bounds;
use crate::spec::plan::Service;

/// An opened device with an active port.
#[derive(Debug)]
pub struct OpenedDevice {
    /// The device.
    pub context: Context,
    /// Port number.
    pub port_num: u8,
    /// Attributes of the port.
    pub port: PortAttr,
    /// Link of the port.
    pub link: LinkType,
    /// Name of the link, with the version of RoCE.
    pub link_name: String,
    /// Addresses of the port.
    pub addresses: Vec<PortAddress>,
    /// Limits of the device.
    pub bounds: Bounds,
    /// Maximum number of RDMA reads and atomics in flight, as initiator and as responder.
    pub rd_atomic: (u8, u8),
}

/// Opens the device with this name. Without a name it opens the device that has the address of the
/// control connection, or the first one with an active port.
///
/// # Errors
/// Returns an error if there is no device, none with this name, or none with an active port. It
/// also returns an error if the device with the address of the control connection is down, because
/// any other device would be unexpected.
pub(crate) fn open(id: Option<&DeviceId>, addrs: ControlAddrs) -> Result<OpenedDevice> {
    // Without the module ib_uverbs, or without a free descriptor, it is ENOSYS.
    let devices = match Device::list() {
        Err(error) if error.errno() == Some(Errno(libc::ENOSYS)) => Vec::new(),
        devices => devices?,
    };
    if devices.is_empty() {
        return Err(Error::device(
            "libibverbs finds no RDMA device",
        )
        .with_help("`ribinfo check modules nodes` finds the cause, unless `ulimit -n` is too low; to create a software device: `rdma link add rxe0 type rxe netdev NETDEV`"));
    }
    if let Some(id) = id {
        let Some(device) = devices.iter().find(|d| d.name() == id.name) else {
            let names: Vec<&str> = devices.iter().map(Device::name).collect();
            return Err(Error::device(format!(
                "no RDMA device named `{}`; available: {}",
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
            Err(error) if has_address(device, addrs.local) => {
                let mut help = "choose another device with --id (-i)".to_owned();
                if let Some(remedy) = error.help() {
                    help = format!("{remedy}, or {help}");
                }
                return Err(error
                    .context(format!(
                        "cannot use {}, the device with the address {}",
                        device.name(),
                        addrs.local
                    ))
                    .with_help(help));
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    let owner = opened
        .iter()
        .position(|d| d.addresses.iter().any(|a| a.ip == Some(addrs.local)));
    if opened.is_empty() {
        return Err(
            first_error.unwrap_or_else(|| Error::device("no RDMA device with an active port"))
        );
    }
    Ok(opened.swap_remove(owner.unwrap_or(0)))
}

/// Opens each active port of each device. Devices that cannot be opened are omitted.
pub fn open_active_ports() -> Vec<OpenedDevice> {
    let mut ports = Vec::new();
    for device in &Device::list().unwrap_or_default() {
        let count = device
            .open()
            .and_then(|context| context.query_device())
            .map_or(0, |attr| attr.phys_port_cnt);
        let opened = (1..=count).filter_map(|port| open_port(device, Some(port)).ok());
        ports.extend(opened);
    }
    ports
}

/// Returns `true` if an interface of the device has this address. The interface may be down.
fn has_address(device: &Device, ip: IpAddr) -> bool {
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

/// The message sizes, in bytes, that Soft-iWARP sends faster if every send is signaled. It copies
/// signaled messages. It sends unsignaled messages of one page or more from the caller's pages,
/// with several TCP calls per message, which costs more than the copy up to the end of this range.
const SOFT_IWARP_SIGNALED_SIZES: Range<u64> = 4096..16384;

/// Opens a device with the given port, or with its first active port.
fn open_port(device: &Device, port: Option<u8>) -> Result<OpenedDevice> {
    let context = device.open()?;
    let attr = context.query_device()?;
    let name = context.device_name().to_owned();
    let ports = match port {
        Some(port) if port > attr.phys_port_cnt => {
            return Err(Error::device(format!(
                "{name} has no port {port}; available: 1 to {}",
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
        let efa = efa_attr(&context);
        let link = match efa {
            Some(_) => LinkType::Efa,
            None => link_of(device, &port),
        };
        let (addresses, link_name) = addresses(&context, port_num, link)?;
        let max_msg = u64::from(port.max_msg_sz);
        let max_rdma = |cap| match efa {
            Some(efa) if efa.device_caps.contains(cap) => efa.max_rdma_size.into(),
            Some(_) => 0,
            None => max_msg,
        };
        let bounds = Bounds {
            device: name,
            max_msg,
            max_qp_wr: attr.max_qp_wr,
            max_cqe: attr.max_cqe,
            mtu: port.active_mtu.bytes().unwrap_or(1024),
            services: services(link, attr.device_cap_flags.contains(DeviceCapFlags::XRC)),
            infiniband: link != LinkType::Iwarp,
            max_read: max_rdma(EfaCaps::RDMA_READ),
            max_write: max_rdma(EfaCaps::RDMA_WRITE),
            signaled_sizes: if attr.is_soft_iwarp() {
                SOFT_IWARP_SIGNALED_SIZES
            } else {
                0..0
            },
            atomics: attr.atomic_cap != AtomicCap::NONE,
            max_srq_wr: if attr.max_srq > 0 { attr.max_srq_wr } else { 0 },
        };
        let limited = |n: u32| u8::try_from(n.min(16)).unwrap_or(16);
        let rd_atomic = (
            limited(attr.max_qp_init_rd_atom),
            limited(attr.max_qp_rd_atom),
        );
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
    let help = match context.netdev(port_num) {
        Some(netdev) => {
            format!("bring its interface up with `ip link set {netdev} up` and check the cable")
        }
        None => "check the cable and that a subnet manager is running".to_owned(),
    };
    Error::device(format!(
        "port {port_num} of {name} is not active, but in state {}",
        port.state
    ))
    .with_help(help)
}

/// Returns the attributes that only EFA devices have; `None` for other devices. The kernel reports
/// no transport of EFA devices, so libefa is not loaded for others.
fn efa_attr(context: &Context) -> Option<EfaAttr> {
    if context.device().transport() != TransportType::UNSPECIFIED {
        return None;
    }
    context.query_efa().ok()
}

/// Returns the services of a link. With `xrc` the device has XRC.
fn services(link: LinkType, xrc: bool) -> Vec<Service> {
    match link {
        LinkType::Iwarp => vec![Service::Rc],
        LinkType::Efa => vec![Service::Ud, Service::Srd],
        LinkType::InfiniBand | LinkType::Roce => {
            let mut services = vec![Service::Rc, Service::Uc, Service::Ud, Service::Dc];
            services.extend(xrc.then_some(Service::Xrc));
            services
        }
    }
}

fn link_of(device: &Device, port: &PortAttr) -> LinkType {
    match (device.transport(), port.link_layer) {
        (TransportType::IWARP, _) => LinkType::Iwarp,
        (_, LinkLayer::ETHERNET) => LinkType::Roce,
        _ => LinkType::InfiniBand,
    }
}

/// Returns the addresses of a port and the name of its link. On RoCE and EFA the addresses are
/// GIDs, those of RoCE v2 if there are any; on iWARP they are those of the interface. On InfiniBand
/// the LID comes first, and those of the IPoIB interface, which only rdma_cm uses, follow.
fn addresses(
    context: &Context,
    port_num: u8,
    link: LinkType,
) -> Result<(Vec<PortAddress>, String)> {
    let netdev = context.netdev(port_num);
    match link {
        LinkType::InfiniBand => {
            let mut all = vec![PortAddress::LID];
            if netdev.is_some() {
                all.extend(interface_addresses(netdev.as_deref()));
            }
            Ok((all, link.to_string()))
        }
        LinkType::Iwarp => Ok((interface_addresses(netdev.as_deref()), link.to_string())),
        LinkType::Roce | LinkType::Efa => {
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
            let name = match link {
                LinkType::Roce if has_v2 => "RoCE v2".to_owned(),
                LinkType::Roce => "RoCE v1".to_owned(),
                _ => link.to_string(),
            };
            Ok((all, name))
        }
    }
}

/// Returns the IP addresses of an interface, or of all interfaces.
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
    /// Returns the name of the device and its port, such as `mlx5_0/1`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.context.device_name(), self.port_num)
    }

    /// Returns the address of a socket. A link-local address is one of the port's interface.
    pub(crate) fn socket_addr(&self, ip: IpAddr, port: u16) -> SocketAddr {
        let scope = || {
            let netdev = self.context.netdev(self.port_num)?;
            nix::net::if_::if_nametoindex(netdev.as_str()).ok()
        };
        match ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, scope().unwrap_or(0)).into()
            }
            _ => SocketAddr::new(ip, port),
        }
    }

    /// Returns the addresses to connect by. Without rdma_cm, an InfiniBand port has its LID only.
    pub(super) fn addresses_with(&self, uses_cm: bool) -> &[PortAddress] {
        match self.link {
            LinkType::InfiniBand if !uses_cm => &self.addresses[..1],
            _ => &self.addresses,
        }
    }

    /// Returns the GID indices of the port whose addresses have the family of this one.
    pub(crate) fn indices_of_family(&self, ip: IpAddr) -> Vec<u32> {
        let all = addresses(&self.context, self.port_num, self.link).unwrap_or_default();
        let all = all.0.into_iter();
        let of_family = all.filter(|a| a.ip.is_some_and(|other| other.is_ipv4() == ip.is_ipv4()));
        of_family.filter_map(|a| a.gid_index).collect()
    }

    /// Restricts the addresses to the one with this GID index, if an index is given.
    ///
    /// # Errors
    /// Returns an error with the available indices if there is no such GID.
    pub(crate) fn with_gid_index(mut self, index: Option<u8>) -> Result<Self> {
        let Some(index) = index else { return Ok(self) };
        let available: Vec<String> = self
            .addresses
            .iter()
            .filter_map(|a| a.gid_index)
            .map(|i| i.to_string())
            .collect();
        self.addresses.retain(|a| a.gid_index == Some(index.into()));
        if self.addresses.is_empty() {
            return Err(Error::device(format!(
                "no GID {index} on {} port {}; available: {}",
                self.context.device_name(),
                self.port_num,
                if available.is_empty() {
                    "none".to_owned()
                } else {
                    available.join(", ")
                }
            ))
            .with_help("set --gid-index to an available index, or omit it"));
        }
        Ok(self)
    }
}
