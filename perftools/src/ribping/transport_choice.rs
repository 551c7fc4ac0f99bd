//! Choice of the transport by link layer and target.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use base::device_id::is_iwarp;
use base::error::{Error, Result};
use ibumad::{Address, Ca, ErrorKind, Gid, GlobalRoute, Lid, Port, PortAttr, PortState};
use ibverbs::{Device, Errno, device::TransportType};
use nix::libc;
use rdmacm::Resolver;

use super::args::{PingArgs, TransportArg};
use super::rping::client::RpingClient;
use super::target::Target;
use super::transport::PingTransport;
use super::umad::UmadPinger;
use crate::ribinfo::display::no_device;

/// Opens the transport to a target.
///
/// # Errors
/// - [`Kind::Usage`](base::error::Kind::Usage) if the options exclude each other.
/// - [`Kind::Device`](base::error::Kind::Device) if no port reaches the target.
/// - Other kinds if resolving the target or connecting to it fails.
pub(super) fn choose(target: &Target, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    check_devices()?;
    match (target, args.via) {
        (Target::Lid(_) | Target::Guid(_), TransportArg::RdmaCm) => Err(Error::usage(
            "--via rdma_cm: cannot connect to a LID or GUID; expected a host or GID",
        )),
        (Target::Lid(lid), _) => by_lid(*lid, args),
        (Target::Guid(guid), _) => {
            let ports = ports(args)?;
            let port = infiniband(&ports)
                .or_else(|| ethernet(&ports))
                .ok_or_else(|| no_port(args, "InfiniBand or RoCE"))?;
            by_gid(
                Gid::from_parts(port.gid_prefix, *guid).as_ipv6(),
                port,
                args,
            )
        }
        (Target::Host(host), TransportArg::Umad) => Err(Error::usage(format!(
            "--via umad: cannot send management datagrams to the host `{host}`; expected a LID, GUID or GID"
        ))),
        (Target::Host(host), _) => connect(host_address(host, args.cm_port)?, host, args),
        (Target::Gid(gid), TransportArg::RdmaCm) => {
            connect(gid_address(*gid, args.cm_port), &gid.to_string(), args)
        }
        (Target::Gid(gid), via) => to_gid(*gid, via == TransportArg::Umad, args),
    }
}

/// Returns an error if this host has no RDMA device. The calls that follow name a library that
/// cannot be loaded.
pub(super) fn check_devices() -> Result<()> {
    let has_adapter = Ca::names().map_or(true, |names| !names.is_empty());
    // Without the module ib_uverbs it is ENOSYS.
    let has_device = Device::list().map_or_else(
        |error| error.errno() != Some(Errno(libc::ENOSYS)),
        |devices| !devices.is_empty(),
    );
    if has_adapter || has_device {
        return Ok(());
    }
    Err(no_device())
}

fn by_lid(lid: Lid, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    let ports = ports(args)?;
    let port = infiniband(&ports).ok_or_else(|| no_port(args, "InfiniBand"))?;
    datagrams(
        port,
        Address::lid(lid),
        format!("Lid {lid}"),
        Some(lid),
        args,
    )
}

/// Opens the transport to a GID: a port in the InfiniBand subnet, a RoCE port, or the address of an
/// iWARP host.
fn to_gid(gid: Ipv6Addr, only_datagrams: bool, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    // With Soft-RoCE, the reply to a datagram between IPv4-mapped GIDs does not reach the sender. A
    // connection works.
    if gid.to_ipv4_mapped().is_some() && !only_datagrams {
        return connect(gid_address(gid, args.cm_port), &gid.to_string(), args);
    }
    let ports = ports(args).unwrap_or_default();
    let prefix = u64::try_from(gid.to_bits() >> 64).unwrap_or(0);
    if let Some(port) = infiniband(&ports).filter(|port| port.gid_prefix == prefix) {
        return by_gid(gid, port, args);
    }
    // Find the device by the system's routes, unless -C selects one. A link-local address has no
    // route.
    let is_local = gid.is_unicast_link_local();
    if args.ca.is_none() && !is_local {
        let route = Resolver::new(gid_address(gid, args.cm_port))
            .timeout(args.reply_timeout())
            .resolve();
        match route {
            Ok(route) if route.transport() == TransportType::IWARP && !only_datagrams => {
                drop(route);
                return connect(gid_address(gid, args.cm_port), &gid.to_string(), args);
            }
            Ok(route) => {
                let found = ports.iter().find(|port| {
                    port.ca_name == route.device_name() && port.port_num == route.port_num()
                });
                if let Some(port) = found {
                    return by_gid(gid, port, args);
                }
            }
            Err(error) if ethernet(&ports).is_none() => {
                return Err(error.into());
            }
            Err(_) => {}
        }
    }
    let port = ethernet(&ports).ok_or_else(|| no_port(args, "RoCE"))?;
    by_gid(gid, port, args)
}

/// Opens datagrams from `port` to a GID: on InfiniBand with the path from the subnet manager, on
/// RoCE with the GID itself.
fn by_gid(gid: Ipv6Addr, port: &PortAttr, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    if port.link_layer.is_ethernet() {
        let index = source_gid(gid, port)?;
        return datagrams(
            port,
            Address::gid(gid.into(), index),
            format!("Gid {gid}"),
            None,
            args,
        );
    }
    let open = open_port(port)?;
    let sa = open.subnet_administration(args.sm_port.map(Lid))?;
    let path = sa
        .path(gid.into())
        .map_err(|error| Error::from(error).context(format!("find a path to {gid}")))?;
    let to = Address::lid(path.dlid()).sl(path.sl());
    let to = if path.hop_limit() > 1 {
        to.route(GlobalRoute::new(gid.into(), 0))
    } else {
        to
    };
    let lid = path.dlid();
    datagrams(port, to, format!("Lid {lid}"), Some(lid), args)
}

fn datagrams(
    port: &PortAttr,
    to: Address,
    target: String,
    lid: Option<Lid>,
    args: &PingArgs,
) -> Result<Box<dyn PingTransport>> {
    if args.size.is_some() {
        return Err(
            Error::usage("--size: management datagrams always have 256 bytes")
                .with_help("add --via rdma_cm to ping over a connection"),
        );
    }
    let open = open_port(port)?;
    let timeout = args.reply_timeout();
    Ok(Box::new(UmadPinger::new(
        &open,
        to,
        target,
        args.oui()?,
        timeout,
        lid,
    )?))
}

/// Opens a port for management datagrams.
fn open_port(port: &PortAttr) -> Result<Port> {
    Port::open(&port.ca_name, port.port_num).map_err(|error| {
        if error.kind() == ErrorKind::PermissionDenied {
            Error::device(format!(
                "open {} port {} for management datagrams: this needs root",
                port.ca_name, port.port_num
            ))
            .with_help("run as root, or ping a host over a connection, which needs no privileges: `ribping --via rdma_cm HOST`")
        } else {
            error.into()
        }
    })
}

fn connect(to: SocketAddr, name: &str, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    Ok(Box::new(RpingClient::connect(to, name, args)?))
}

/// Returns the index of the local GID to send from: one of the same kind as `to`, preferably with
/// the longest common prefix.
fn source_gid(to: Ipv6Addr, port: &PortAttr) -> Result<u8> {
    let context = Device::by_name(&port.ca_name).and_then(|device| device.open())?;
    let gids = context.gids(port.port_num)?;
    let kind = |gid: Ipv6Addr| (gid.is_unicast_link_local(), gid.to_ipv4_mapped().is_some());
    let best = gids
        .iter()
        .filter(|entry| kind(entry.gid.as_ipv6()) == kind(to))
        .max_by_key(|entry| {
            let common = (entry.gid.as_ipv6().to_bits() ^ to.to_bits()).leading_zeros();
            (
                common,
                entry.kind == ibverbs::gid::GidType::ROCE_V2,
                std::cmp::Reverse(entry.index),
            )
        });
    best.map(|entry| entry.index.0).ok_or_else(|| {
        Error::device(format!(
            "send to {to}: {} port {} has no GID of the same kind",
            port.ca_name, port.port_num
        ))
        .with_help("list the GIDs with `ribinfo gids`; an IP address on the port's network interface adds one")
    })
}

/// Returns the ports selected by -C and -P.
fn ports(args: &PingArgs) -> Result<Vec<PortAttr>> {
    let names = match &args.ca {
        Some(name) => vec![name.clone()],
        None => Ca::names()?,
    };
    let mut all = Vec::new();
    for name in names {
        // libibumad prints a warning about a device without partition keys.
        if is_iwarp(&name) {
            continue;
        }
        match Ca::by_name(&name) {
            Ok(ca) => all.extend(ca.ports),
            Err(error) if args.ca.is_some() => {
                let names = Ca::names()?.join(", ");
                return Err(match error.kind() {
                    ErrorKind::NotFound => {
                        Error::device(format!("no RDMA device named `{name}`; available: {names}"))
                    }
                    _ => Error::from(error).context(format!("choose the device {name}")),
                });
            }
            Err(_) => {}
        }
    }
    Ok(all
        .into_iter()
        .filter(|port| args.port.is_none_or(|number| number == port.port_num))
        .collect())
}

fn infiniband(ports: &[PortAttr]) -> Option<&PortAttr> {
    best(ports, |port| port.link_layer.is_infiniband())
}

fn ethernet(ports: &[PortAttr]) -> Option<&PortAttr> {
    best(ports, |port| port.link_layer.is_ethernet())
}

/// Returns the first active port that matches, otherwise the first one that matches.
fn best(ports: &[PortAttr], matches: impl Fn(&PortAttr) -> bool) -> Option<&PortAttr> {
    let mut candidates = ports.iter().filter(|port| matches(port));
    let first = candidates.clone().next();
    candidates
        .find(|port| port.state == PortState::ACTIVE)
        .or(first)
}

fn no_port(args: &PingArgs, kind: &str) -> Error {
    let selection = match (&args.ca, args.port) {
        (Some(ca), Some(port)) => format!(" on {ca} port {port}"),
        (Some(ca), None) => format!(" on {ca}"),
        (None, Some(port)) => format!(" with the number {port}"),
        (None, None) => " on this host".to_owned(),
    };
    Error::device(format!("choose a port: no {kind} port{selection}"))
        .with_help("list the ports with `ribinfo stat`; to ping a host, use its name or IP address")
}

fn host_address(host: &str, port: u16) -> Result<SocketAddr> {
    let unknown = |e| {
        Error::system(format!("resolve the host name {host}"), &e)
            .with_help("check the spelling; for a port GUID, add -G")
    };
    let mut found = (host, port).to_socket_addrs().map_err(unknown)?;
    found
        .next()
        .ok_or_else(|| Error::usage(format!("resolve the host name {host}: it has no address")))
}

fn gid_address(gid: Ipv6Addr, port: u16) -> SocketAddr {
    match gid.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(IpAddr::V4(v4), port),
        None => SocketAddrV6::new(gid, port, 0, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_mapped_gids_become_ipv4_addresses() {
        let address = |text: &str| gid_address(text.parse().expect("a GID"), 7174).to_string();
        assert_eq!(address("::ffff:10.99.0.1"), "10.99.0.1:7174");
        assert_eq!(address("fd99::1"), "[fd99::1]:7174");
    }
}
