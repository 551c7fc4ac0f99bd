//! Criteria for choosing an entry of a port's GID table.

use std::fmt;
use std::net::IpAddr;

use super::interface;
use super::table::GidType;
use rdma_types::{Gid, setters};

/// A family of IP addresses.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::{GidQuery, gid::IpFamily};
/// let choice = context.select_gid(
///     1,
///     &GidQuery::new().family(IpFamily::V6),
/// )?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpFamily {
    /// IPv4, mapped into a GID as `::ffff:a.b.c.d`.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    pub(crate) fn from_ip(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::V4 { "IPv4" } else { "IPv6" })
    }
}

/// Criteria for choosing an entry of a port's GID table. Fields that are `None` match any entry.
///
/// # Example
/// ```no_run
/// use ibverbs::{Gid, GidQuery, gid::GidType};
/// let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let peer: std::net::IpAddr = "10.99.0.2".parse().unwrap();
/// let query = GidQuery::for_peer(peer).kind(GidType::ROCE_V2);
/// let choice = context.select_gid(1, &query)?;
/// println!("{choice}"); // gid[1] ::ffff:10.99.0.1 (RoCE v2, eth0): in the peer's subnet 10.99.0.0/24
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_gid_table")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidQuery {
    /// The peer's GID or IP address. Default: `None`.
    pub peer: Option<Gid>,
    /// The local GID or IP address to use. Default: `None`.
    pub source: Option<Gid>,
    /// The RoCE version. If `None`, RoCE v2 is preferred. Default: `None`.
    pub kind: Option<GidType>,
    /// The address family. If `None`, the family of the peer is used. Default: `None`.
    pub family: Option<IpFamily>,
    /// The index of the network interface, for example the scope of a link-local peer. Default:
    /// `None`.
    pub ifindex: Option<u32>,
}

setters! {
    GidQuery {
        peer: Option<Gid>,
        source: Option<Gid>,
        kind: Option<GidType>,
        family: Option<IpFamily>,
        ifindex: Option<u32>,
    }
}

impl GidQuery {
    /// Returns a query that matches any entry.
    pub const fn new() -> Self {
        Self {
            peer: None,
            source: None,
            kind: None,
            family: None,
            ifindex: None,
        }
    }

    /// Creates a query for an entry that reaches this peer.
    pub fn for_peer(peer: impl Into<Gid>) -> Self {
        Self {
            peer: Some(peer.into()),
            ..Self::default()
        }
    }
}

impl fmt::Display for GidQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.kind.map(|kind| kind.to_string()),
            self.family.map(|family| family.to_string()),
            self.source
                .map(|source| format!("source {}", readable(source))),
            self.ifindex.map(|index| {
                format!(
                    "interface {}",
                    interface::name(index).unwrap_or_else(|| index.to_string())
                )
            }),
            self.peer.map(|peer| format!("peer {}", readable(peer))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "any" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// A GID in its usual notation: as an IP address if it is one.
fn readable(gid: Gid) -> String {
    gid.to_ip()
        .map_or_else(|| gid.to_string(), |ip| ip.to_string())
}
