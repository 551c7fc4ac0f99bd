//! A group of receivers, joined by rdma_cm: what the client sends once, each of the server's queue
//! pairs gets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rdmacm::Resolver;
use rdmacm::datagram::multicast::{JoinAs, Membership};

use crate::common::error::Result;
use crate::common::system::random;

/// Joins the group by the interface of `device`: the fabric brings its messages here from now on.
pub(super) fn join(group: IpAddr, device: &str, timeout: Duration) -> Result<Membership> {
    let resolver = Resolver::new(SocketAddr::new(group, 0))
        .device(device)
        .timeout(timeout);
    Ok(resolver.join(JoinAs::FULL_MEMBER)?)
}

/// A group that hardly anybody else uses, of those that stay within a site (239.255.0.0/16, RFC
/// 2365).
pub(super) fn any_group() -> IpAddr {
    let [a, b, ..] = random().to_le_bytes();
    Ipv4Addr::new(239, 255, a, b.max(1)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_by_chance_is_a_multicast_address() {
        for _ in 0..100 {
            assert!(any_group().is_multicast());
        }
    }
}
