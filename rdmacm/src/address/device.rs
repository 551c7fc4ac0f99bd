//! The addresses of a device: binding to a device is binding to one of them.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use ibverbs::{Device, Error, ErrorKind, Result};
use nix::ifaddrs::getifaddrs;

use crate::address::Address;

/// The address of `device` to reach `peer` from (or to listen on, where `peer` is unspecified): the
/// one asked for if the device has it, else the first of the peer's family.
pub(crate) fn choose(device: &str, peer: Address, asked: Option<Address>) -> Result<Address> {
    let Address::Ip(peer) = peer else {
        return asked.ok_or_else(|| {
            let what = format!("{peer} over {device}: the source GID is missing");
            Error::new(ErrorKind::InvalidInput, "rdma_bind_addr", what)
        });
    };
    let all = addresses(device)?;
    let named = |address: &SocketAddr| all.iter().any(|own| own.ip() == address.ip());
    match asked {
        Some(Address::Ip(asked)) if named(&asked) => return Ok(asked.into()),
        Some(asked) => return Err(missing(device, &all, &asked.to_string())),
        None => {}
    }
    let link_local = is_link_local(peer.ip());
    let mut fitting = all.iter().filter(|own| own.is_ipv4() == peer.is_ipv4());
    let found = fitting
        .clone()
        .find(|own| is_link_local(own.ip()) == link_local)
        .or_else(|| fitting.next());
    match found {
        Some(own) => Ok((*own).into()),
        None => Err(missing(
            device,
            &all,
            if peer.is_ipv4() {
                "an IPv4 address"
            } else {
                "an IPv6 address"
            },
        )),
    }
}

fn missing(device: &str, all: &[SocketAddr], wanted: &str) -> Error {
    let error = Error::new(
        ErrorKind::NotFound,
        "rdma_bind_addr",
        format!("{device} has not {wanted}"),
    );
    if all.is_empty() {
        return error
            .with_hint("its network interface has no address: give it one with `ip address add`");
    }
    let all: Vec<String> = all.iter().map(|own| own.ip().to_string()).collect();
    error.with_hint(format!("it has {}", all.join(", ")))
}

/// The addresses of the network interfaces behind a device's ports.
fn addresses(device: &str) -> Result<Vec<SocketAddr>> {
    let context = Device::by_name(device)?.open()?;
    let ports = context.query_device()?.phys_port_cnt;
    let netdevs: Vec<String> = (1..=ports)
        .filter_map(|port_num| context.netdev(port_num))
        .collect();
    let entries = getifaddrs().map_err(|errno| {
        Error::of_verb(
            "getifaddrs",
            ibverbs::Errno(errno as i32),
            format!("addresses of {device}"),
        )
    })?;
    Ok(entries
        .filter(|entry| netdevs.contains(&entry.interface_name))
        .filter_map(|entry| entry.address)
        .filter_map(
            |address| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(SocketAddr::new(IpAddr::V4(v4.ip()), 0)),
                (_, Some(v6)) => Some(SocketAddrV6::new(v6.ip(), 0, 0, v6.scope_id()).into()),
                _ => None,
            },
        )
        .collect())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}
