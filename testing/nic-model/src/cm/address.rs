//! Addresses of identifiers, as `sockaddr` structures have them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::abi::rdma_cm::STORAGE;
use crate::errno::{Errno, Result};

const INET: u16 = 2;
const INET6: u16 = 10;
/// `AF_IB`, the family of GIDs.
const IB: u16 = 27;
/// Size of `struct sockaddr_ib`.
const IB_SIZE: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unspecified,
    Ip(SocketAddr),
    /// An address of the family `AF_IB`, uninterpreted.
    Ib([u8; IB_SIZE]),
}

impl Address {
    /// Reads a structure. Fails with `EINVAL` if its family is unknown.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let two = |at: usize| [bytes[at], bytes[at + 1]];
        let port = u16::from_be_bytes(two(2));
        match u16::from_ne_bytes(two(0)) {
            0 => Ok(Self::Unspecified),
            INET => {
                let ip: [u8; 4] = bytes[4..8].try_into().expect("four bytes");
                Ok(Self::Ip(SocketAddrV4::new(ip.into(), port).into()))
            }
            INET6 => {
                let four = |at: usize| bytes[at..at + 4].try_into().expect("four bytes");
                let ip: [u8; 16] = bytes[8..24].try_into().expect("16 bytes");
                let flow = u32::from_be_bytes(four(4));
                let scope = u32::from_ne_bytes(four(24));
                Ok(Self::Ip(
                    SocketAddrV6::new(ip.into(), port, flow, scope).into(),
                ))
            }
            IB if bytes.len() >= IB_SIZE => {
                Ok(Self::Ib(bytes[..IB_SIZE].try_into().expect("the size")))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Reads a structure whose size the program names. Fails with `EINVAL` if it is not its size.
    pub(crate) fn parse_sized(bytes: &[u8], size: u16) -> Result<Self> {
        let address = Self::parse(bytes)?;
        if usize::from(size) != address.size() {
            return Err(Errno::EINVAL);
        }
        Ok(address)
    }

    /// Returns the size of the structure in bytes, or 0 if there is no address.
    pub(crate) const fn size(&self) -> usize {
        match self {
            Self::Unspecified => 0,
            Self::Ip(SocketAddr::V4(_)) => 16,
            Self::Ip(SocketAddr::V6(_)) => 28,
            Self::Ib(_) => IB_SIZE,
        }
    }

    /// Returns the structure, and 0 behind it.
    pub(crate) fn to_storage(self) -> [u8; STORAGE] {
        let mut bytes = [0; STORAGE];
        match self {
            Self::Unspecified => {}
            Self::Ip(SocketAddr::V4(address)) => {
                bytes[..2].copy_from_slice(&INET.to_ne_bytes());
                bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
                bytes[4..8].copy_from_slice(&address.ip().octets());
            }
            Self::Ip(SocketAddr::V6(address)) => {
                bytes[..2].copy_from_slice(&INET6.to_ne_bytes());
                bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
                bytes[4..8].copy_from_slice(&address.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            }
            Self::Ib(raw) => bytes[..IB_SIZE].copy_from_slice(&raw),
        }
        bytes
    }

    /// Returns `struct sockaddr_ib` with the GID of an IP address (`ucma_query_gid`).
    pub(crate) fn to_gid_storage(self, service_id: u64) -> [u8; STORAGE] {
        let mut bytes = [0; STORAGE];
        bytes[..2].copy_from_slice(&IB.to_ne_bytes());
        bytes[8..24].copy_from_slice(&self.gid());
        bytes[24..32].copy_from_slice(&service_id.to_be_bytes());
        bytes
    }

    /// Returns the GID of an IP address (`rdma_ip2gid`), or 0.
    pub(crate) fn gid(&self) -> [u8; 16] {
        match self {
            Self::Ip(address) => match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            },
            Self::Unspecified | Self::Ib(_) => [0; 16],
        }
    }

    pub(crate) fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unspecified | Self::Ib(_) => None,
        }
    }

    /// Returns `true` for the address 0 of a family.
    pub(crate) fn is_wildcard(&self) -> bool {
        match self {
            Self::Unspecified => true,
            Self::Ip(address) => address.ip().is_unspecified(),
            Self::Ib(raw) => raw[8..24] == [0; 16],
        }
    }

    /// Returns the same family with the address 0 and the port 0.
    pub(crate) fn wildcard(&self) -> Self {
        match self {
            Self::Unspecified => Self::Unspecified,
            Self::Ip(SocketAddr::V4(_)) => {
                Self::Ip(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))
            }
            Self::Ip(SocketAddr::V6(_)) => {
                Self::Ip(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0))
            }
            Self::Ib(_) => Self::Ib([0; IB_SIZE]),
        }
    }

    pub(crate) fn same_family(&self, other: &Self) -> bool {
        self.size() == other.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_round_trip_with_their_sizes() {
        for text in ["192.0.2.1:7471", "[2001:db8::1]:65535", "0.0.0.0:0"] {
            let address = Address::Ip(text.parse().expect("an address"));
            let bytes = address.to_storage();
            assert_eq!(Address::parse(&bytes), Ok(address));
            let size = u16::try_from(address.size()).expect("small");
            assert_eq!(Address::parse_sized(&bytes, size), Ok(address));
            assert_eq!(Address::parse_sized(&bytes, size + 1), Err(Errno::EINVAL));
        }
        assert_eq!(Address::parse(&[99; 28]), Err(Errno::EINVAL));
    }

    #[test]
    fn gids_of_ipv4_addresses_are_mapped() {
        let address = Address::Ip("192.0.2.1:0".parse().expect("an address"));
        assert_eq!(
            address.gid(),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]
        );
    }
}
