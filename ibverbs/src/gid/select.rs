//! Choice of an entry of a port's GID table.

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;

use super::interface;
use super::query::{GidQuery, IpFamily};
use super::table::{GidEntry, GidType};
use crate::device::{Context, TransportType};
use crate::error::{Error, ErrorKind, Result};
use crate::port::LinkLayer;
use rdma_types::Gid;

/// The chosen entry of the GID table, with the reason for the choice.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::{GidQuery, RcPath};
/// let choice = context.select_gid(1, &GidQuery::default())?;
/// println!(
///     "connecting from {}, because {}",
///     choice.entry.gid, choice.reason
/// );
/// let path = RcPath::new(1, choice.entry.index, context.query_port(1)?.active_mtu);
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidChoice {
    /// The chosen entry.
    pub entry: GidEntry,
    /// The reason for the choice, as text.
    pub reason: String,
}

impl fmt::Display for GidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.entry, self.reason)
    }
}

impl Context {
    /// Chooses the entry of a port's GID table to use for a path.
    ///
    /// On RoCE, an entry must match the version, family, interface and source of the query, and the
    /// family of the peer. Link-local entries are used for link-local peers only, and global
    /// entries for global peers only. RoCE v1 is not used for peers in another subnet.
    ///
    /// Among matching RoCE entries, the order of preference is: an entry in the peer's subnet, RoCE
    /// v2, a global address, the most leading bits in common with the peer, IPv4, the lowest index.
    /// On InfiniBand, the first entry with the peer's subnet prefix is chosen, otherwise the first
    /// entry.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: no entry matches; the message has the reason for each entry.
    /// - [`ErrorKind::Unsupported`]: the device is iWARP, whose GID is a MAC address. Use rdma_cm
    ///   to connect.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::GidQuery;
    /// let peer: std::net::IpAddr = "10.99.0.2".parse().expect("an address");
    /// let own = context.select_gid(1, &GidQuery::for_peer(peer))?.entry;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_gid_table")]
    pub fn select_gid(&self, port_num: u8, query: &GidQuery) -> Result<GidChoice> {
        let name = self.device_name();
        if self.device().transport() == TransportType::IWARP {
            let what = format!("{name} is iWARP, which addresses peers by IP address, not by GID");
            return Err(Error::new(ErrorKind::Unsupported, "select_gid", what)
                .with_help("use rdma_cm to connect"));
        }
        let link = self.query_port(port_num)?.link_layer;
        let prefixes = interface::prefixes();
        let prefix = |gid: Gid| {
            prefixes
                .iter()
                .find(|(ip, _)| Some(*ip) == gid.to_ip())
                .map(|(_, bits)| *bits)
        };
        let table: Vec<_> = self
            .gids(port_num)?
            .into_iter()
            .map(|entry| (entry, prefix(entry.gid)))
            .collect();
        choose(&table, link, query).map_err(|rejections| {
            let what = format!("no GID of port {port_num} of {name} matches the query ({query})");
            if rejections.is_empty() {
                return Error::new(
                    ErrorKind::NotFound,
                    "select_gid",
                    format!("{what}: the GID table is empty"),
                )
                .with_help("check that the network interface is up and has an address");
            }
            Error::new(
                ErrorKind::NotFound,
                "select_gid",
                format!("{what}: {}", rejections.join("; ")),
            )
            .with_help(help(query, &table))
        })
    }
}

/// An entry and the length of its network prefix, if known.
type Candidate = (GidEntry, Option<u8>);

/// Returns the best entry and the reason, or for each entry the reason why it does not match.
fn choose(
    table: &[Candidate],
    link: LinkLayer,
    query: &GidQuery,
) -> Result<GidChoice, Vec<String>> {
    let mut best = None;
    let mut rejections = Vec::new();
    for (entry, prefix) in table {
        let ranked = if link == LinkLayer::ETHERNET {
            rank_roce(entry, *prefix, query)
        } else {
            rank_ib(entry, query)
        };
        match ranked {
            Ok((rank, reason)) => best = best.max(Some((rank, Reverse(entry.index), reason))),
            Err(why) => rejections.push(format!("{entry} {why}")),
        }
    }
    let Some((_, Reverse(index), reason)) = best else {
        return Err(rejections);
    };
    let entry = table
        .iter()
        .find(|(entry, _)| entry.index == index)
        .map(|(entry, _)| *entry);
    entry
        .map(|entry| GidChoice { entry, reason })
        .ok_or(rejections)
}

/// Rank of an entry, most important criterion first: in the peer's subnet, RoCE v2, global, number
/// of leading bits in common with the peer, IPv4.
type Rank = (bool, bool, bool, u32, bool);

fn rank_roce(
    entry: &GidEntry,
    prefix: Option<u8>,
    query: &GidQuery,
) -> Result<(Rank, String), String> {
    let Some(ip) = entry.gid.to_ip() else {
        return Err("is empty".into());
    };
    let peer = query.peer.and_then(Gid::to_ip);
    let local = is_link_local(ip);
    if let Some(kind) = query.kind.filter(|kind| *kind != entry.kind) {
        return Err(format!("is not {kind}"));
    }
    if query.source.is_some_and(|source| source != entry.gid) {
        return Err("is not the requested source address".into());
    }
    if query.ifindex.is_some_and(|index| index != entry.ifindex) {
        return Err("is on another interface".into());
    }
    if let Some(family) = query
        .family
        .filter(|family| *family != IpFamily::from_ip(ip))
    {
        return Err(format!("is not {family}"));
    }
    let Some(peer) = peer else {
        let reason = match (query.source, local) {
            (Some(_), _) => "the requested source address".to_owned(),
            (None, true) => format!(
                "{}, link-local; no matching entry has a global address",
                entry.kind
            ),
            (None, false) => format!("{}, a global {} address", entry.kind, IpFamily::from_ip(ip)),
        };
        return Ok((
            (
                false,
                entry.kind == GidType::ROCE_V2,
                !local,
                0,
                ip.is_ipv4(),
            ),
            reason,
        ));
    };
    let Some(bits) = common_leading_bits(ip, peer) else {
        return Err(format!(
            "is {}, but the peer is {}",
            IpFamily::from_ip(ip),
            IpFamily::from_ip(peer)
        ));
    };
    match (local, is_link_local(peer)) {
        (true, false) => return Err("is link-local, but the peer is not".into()),
        (false, true) => return Err("is not link-local, but the peer is".into()),
        _ => {}
    }
    let same_subnet =
        prefix.is_some_and(|prefix| prefix > 0 && bits >= u32::from(prefix)) || ip == peer;
    if entry.kind == GidType::ROCE_V1 && prefix.is_some() && !same_subnet {
        return Err("is RoCE v1, which is not routable, and the peer is in another subnet".into());
    }
    let reason = match prefix {
        _ if ip == peer => format!(
            "the peer's address itself: both ends are this port; {}",
            entry.kind
        ),
        _ if local => format!("link-local like the peer; {}", entry.kind),
        Some(prefix) if same_subnet => format!(
            "in the peer's subnet {}; {}",
            network(ip, prefix),
            entry.kind
        ),
        Some(_) => {
            format!(
                "same family as the peer; no matching entry is in the peer's subnet, so packets are routed; {}",
                entry.kind
            )
        }
        None => format!(
            "same family as the peer, with {bits} leading bits in common; {}",
            entry.kind
        ),
    };
    Ok((
        (
            same_subnet,
            entry.kind == GidType::ROCE_V2,
            !local,
            bits,
            ip.is_ipv4(),
        ),
        reason,
    ))
}

fn rank_ib(entry: &GidEntry, query: &GidQuery) -> Result<(Rank, String), String> {
    if let Some(kind) = query.kind.filter(|kind| *kind != entry.kind) {
        return Err(format!("is not {kind}"));
    }
    if let Some(family) = query.family {
        return Err(format!(
            "is not an {family} address: on InfiniBand a GID is a subnet prefix and a GUID"
        ));
    }
    if query.source.is_some_and(|source| source != entry.gid) {
        return Err("is not the requested source address".into());
    }
    let prefix = |gid: Gid| gid.as_ipv6().to_bits() >> 64;
    let (same_prefix, reason) = match query.peer {
        Some(peer) if prefix(peer) == prefix(entry.gid) => (true, "has the peer's subnet prefix"),
        Some(_) => (
            false,
            "no entry has the peer's subnet prefix, so packets are routed",
        ),
        None => (false, "the first matching entry"),
    };
    Ok(((same_prefix, false, false, 0, false), reason.to_owned()))
}

/// Help for the case that no entry matches.
fn help(query: &GidQuery, table: &[Candidate]) -> String {
    let netdev = table
        .iter()
        .find_map(|(entry, _)| entry.netdev())
        .unwrap_or_else(|| "NETDEV".into());
    let family = query
        .family
        .or_else(|| query.peer.and_then(Gid::to_ip).map(IpFamily::from_ip));
    let has = |test: &dyn Fn(&GidEntry) -> bool| table.iter().any(|(entry, _)| test(entry));
    match (query.kind, family) {
        (Some(kind), _) if !has(&|entry| entry.kind == kind) => {
            format!("request another RoCE version: this port has no {kind} entry")
        }
        (_, Some(family))
            if !has(&|entry| {
                entry
                    .gid
                    .to_ip()
                    .is_some_and(|ip| IpFamily::from_ip(ip) == family)
            }) =>
        {
            format!("give the interface an {family} address: `ip addr add ADDRESS dev {netdev}`")
        }
        _ => format!(
            "give the interface an address in the peer's subnet: `ip addr add ADDRESS dev {netdev}`"
        ),
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Returns the number of leading bits that two addresses have in common; `None` if their families
/// differ.
fn common_leading_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        _ => None,
    }
}

fn network(ip: IpAddr, prefix: u8) -> String {
    let shift = |bits: u32| bits.saturating_sub(u32::from(prefix));
    let ip = match ip {
        IpAddr::V4(ip) => {
            IpAddr::V4((u32::MAX.checked_shl(shift(32)).unwrap_or(0) & ip.to_bits()).into())
        }
        IpAddr::V6(ip) => {
            IpAddr::V6((u128::MAX.checked_shl(shift(128)).unwrap_or(0) & ip.to_bits()).into())
        }
    };
    format!("{ip}/{prefix}")
}

// This module has no unsafe code, and its tests are slow under Miri.
#[cfg(all(test, not(miri)))]
#[path = "select_tests.rs"]
mod tests;
