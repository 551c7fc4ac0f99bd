//! Global identifiers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::guid::Guid;

/// A global identifier, the address of a port: 16 bytes in network byte order, written as an IPv6
/// address.
///
/// # Example
/// ```
/// use rdma_types::Gid;
/// let gid: Gid = "::ffff:10.99.0.1".parse()?;
/// assert_eq!(gid.to_ip(), Some("10.99.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`ibv_query_gid_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html); IBA 4.1.1
#[doc(alias = "ibv_query_gid_ex")]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the GID that consists of a subnet prefix and a port GUID.
    pub const fn from_parts(prefix: u64, guid: Guid) -> Self {
        Self((((prefix as u128) << 64) | guid.0 as u128).to_be_bytes())
    }

    /// Returns the same 16 bytes as an IPv6 address.
    pub const fn as_ipv6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.0))
    }

    /// Returns the IP address of a RoCE v2 GID: an IPv4 address if the GID is IPv4-mapped,
    /// otherwise an IPv6 address. Returns `None` for the zero GID.
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

    /// Returns `true` if the GID is link-local (fe80::/10): reachable on its own link only.
    pub fn is_link_local(self) -> bool {
        self.as_ipv6().is_unicast_link_local()
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

    /// Parses an IPv6 address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
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

/// Serializes as text in human-readable formats (JSON) and as 16 bytes in other formats.
#[cfg(feature = "serde")]
impl serde::Serialize for Gid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Gid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl serde::de::Visitor<'_> for TextVisitor {
            type Value = Gid;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a GID, written as an IPv6 address")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Gid, E> {
                text.parse().map_err(|_| {
                    E::custom(format!("{text} is not a GID: expected an IPv6 address"))
                })
            }
        }

        if deserializer.is_human_readable() {
            deserializer.deserialize_str(TextVisitor)
        } else {
            <[u8; 16]>::deserialize(deserializer).map(Gid)
        }
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

    #[test]
    fn gid_consists_of_prefix_and_guid() {
        let gid = Gid::from_parts(0xfe80 << 48, Guid(0x0002_c903_00a1_b2c3));
        assert_eq!(gid.to_string(), "fe80::2:c903:a1:b2c3");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn other_text_is_not_deserialized_as_a_gid() {
        let gid: Gid = "fe80::1".parse().expect("a GID");
        let text = serde_json::to_string(&gid).expect("JSON");
        assert_eq!(text, r#""fe80::1""#);
        assert_eq!(
            serde_json::from_str::<Gid>(&text).expect("its own text"),
            gid
        );
        let error = serde_json::from_str::<Gid>(r#""10.99.0.1""#).expect_err("IPv4");
        assert!(
            error.to_string().contains("10.99.0.1 is not a GID"),
            "{error}"
        );
        serde_json::from_str::<Gid>("7").expect_err("a number");
    }
}
