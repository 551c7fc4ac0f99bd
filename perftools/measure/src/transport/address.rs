//! Selects a pair of addresses that can reach each other.

use std::cmp::Reverse;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::ControlAddrs;

/// An address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortAddress {
    /// IP address; `None` if the LID is the address, on InfiniBand.
    pub ip: Option<IpAddr>,
    /// Length of the network prefix in bits; 0 if unknown.
    pub prefix: u8,
    /// Index of the GID, if the port has GIDs.
    pub gid_index: Option<u32>,
}

impl PortAddress {
    /// The address of an InfiniBand port.
    pub(super) const LID: Self = Self {
        ip: None,
        prefix: 0,
        gid_index: None,
    };
}

/// Returns the length of the common prefix in bits; `None` if the families differ.
fn common_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        _ => None,
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Returns the indices of the addresses of this end and of the peer that most likely reach each
/// other. Both have the same family.
///
/// In this order, the function prefers:
/// 1. the addresses of the control connection
/// 2. global to link-local addresses
/// 3. addresses in the same subnet
/// 4. IPv4 to IPv6, if they are in the same subnet
/// 5. the longest common prefix, if they are not
pub fn choose(
    local: &[PortAddress],
    remote: &[PortAddress],
    control: ControlAddrs,
) -> Option<(usize, usize)> {
    let score = |a: &PortAddress, b: &PortAddress| match (a.ip, b.ip) {
        (None, None) => Some((0, false, false, false, 0)),
        (Some(x), Some(y)) => {
            let bits = common_bits(x, y)?;
            // A single matching end of the control connection already identifies the network.
            let on_control = u8::from(x == control.local) + u8::from(y == control.peer);
            let prefix = u32::from(a.prefix.min(b.prefix));
            let subnet = prefix > 0 && bits >= prefix;
            // Within a subnet the length of the common prefix means nothing.
            let similarity = if subnet {
                0
            } else {
                bits * 1000 / if x.is_ipv4() { 32 } else { 128 }
            };
            Some((
                on_control,
                !is_link_local(x) && !is_link_local(y),
                subnet,
                x.is_ipv4() && subnet,
                similarity,
            ))
        }
        _ => None,
    };
    let mut best = None;
    for (i, a) in local.iter().enumerate() {
        for (j, b) in remote.iter().enumerate() {
            if let Some(score) = score(a, b) {
                best = best.max(Some((score, Reverse((i, j)))));
            }
        }
    }
    best.map(|(_, Reverse(pair))| pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(list: &[&str]) -> Vec<PortAddress> {
        let one = |(index, text): (u32, &&str)| {
            let (ip, prefix) = text.split_once('/').unwrap();
            PortAddress {
                ip: Some(ip.parse().unwrap()),
                prefix: prefix.parse().unwrap(),
                gid_index: Some(index),
            }
        };
        (0..).zip(list).map(one).collect()
    }

    fn control(local: &str, peer: &str) -> ControlAddrs {
        ControlAddrs {
            local: local.parse().unwrap(),
            peer: peer.parse().unwrap(),
        }
    }

    fn chosen(local: &[&str], remote: &[&str], control: ControlAddrs) -> Option<(usize, usize)> {
        choose(&candidates(local), &candidates(remote), control)
    }

    const A: &[&str] = &["fe80::1/64", "10.1.0.1/24", "fd01::1/64", "192.168.7.1/24"];
    const B: &[&str] = &["fe80::2/64", "fd01::2/64", "192.168.7.2/24", "10.1.0.2/24"];

    #[test]
    fn addresses_of_ipoib_are_preferred_if_both_ends_have_them() {
        let addresses = control("10.1.0.1", "10.1.0.2");
        let port = |list| [vec![PortAddress::LID], candidates(list)].concat();
        assert_eq!(choose(&port(A), &port(B), addresses), Some((2, 4)));
        assert_eq!(choose(&port(A), &port(&[]), addresses), Some((0, 0)));
        assert_eq!(choose(&port(&[]), &port(B), addresses), Some((0, 0)));
    }

    #[test]
    fn addresses_of_the_control_connection_are_preferred() {
        assert_eq!(chosen(A, B, control("fd01::1", "fd01::2")), Some((2, 1)));
        assert_eq!(
            chosen(A, B, control("192.168.7.1", "192.168.7.2")),
            Some((3, 2))
        );
        assert_eq!(chosen(A, B, control("172.16.0.1", "fd01::2")), Some((2, 1)));
    }

    #[test]
    fn a_shared_subnet_is_preferred_and_ipv4_in_it() {
        let h = control("172.16.0.1", "172.16.0.2");
        assert_eq!(chosen(A, B, h), Some((1, 3)));
        assert_eq!(
            chosen(
                &["10.9.0.1/24", "fd01::1/64"],
                &["10.1.0.2/24", "fd01::2/64"],
                h
            ),
            Some((1, 1))
        );
    }

    #[test]
    fn link_local_addresses_are_the_last_resort() {
        let h = control("127.0.0.1", "127.0.0.1");
        assert_eq!(
            chosen(
                &["fe80::1/64", "10.0.0.1/8"],
                &["fe80::1/64", "10.0.0.1/8"],
                h
            ),
            Some((1, 1))
        );
        assert_eq!(chosen(&["fe80::1/64"], &["fe80::2/64"], h), Some((0, 0)));
    }

    #[test]
    fn addresses_of_different_families_never_match() {
        let h = control("10.0.0.1", "10.0.0.2");
        assert_eq!(chosen(&["10.0.0.1/24"], &["fd00::1/64"], h), None);
        assert_eq!(chosen(&[], B, h), None);
    }

    #[test]
    fn a_device_reaches_itself_by_one_address() {
        for h in [control("127.0.0.1", "127.0.0.1"), control("::1", "::1")] {
            let (i, j) = chosen(A, A, h).unwrap();
            assert_eq!(i, j);
        }
    }
}
