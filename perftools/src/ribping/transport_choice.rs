//! Which way to go: by link layer and target.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use ibumad::{Address, Ca, Gid, Lid, Port, PortAttr, PortState};
use ibverbs::{Device, device::TransportType};
use rdmacm::Resolver;

use super::args::{PingArgs, TransportArg};
use super::rping::client::RpingClient;
use super::target::Target;
use super::transport::PingTransport;
use super::umad::UmadPinger;
use crate::common::error::{Error, Result};

/// The way to this target.
///
/// # Errors
/// There is none from here; the text says why.
pub fn choose(target: &Target, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    match (target, args.via) {
        (Target::Lid(_) | Target::Guid(_), TransportArg::RdmaCm) => Err(Error::usage(
            "rdma_cm goes to a host or GID, not to a LID or GUID",
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
            "`{host}` is a host: management datagrams go to a LID, GUID or GID"
        ))),
        (Target::Host(host), _) => connect(host_address(host, args.cm_port)?, host, args),
        (Target::Gid(gid), TransportArg::RdmaCm) => {
            connect(gid_address(*gid, args.cm_port), &gid.to_string(), args)
        }
        (Target::Gid(gid), via) => to_gid(*gid, via == TransportArg::Umad, args),
    }
}

fn by_lid(lid: Lid, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    let ports = ports(args)?;
    let port = infiniband(&ports).ok_or_else(|| no_port(args, "InfiniBand"))?;
    datagrams(port, Address::lid(lid), format!("Lid {lid}"), args)
}

/// A GID: of an InfiniBand subnet, of RoCE, or of an iWARP host that has this address.
fn to_gid(gid: Ipv6Addr, only_datagrams: bool, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    // The answer to a datagram between IPv4-mapped GIDs does not reach who asked (Soft-RoCE): a
    // connection does.
    if gid.to_ipv4_mapped().is_some() && !only_datagrams {
        return connect(gid_address(gid, args.cm_port), &gid.to_string(), args);
    }
    let ports = ports(args).unwrap_or_default();
    let prefix = u64::try_from(gid.to_bits() >> 64).unwrap_or(0);
    if let Some(port) = infiniband(&ports).filter(|port| port.gid_prefix == prefix) {
        return by_gid(gid, port, args);
    }
    // The system's routes know the device. A link-local address has none, nor has a device that was
    // named.
    let is_local = gid.is_unicast_link_local();
    if args.ca.is_none() && !is_local {
        let route = Resolver::new(gid_address(gid, args.cm_port))
            .timeout(args.patience())
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

/// By datagrams from this port: on InfiniBand along the subnet manager's path, on RoCE by the GID.
fn by_gid(gid: Ipv6Addr, port: &PortAttr, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    if port.link_layer.is_ethernet() {
        let index = own_gid(gid, port)?;
        return datagrams(
            port,
            Address::gid(gid.into(), index),
            format!("Gid {gid}"),
            args,
        );
    }
    let open = Port::open(&port.ca_name, port.port_num)?;
    let sa = open.subnet_administration(args.sm_port.map(Lid))?;
    let path = sa
        .path(gid.into())
        .map_err(|error| Error::from(error).context(format!("no path to {gid}")))?;
    let to = Address {
        sl: path.sl(),
        ..Address::lid(path.dlid())
    };
    let to = if path.hop_limit() > 1 {
        Address {
            route: Address::gid(gid.into(), 0).route,
            ..to
        }
    } else {
        to
    };
    datagrams(port, to, format!("Lid {}", path.dlid()), args)
}

fn datagrams(
    port: &PortAttr,
    to: Address,
    target: String,
    args: &PingArgs,
) -> Result<Box<dyn PingTransport>> {
    if args.size.is_some() {
        return Err(Error::usage(
            "--size is for pings over a connection (--via rdma_cm): a management datagram has 256 bytes",
        ));
    }
    let open = Port::open(&port.ca_name, port.port_num)?;
    Ok(Box::new(UmadPinger::new(
        &open,
        to,
        target,
        args.oui()?,
        args.patience(),
    )?))
}

fn connect(to: SocketAddr, called: &str, args: &PingArgs) -> Result<Box<dyn PingTransport>> {
    Ok(Box::new(RpingClient::connect(to, called, args)?))
}

/// The index of the own GID from which `to` can be reached: of its kind, best with the longest
/// common prefix.
fn own_gid(to: Ipv6Addr, port: &PortAttr) -> Result<u8> {
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
            "{} port {} has no GID from which {to} could be reached; `ribinfo gids` lists those it has, an address on its network interface adds one",
            port.ca_name, port.port_num
        ))
    })
}

/// The ports that -C and -P allow.
fn ports(args: &PingArgs) -> Result<Vec<PortAttr>> {
    let names = match &args.ca {
        Some(name) => vec![name.clone()],
        None => Ca::names()?,
    };
    let mut all = Vec::new();
    for name in names {
        match Ca::by_name(&name) {
            Ok(ca) => all.extend(ca.ports),
            Err(error) if args.ca.is_some() => return Err(error.into()),
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

/// The first active one of a kind, else the first one.
fn best(ports: &[PortAttr], is_it: impl Fn(&PortAttr) -> bool) -> Option<&PortAttr> {
    let mut of_kind = ports.iter().filter(|port| is_it(port));
    let first = of_kind.clone().next();
    of_kind
        .find(|port| port.state == PortState::ACTIVE)
        .or(first)
}

fn no_port(args: &PingArgs, kind: &str) -> Error {
    let which = match (&args.ca, args.port) {
        (Some(ca), Some(port)) => format!(" at {ca} port {port}"),
        (Some(ca), None) => format!(" at {ca}"),
        (None, Some(port)) => format!(" with the number {port}"),
        (None, None) => " here".to_owned(),
    };
    Error::device(format!(
        "no {kind} port{which}; `ribinfo stat` lists the ports; a host is pinged by its name or IP address"
    ))
}

fn host_address(host: &str, port: u16) -> Result<SocketAddr> {
    let unknown = |e| {
        Error::system(
            format!(
                "no host {host} is known here, nor is it a GID or, with -L or -G, a LID or GUID"
            ),
            &e,
        )
    };
    let mut found = (host, port).to_socket_addrs().map_err(unknown)?;
    found
        .next()
        .ok_or_else(|| Error::usage(format!("{host} has no address")))
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
    fn a_mapped_gid_is_an_ipv4_host() {
        let address = |text: &str| gid_address(text.parse().expect("a GID"), 7174).to_string();
        assert_eq!(address("::ffff:10.99.0.1"), "10.99.0.1:7174");
        assert_eq!(address("fd99::1"), "[fd99::1]:7174");
    }
}
