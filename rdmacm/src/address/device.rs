//! Selection of a local address from the addresses of a device.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use ibverbs::{Device, Error, ErrorKind, Result};
use nix::ifaddrs::getifaddrs;

use crate::address::Address;

/// Selects the address of `device` from which to reach `peer`, or on which to listen if `peer` is
/// unspecified. Returns `requested` if the device has it, otherwise the first address of the
/// peer's family, preferably of the same scope (link-local or global).
pub(crate) fn choose(device: &str, peer: Address, requested: Option<Address>) -> Result<Address> {
    let Address::Ip(peer) = peer else {
        return requested.ok_or_else(|| {
            let detail = format!("{peer} over {device}: no source GID");
            Error::new(ErrorKind::InvalidInput, "rdma_bind_addr", detail)
        });
    };
    let addresses = device_addresses(device)?;
    let has_address = |address: &SocketAddr| addresses.iter().any(|own| own.ip() == address.ip());
    match requested {
        Some(Address::Ip(requested)) if has_address(&requested) => return Ok(requested.into()),
        Some(requested) => return Err(missing_address(device, &addresses, &requested.to_string())),
        None => {}
    }
    let link_local = is_link_local(peer.ip());
    let mut candidates = addresses
        .iter()
        .filter(|own| own.is_ipv4() == peer.is_ipv4());
    let address = candidates
        .clone()
        .find(|own| is_link_local(own.ip()) == link_local)
        .or_else(|| candidates.next());
    match address {
        Some(own) => Ok((*own).into()),
        None => Err(missing_address(
            device,
            &addresses,
            if peer.is_ipv4() {
                "an IPv4 address"
            } else {
                "an IPv6 address"
            },
        )),
    }
}

fn missing_address(device: &str, addresses: &[SocketAddr], wanted: &str) -> Error {
    let error = Error::new(
        ErrorKind::NotFound,
        "rdma_bind_addr",
        format!("{device} does not have {wanted}"),
    );
    if addresses.is_empty() {
        return error
            .with_help("its network interface has no address; add one with `ip address add`");
    }
    let addresses: Vec<String> = addresses.iter().map(|own| own.ip().to_string()).collect();
    error.with_help(format!("available: {}", addresses.join(", ")))
}

/// Returns the addresses of the network interfaces behind a device's ports.
fn device_addresses(device: &str) -> Result<Vec<SocketAddr>> {
    let context = Device::by_name(device)?.open()?;
    let ports = context.query_device()?.phys_port_cnt;
    let netdevs: Vec<String> = (1..=ports)
        .filter_map(|port_num| context.netdev(port_num))
        .collect();
    let entries = getifaddrs().map_err(|errno| {
        ibverbs::call_failed(
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
