//! The networks whose clients are served.

use std::net::IpAddr;

use base::error::{Error, Result};
use ipnet::IpNet;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};

/// Checks that a client with this address may be served: it is on this host, in one of the
/// networks, or there are no networks.
pub fn admit(networks: &[IpNet], peer: IpAddr) -> Result<()> {
    let peer = peer.to_canonical();
    if contain(networks, peer) || is_this_host(peer) {
        return Ok(());
    }
    Err(Error::limit(format!("clients at {peer} are not allowed"))
        .with_help("add the network to --allow on the server"))
}

/// Returns `true` if the address is in one of the networks, or if there are none.
pub(crate) fn contain(networks: &[IpNet], ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    networks.is_empty() || networks.iter().any(|net| net.contains(&ip))
}

/// Checks that this host may send the data of a test to `target`, an address that the client at
/// `peer` named: it is the client's own or link-local, a network of this host contains it, it is in
/// one of `networks`, or there are none. Otherwise a client could make this host send to any other.
pub(crate) fn admit_target(networks: &[IpNet], peer: IpAddr, target: IpAddr) -> Result<()> {
    let target = target.to_canonical();
    let is_link_local = match target {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if target == peer.to_canonical()
        || is_link_local
        || is_on_link(target)
        || admit(networks, target).is_ok()
    {
        return Ok(());
    }
    Err(Error::limit(format!(
        "the client's RDMA address {target} is neither in an allowed network nor in one of this host"
    ))
    .with_help("add its network to --allow on the server"))
}

/// Returns `true` if a network of one of this host's interfaces contains the address.
fn is_on_link(ip: IpAddr) -> bool {
    let contains_ip = |interface: InterfaceAddress| {
        let (Some(address), Some(mask)) = (interface.address, interface.netmask) else {
            return false;
        };
        match ip {
            IpAddr::V4(ip) => {
                let (Some(own), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in())
                else {
                    return false;
                };
                (ip.to_bits() ^ own.ip().to_bits()) & mask.ip().to_bits() == 0
            }
            IpAddr::V6(ip) => {
                let (Some(own), Some(mask)) = (address.as_sockaddr_in6(), mask.as_sockaddr_in6())
                else {
                    return false;
                };
                (ip.to_bits() ^ own.ip().to_bits()) & mask.ip().to_bits() == 0
            }
        }
    };
    getifaddrs().is_ok_and(|mut all| all.any(contains_ip))
}

/// Returns `true` if the address belongs to this host.
pub fn is_this_host(ip: IpAddr) -> bool {
    ip.is_loopback() || interface_addresses().contains(&ip)
}

/// Returns the addresses of the interfaces of this host.
pub fn interface_addresses() -> Vec<IpAddr> {
    let ip = |interface: InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    };
    getifaddrs().map_or_else(|_| Vec::new(), |all| all.filter_map(ip).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(networks: &[&str], target: &str) -> bool {
        let networks: Vec<IpNet> = networks.iter().map(|net| net.parse().unwrap()).collect();
        let peer = "::ffff:198.51.100.7".parse().unwrap();
        admit_target(&networks, peer, target.parse().unwrap()).is_ok()
    }

    #[test]
    fn data_is_sent_to_addresses_of_allowed_networks_only() {
        let allowed = ["192.0.2.0/24"];
        for (target, is_admitted) in [
            // The client itself.
            ("198.51.100.7", true),
            ("192.0.2.9", true),
            ("169.254.3.4", true),
            ("fe80::1", true),
            // In a network of the loopback interface.
            ("127.8.8.8", true),
            ("198.51.100.8", false),
            ("203.0.113.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(admits(&allowed, target), is_admitted, "{target}");
        }
        assert!(admits(&[], "203.0.113.1"));
    }
}
