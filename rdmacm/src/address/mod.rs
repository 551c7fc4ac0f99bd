//! Addresses: IP addresses, `AF_IB` addresses, and the addresses of datagram destinations. Used by
//! identifiers, resolvers and listeners.

#![allow(unsafe_code)]

pub(crate) mod device;
mod ib;
mod lookup;
mod port_space;
mod ud;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use ibverbs::Gid;
use libc::{in_addr, in6_addr, sockaddr, sockaddr_in, sockaddr_in6};

pub use self::ib::IbAddr;
pub use self::lookup::{AddrInfo, LookupOptions, lookup};
pub(crate) use self::lookup::{Query, lookup_error, take_list};
pub use self::port_space::PortSpace;
pub use self::ud::UdAddress;
pub(crate) use self::ud::ah_attr;

/// An IP or `AF_IB` address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Ip(SocketAddr),
    Ib(IbAddr),
}

impl Address {
    pub(crate) fn is_multicast(self) -> bool {
        match self {
            Self::Ip(address) => address.ip().is_multicast(),
            Self::Ib(address) => address.gid.0[0] == 0xff,
        }
    }

    pub(crate) fn is_same_family(self, other: Self) -> bool {
        match (self, other) {
            (Self::Ip(one), Self::Ip(other)) => one.is_ipv4() == other.is_ipv4(),
            (one, other) => matches!(one, Self::Ib(_)) && matches!(other, Self::Ib(_)),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<IbAddr> for Address {
    fn from(address: IbAddr) -> Self {
        Self::Ib(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Ib(address) => address.fmt(f),
        }
    }
}

/// Address family of [`sockaddr_ib`] (`linux/socket.h`).
const AF_IB: libc::sa_family_t = 27;

/// `struct sockaddr_ib` of `rdma/ib.h`, which the crate libc does not define. Integers are
/// big-endian.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(
    non_camel_case_types,
    clippy::struct_field_names,
    reason = "the names of the C structure"
)]
pub(crate) struct sockaddr_ib {
    sib_family: libc::sa_family_t,
    sib_pkey: u16,
    sib_flowinfo: u32,
    sib_addr: [u8; 16],
    sib_sid: u64,
    sib_sid_mask: u64,
    sib_scope_id: u64,
}

/// A socket address as a C structure.
pub(crate) enum RawAddress {
    V4(sockaddr_in),
    V6(sockaddr_in6),
    Ib(sockaddr_ib),
}

impl RawAddress {
    /// Returns a pointer for C functions that take `struct sockaddr *` and only read it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        match self {
            Self::V4(address) => std::ptr::from_mut(address).cast(),
            Self::V6(address) => std::ptr::from_mut(address).cast(),
            Self::Ib(address) => std::ptr::from_mut(address).cast(),
        }
    }
}

impl From<Address> for RawAddress {
    fn from(address: Address) -> Self {
        match address {
            Address::Ip(address) => address.into(),
            Address::Ib(address) => Self::Ib(sockaddr_ib {
                sib_family: AF_IB,
                sib_pkey: address.pkey.to_be(),
                sib_flowinfo: 0,
                sib_addr: address.gid.0,
                sib_sid: address.service_id.to_be(),
                sib_sid_mask: u64::MAX.to_be(),
                sib_scope_id: 0,
            }),
        }
    }
}

impl From<SocketAddr> for RawAddress {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "address family constants fit into 16 bits"
    )]
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
}

/// Converts an IP or `AF_IB` address, or returns `None` for other families.
///
/// # Safety
/// `address` is valid for reading as the structure that its family specifies.
unsafe fn address_from_raw(address: *const sockaddr) -> Option<Address> {
    // SAFETY: every socket address starts with its family, and the caller guarantees that it is
    // readable.
    if unsafe { (*address).sa_family } != AF_IB {
        // SAFETY: guaranteed by the caller.
        return unsafe { from_raw(address) }.map(Address::Ip);
    }
    // SAFETY: the caller guarantees the structure of this family. An unaligned read needs no
    // alignment.
    let raw = unsafe { address.cast::<sockaddr_ib>().read_unaligned() };
    Some(Address::Ib(IbAddr {
        gid: Gid(raw.sib_addr),
        pkey: u16::from_be(raw.sib_pkey),
        service_id: u64::from_be(raw.sib_sid),
    }))
}

/// Converts a C address, or returns `None` if its family is unknown. An `AF_IB` address is
/// converted to an IPv6 address and a port.
///
/// # Safety
/// `address` is valid for reading as the structure that its family specifies.
pub(crate) unsafe fn from_raw(address: *const sockaddr) -> Option<SocketAddr> {
    // SAFETY: every socket address starts with its family, and the caller guarantees that it is
    // readable.
    let family = i32::from(unsafe { (*address).sa_family });
    match family {
        libc::AF_INET => {
            // SAFETY: the caller guarantees the structure of this family. An unaligned read needs
            // no alignment.
            let raw = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: see `AF_INET`.
            let raw = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(
                SocketAddrV6::new(
                    ip,
                    u16::from_be(raw.sin6_port),
                    raw.sin6_flowinfo,
                    raw.sin6_scope_id,
                )
                .into(),
            )
        }
        family if family == i32::from(AF_IB) => {
            // SAFETY: see `AF_INET`.
            let raw = unsafe { address.cast::<sockaddr_ib>().read_unaligned() };
            let port = (u64::from_be(raw.sib_sid) & 0xffff) as u16;
            Some(SocketAddrV6::new(Ipv6Addr::from(raw.sib_addr), port, 0, 0).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_round_trip(address: &str) {
        let address: SocketAddr = address.parse().expect("an address");
        let mut raw = RawAddress::from(address);
        // SAFETY: the structure matches its family.
        let back = unsafe { from_raw(raw.as_mut_ptr()) };
        assert_eq!(back, Some(address));
    }

    #[test]
    fn ip_addresses_survive_a_round_trip_through_c() {
        assert_round_trip("10.99.0.1:19765");
        assert_round_trip("0.0.0.0:0");
        assert_round_trip("[fd99::1]:65535");
        assert_round_trip("[fe80::1:2%7]:1");
        assert_round_trip("[::]:0");
    }

    #[test]
    fn ib_addresses_read_as_an_ipv6_address_and_a_port() {
        let gid = "fe80::2:c903:0:1234".parse().expect("a GID");
        let mut raw =
            RawAddress::from(Address::from(IbAddr::new(gid, crate::PortSpace::TCP, 7471)));
        // SAFETY: the structure matches its family.
        let back = unsafe { from_raw(raw.as_mut_ptr()) };
        assert_eq!(
            back,
            Some("[fe80::2:c903:0:1234]:7471".parse().expect("an address"))
        );
        assert_eq!(size_of::<sockaddr_ib>(), 48);
    }

    #[test]
    fn ipv4_fields_are_big_endian() {
        let RawAddress::V4(raw) = RawAddress::from(SocketAddr::from(([10, 99, 0, 1], 0x1234)))
        else {
            panic!("expected an IPv4 address");
        };
        assert_eq!(raw.sin_addr.s_addr.to_ne_bytes(), [10, 99, 0, 1]);
        assert_eq!(raw.sin_port.to_ne_bytes(), [0x12, 0x34]);
    }

    #[test]
    fn unknown_families_are_none() {
        let raw = sockaddr {
            sa_family: 1,
            sa_data: [0; 14],
        };
        // SAFETY: only the family of an unknown structure is read.
        assert_eq!(unsafe { from_raw(&raw const raw) }, None);
    }
}
