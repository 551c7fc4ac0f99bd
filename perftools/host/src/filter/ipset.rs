//! Sets of addresses and ports, as printed by `ipset save`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::packet::{Element, Protocol};

/// A component of the elements of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Address,
    Port,
    Interface,
    Other,
}

/// A set.
#[derive(Clone, Debug, Default)]
pub(super) struct IpSet {
    pub(super) dimensions: Vec<Dimension>,
    /// The elements. Those of a set with several components are tuples.
    pub(super) elements: Vec<Element>,
}

/// The sets by name.
pub(super) type IpSets = BTreeMap<String, IpSet>;

pub(super) fn parse(saved: &str) -> IpSets {
    let mut sets = IpSets::new();
    for line in saved.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["create", name, kind, ..] => {
                let components = kind
                    .split_once(':')
                    .map_or("", |(_, components)| components);
                let dimensions = components.split(',').map(|component| match component {
                    "ip" | "net" => Dimension::Address,
                    "port" => Dimension::Port,
                    "iface" => Dimension::Interface,
                    _ => Dimension::Other,
                });
                let set = IpSet {
                    dimensions: dimensions.collect(),
                    elements: Vec::new(),
                };
                sets.insert((*name).to_owned(), set);
            }
            ["add", name, entry, options @ ..] => {
                if let Some(set) = sets.get_mut(*name) {
                    // An element with `nomatch` is an exception of other elements.
                    let element = if options.contains(&"nomatch") {
                        Element::Unknown
                    } else {
                        element(entry, &set.dimensions)
                    };
                    set.elements.push(element);
                }
            }
            _ => {}
        }
    }
    sets
}

fn element(entry: &str, dimensions: &[Dimension]) -> Element {
    let mut parts: Vec<Element> = entry
        .split(',')
        .zip(dimensions)
        .map(|(part, dimension)| match dimension {
            Dimension::Address => addresses(part),
            Dimension::Port => ports(part),
            Dimension::Interface => Some(Element::Name(part.to_owned())),
            Dimension::Other => None,
        })
        .map(|part| part.unwrap_or(Element::Unknown))
        .collect();
    match parts.len() {
        _ if parts.len() != dimensions.len() => Element::Unknown,
        1 => parts.remove(0),
        _ => Element::Tuple(parts),
    }
}

/// Parses an address, a network or a range of addresses.
pub(super) fn addresses(text: &str) -> Option<Element> {
    if let Some((first, last)) = text.split_once('-') {
        return Some(Element::Addresses(first.parse().ok()?, last.parse().ok()?));
    }
    let network = text
        .parse::<IpNet>()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    if network.is_some() {
        return network.map(Element::Network);
    }
    // iptables accepts a mask instead of a prefix length.
    let (address, mask) = text.split_once('/')?;
    IpNet::with_netmask(address.parse().ok()?, mask.parse().ok()?)
        .ok()
        .map(Element::Network)
}

/// Parses a port or a range of ports, with or without a protocol: `80`, `tcp:80`, `udp:1-9`.
fn ports(text: &str) -> Option<Element> {
    let (protocol, text) = match text.split_once(':') {
        Some(("tcp", ports)) => (Some(Protocol::Tcp), ports),
        Some(("udp", ports)) => (Some(Protocol::Udp), ports),
        Some(_) => return None,
        None => (None, text),
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    Some(match protocol {
        Some(protocol) => Element::Ports(protocol, first, last),
        None => Element::Numbers(first.into(), last.into()),
    })
}
