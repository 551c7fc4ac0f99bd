//! Socket addresses, to and from C.

#![allow(unsafe_code)]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{in_addr, in6_addr, sockaddr, sockaddr_in, sockaddr_in6};

/// An IP address and port as C has it.
pub(crate) enum RawAddress {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

impl RawAddress {
    /// For C functions that take `struct sockaddr *` and only read it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        match self {
            Self::V4(address) => std::ptr::from_mut(address).cast(),
            Self::V6(address) => std::ptr::from_mut(address).cast(),
        }
    }
}

impl From<SocketAddr> for RawAddress {
    #[allow(clippy::cast_possible_truncation, reason = "address families are small numbers")]
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
}

/// Reads an address of C; `None` when it is of another family than IPv4 and IPv6.
///
/// # Safety
/// `address` is valid for reading as the structure that its family says.
pub(crate) unsafe fn read(address: *const sockaddr) -> Option<SocketAddr> {
    // SAFETY: every socket address starts with its family; the caller promises that it can be read.
    let family = i32::from(unsafe { (*address).sa_family });
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is this structure; read without a claim on its alignment.
            let raw = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(address: &str) {
        let address: SocketAddr = address.parse().expect("an address");
        let mut raw = RawAddress::from(address);
        // SAFETY: the structure is of the family that it says.
        let back = unsafe { read(raw.as_mut_ptr()) };
        assert_eq!(back, Some(address));
    }

    #[test]
    fn both_families_survive_the_way_through_c() {
        there_and_back("10.99.0.1:19765");
        there_and_back("0.0.0.0:0");
        there_and_back("[fd99::1]:65535");
        there_and_back("[fe80::1:2%7]:1");
        there_and_back("[::]:0");
    }

    #[test]
    fn v4_is_in_network_order() {
        let RawAddress::V4(raw) = RawAddress::from(SocketAddr::from(([10, 99, 0, 1], 0x1234))) else {
            panic!("of the wrong family");
        };
        assert_eq!(raw.sin_addr.s_addr.to_ne_bytes(), [10, 99, 0, 1]);
        assert_eq!(raw.sin_port.to_ne_bytes(), [0x12, 0x34]);
    }

    #[test]
    fn another_family_is_none() {
        let raw = sockaddr { sa_family: 27, sa_data: [0; 14] };
        // SAFETY: a plain structure of an unknown family is not read further.
        assert_eq!(unsafe { read(&raw const raw) }, None);
    }
}
