//! Which entry of a port's GID table to use, and why.

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;

use super::address::Gid;
use super::interface;
use super::query::{GidQuery, IpFamily};
use super::table::{GidEntry, GidType};
use crate::device::{Context, TransportType};
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::port::LinkLayer;

/// The entry that was chosen, and why.
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
    /// The entry.
    pub entry: GidEntry,
    /// Why this one, in words.
    pub reason: String,
}

impl fmt::Display for GidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.entry, self.reason)
    }
}

impl Context {
    /// Chooses the entry of a port's GID table for a path, and says why.
    ///
    /// On RoCE, an entry must be of the version, family, interface and source asked for, and of the
    /// peer's family; link-local entries are for link-local peers, and global ones for global
    /// peers; RoCE v1 does not leave its subnet. Among those that are left: one in the peer's
    /// subnet, RoCE v2, a global one, the one that shares most leading bits with the peer, IPv4,
    /// the first of the table. On InfiniBand, one with the peer's subnet prefix, else the
    /// first.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when none fits: the text says of each entry why not.
    /// [`ErrorKind::Unsupported`] on iWARP, whose GID is a MAC address and no path: connect by
    /// rdma_cm.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::GidQuery;
    /// let peer: std::net::IpAddr = "10.99.0.2".parse().expect("an address");
    /// let own = context.select_gid(1, &GidQuery::to(peer))?.entry;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_gid_table(3)`](https://man7.org/linux/man-pages/man3/ibv_query_gid_table.3.html)
    pub fn select_gid(&self, port_num: u8, query: &GidQuery) -> Result<GidChoice> {
        let name = self.device_name();
        if self.device().transport() == TransportType::IWARP {
            let what = format!("{name} is iWARP, where paths have IP addresses and no GIDs");
            return Err(Error::new(ErrorKind::Unsupported, "select_gid", what)
                .with_hint("connect by rdma_cm"));
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
        choose(&table, link, query).map_err(|refusals| {
            let what = format!("no GID of port {port_num} of {name} fits ({query})");
            if refusals.is_empty() {
                return Error::new(
                    ErrorKind::NotFound,
                    "select_gid",
                    format!("{what}: its table is empty"),
                )
                .with_hint("is the interface up, and has it an address?");
            }
            Error::new(
                ErrorKind::NotFound,
                "select_gid",
                format!("{what}: {}", refusals.join("; ")),
            )
            .with_hint(remedy(query, &table))
        })
    }
}

/// An entry, and the bits of its network's prefix where they are known.
type Candidate = (GidEntry, Option<u8>);

/// The best entry with its reason, or why each does not fit.
fn choose(
    table: &[Candidate],
    link: LinkLayer,
    query: &GidQuery,
) -> std::result::Result<GidChoice, Vec<String>> {
    let mut best = None;
    let mut refusals = Vec::new();
    for (entry, prefix) in table {
        let judged = if link == LinkLayer::ETHERNET {
            on_roce(entry, *prefix, query)
        } else {
            on_ib(entry, query)
        };
        match judged {
            Ok((rank, reason)) => best = best.max(Some((rank, Reverse(entry.index), reason))),
            Err(why) => refusals.push(format!("{entry} {why}")),
        }
    }
    let Some((_, Reverse(index), reason)) = best else {
        return Err(refusals);
    };
    let entry = table
        .iter()
        .find(|(entry, _)| entry.index == index)
        .map(|(entry, _)| *entry);
    entry
        .map(|entry| GidChoice { entry, reason })
        .ok_or(refusals)
}

/// What counts, most important first: in the peer's subnet; RoCE v2; global; bits in common with
/// the peer; IPv4.
type Rank = (bool, bool, bool, u32, bool);

fn on_roce(
    entry: &GidEntry,
    prefix: Option<u8>,
    query: &GidQuery,
) -> std::result::Result<(Rank, String), String> {
    let Some(ip) = entry.gid.to_ip() else {
        return Err("is empty".into());
    };
    let peer = query.peer.and_then(Gid::to_ip);
    let local = link_local(ip);
    if let Some(kind) = query.kind.filter(|kind| *kind != entry.kind) {
        return Err(format!("is not {kind}"));
    }
    if query.source.is_some_and(|source| source != entry.gid) {
        return Err("is not the source".into());
    }
    if query.ifindex.is_some_and(|index| index != entry.ifindex) {
        return Err("is on another interface".into());
    }
    if let Some(family) = query.family.filter(|family| *family != IpFamily::of(ip)) {
        return Err(format!("is not {family}"));
    }
    let Some(peer) = peer else {
        let reason = match (query.source, local) {
            (Some(_), _) => "the source asked for".to_owned(),
            (None, true) => format!(
                "{}, and no entry that fits is more than link-local",
                entry.kind
            ),
            (None, false) => format!("{}, a global {} address", entry.kind, IpFamily::of(ip)),
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
    let Some(bits) = common_bits(ip, peer) else {
        return Err(format!("is not {}, as the peer is", IpFamily::of(peer)));
    };
    match (local, link_local(peer)) {
        (true, false) => return Err("is link-local, and the peer is not".into()),
        (false, true) => return Err("is not link-local, as the peer is".into()),
        _ => {}
    }
    let shared = prefix.is_some_and(|prefix| prefix > 0 && bits >= u32::from(prefix)) || ip == peer;
    if entry.kind == GidType::ROCE_V1 && prefix.is_some() && !shared {
        return Err(
            "is RoCE v1, which does not leave its subnet, and the peer is in another one".into(),
        );
    }
    let reason = match prefix {
        _ if ip == peer => format!(
            "the peer's own address: both ends are this port; {}",
            entry.kind
        ),
        _ if local => format!("link-local, as the peer is; {}", entry.kind),
        Some(prefix) if shared => format!(
            "in the peer's subnet {}; {}",
            network(ip, prefix),
            entry.kind
        ),
        Some(_) => {
            format!(
                "of the peer's family; no entry that fits is in its subnet, so packets are routed; {}",
                entry.kind
            )
        }
        None => format!(
            "of the peer's family, with {bits} leading bits in common; {}",
            entry.kind
        ),
    };
    Ok((
        (
            shared,
            entry.kind == GidType::ROCE_V2,
            !local,
            bits,
            ip.is_ipv4(),
        ),
        reason,
    ))
}

fn on_ib(entry: &GidEntry, query: &GidQuery) -> std::result::Result<(Rank, String), String> {
    if let Some(kind) = query.kind.filter(|kind| *kind != entry.kind) {
        return Err(format!("is not {kind}"));
    }
    if let Some(family) = query.family {
        return Err(format!(
            "is no {family} address: on InfiniBand a GID is a subnet prefix and a GUID"
        ));
    }
    if query.source.is_some_and(|source| source != entry.gid) {
        return Err("is not the source".into());
    }
    let prefix = |gid: Gid| gid.as_ipv6().to_bits() >> 64;
    let (shared, reason) = match query.peer {
        Some(peer) if prefix(peer) == prefix(entry.gid) => (true, "with the peer's subnet prefix"),
        Some(_) => (
            false,
            "no entry has the peer's subnet prefix, so packets go by a router",
        ),
        None => (false, "the first that fits"),
    };
    Ok(((shared, false, false, 0, false), reason.to_owned()))
}

/// What to do when none fits, by the first thing that is missing.
fn remedy(query: &GidQuery, table: &[Candidate]) -> String {
    let netdev = table
        .iter()
        .find_map(|(entry, _)| entry.netdev())
        .unwrap_or_else(|| "NETDEV".into());
    let family = query
        .family
        .or_else(|| query.peer.and_then(Gid::to_ip).map(IpFamily::of));
    let has = |test: &dyn Fn(&GidEntry) -> bool| table.iter().any(|(entry, _)| test(entry));
    match (query.kind, family) {
        (Some(kind), _) if !has(&|entry| entry.kind == kind) => {
            format!("this port has no {kind}: ask for another version")
        }
        (_, Some(family))
            if !has(&|entry| {
                entry
                    .gid
                    .to_ip()
                    .is_some_and(|ip| IpFamily::of(ip) == family)
            }) =>
        {
            format!("give the interface an {family} address: `ip addr add ADDRESS dev {netdev}`")
        }
        _ => format!(
            "an address in the peer's subnet on the interface helps: `ip addr add ADDRESS dev {netdev}`"
        ),
    }
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Bits that two addresses of one family share from the front; none of different families.
fn common_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
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

// Nothing here is unsafe: Miri would find nothing, slowly.
#[cfg(all(test, not(miri)))]
#[path = "select_tests.rs"]
mod tests;
