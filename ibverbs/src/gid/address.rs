//! The GID type: the address of a port.

#![allow(unsafe_code)]

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use rdma_sys::ibv_gid;

/// A global identifier (GID): 16 bytes in network byte order, written as an IPv6 address.
///
/// # Example
/// ```
/// use ibverbs::Gid;
/// let gid: Gid = "::ffff:10.99.0.1".parse()?;
/// assert_eq!(gid.to_ip(), Some("10.99.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`ibv_query_gid_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html); IBA 4.1.1
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the same 16 bytes as an IPv6 address.
    pub const fn as_ipv6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.0))
    }

    /// Returns the IP address that a RoCE v2 GID represents: IPv4 if the GID is an IPv4-mapped
    /// address, otherwise IPv6. Returns `None` for the zero GID.
    pub fn to_ip(self) -> Option<IpAddr> {
        if self.is_zero() {
            return None;
        }
        let v6 = self.as_ipv6();
        Some(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4))
    }

    /// Returns `true` for the zero GID, which marks an empty entry of the GID table.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Returns `true` if the GID is link-local (fe80::/10), that is, not routable.
    pub fn is_link_local(self) -> bool {
        self.as_ipv6().is_unicast_link_local()
    }

    /// Converts the GID to the C union.
    pub(crate) fn to_raw(self) -> ibv_gid {
        ibv_gid { raw: self.0 }
    }

    pub(crate) fn from_raw(raw: &ibv_gid) -> Self {
        // SAFETY: every field of the union covers the same 16 bytes, and any bytes are a valid GID.
        Self(unsafe { raw.raw })
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        address.to_ipv6_mapped().into()
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl FromStr for Gid {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        text.parse::<Ipv6Addr>().map(Self::from)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ipv6(), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_gid_is_an_ipv4_address() {
        let gid = Gid::from(Ipv4Addr::new(10, 99, 0, 1));
        assert_eq!(gid.to_string(), "::ffff:10.99.0.1");
        assert_eq!(gid.to_string().parse::<Gid>().expect("its own text"), gid);
        assert_eq!(gid.to_ip(), Some(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1))));
    }

    #[test]
    fn zero_gid_has_no_ip_address() {
        assert_eq!(Gid::default().to_ip(), None);
    }
}
