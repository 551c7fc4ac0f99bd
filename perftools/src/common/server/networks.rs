//! The networks whose clients are served.

use std::net::IpAddr;

use ipnet::IpNet;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};

use crate::common::error::{Error, Result};

/// Checks that a client with this address may be served: it is on this host, in one of the
/// networks, or there are no networks.
///
/// # Errors
/// Returns an error if the address belongs to none of the networks.
pub fn admit(networks: &[IpNet], peer: IpAddr) -> Result<()> {
    let peer = peer.to_canonical();
    if networks.is_empty() || is_this_host(peer) || networks.iter().any(|net| net.contains(&peer)) {
        return Ok(());
    }
    Err(Error::limit(format!("clients at {peer} are not allowed"))
        .with_help("add the network to --allow on the server"))
}

/// Returns `true` if the address belongs to this host.
fn is_this_host(ip: IpAddr) -> bool {
    let has_address = |interface: InterfaceAddress| {
        let Some(address) = interface.address else {
            return false;
        };
        match ip {
            IpAddr::V4(ip) => address.as_sockaddr_in().is_some_and(|a| a.ip() == ip),
            IpAddr::V6(ip) => address.as_sockaddr_in6().is_some_and(|a| a.ip() == ip),
        }
    };
    ip.is_loopback() || getifaddrs().is_ok_and(|mut all| all.any(has_address))
}
