//! Multicast groups, joined with rdma_cm. Every queue pair of the server receives each message of
//! the client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::error::Result;
use base::system::random;
use rdmacm::Resolver;
use rdmacm::datagram::multicast::{JoinAs, Membership};

/// Joins the group through the interface of `device`. From then on the fabric delivers its messages
/// to this host.
pub(super) fn join(group: IpAddr, device: &str, timeout: Duration) -> Result<Membership> {
    let resolver = Resolver::new(SocketAddr::new(group, 0))
        .device(device)
        .timeout(timeout);
    Ok(resolver.join(JoinAs::FULL_MEMBER)?)
}

/// Returns a group chosen at random from 239.255.0.0/16, the IPv4 Local Scope of RFC 2365.
pub(super) fn random_group() -> IpAddr {
    let [a, b, ..] = random().to_le_bytes();
    Ipv4Addr::new(239, 255, a, b.max(1)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_group_is_a_multicast_address() {
        for _ in 0..100 {
            assert!(random_group().is_multicast());
        }
    }
}
