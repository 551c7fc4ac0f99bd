//! IP addresses of the network interfaces of RDMA ports. Routes by subnet cannot distinguish two
//! interfaces in one subnet.

use std::net::IpAddr;

use host::HostFacts;
use host::netdev::Netdev;
use host::probe::Address;
use ipnet::IpNet;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let is_rdma = |netdev: &Netdev| {
        netdev.ipoib.is_some()
            || facts
                .ports()
                .any(|(_, port)| port.netdev.as_ref() == Some(&netdev.name))
    };
    let interfaces: Vec<&Netdev> = facts
        .netdevs
        .iter()
        .filter(|netdev| is_rdma(netdev))
        .collect();
    let addresses: Vec<(&Netdev, &Address)> = interfaces
        .iter()
        .flat_map(|netdev| {
            facts
                .addresses(&netdev.name)
                .map(move |address| (*netdev, address))
        })
        .filter(|(_, address)| !is_link_local(address.ip))
        .collect();
    let mut findings = Vec::new();
    for (at, (first, address)) in addresses.iter().enumerate() {
        // Another interface, with or without RDMA.
        let same = facts
            .probe
            .addresses
            .iter()
            .find(|other| other.ip == address.ip && other.netdev != first.name);
        if let Some(same) = same.filter(|same| {
            !addresses[..at]
                .iter()
                .any(|(netdev, _)| netdev.name == same.netdev)
        }) {
            findings.push(
                Finding::fault(format!(
                    "{} also has the address {}",
                    same.netdev, address.ip
                ))
                .on(&first.name)
                .with_remedy(format!(
                    "give one of the two interfaces another address, or remove {} from the one that does not need it",
                    address.ip
                )),
            );
        }
        // A later RDMA interface, or one without RDMA.
        let later = addresses[at + 1..].iter().map(|(_, address)| *address);
        let ordinary = facts
            .probe
            .addresses
            .iter()
            .filter(|other| interfaces.iter().all(|netdev| netdev.name != other.netdev));
        let subnet = network(address);
        let neighbor = later.chain(ordinary).find(|other| {
            other.netdev != first.name
                && other.ip != address.ip
                && subnet.is_some()
                && subnet == network(other)
        });
        let is_separate = |second: &str| {
            answers_separately(facts, &first.name) && answers_separately(facts, second)
        };
        if let Some(second) = neighbor
            .map(|address| &address.netdev)
            .filter(|second| !is_separate(second))
        {
            findings.push(
                Finding::warning(format!(
                    "in the same subnet {} as {}: the kernel may send, and answer ARP requests, through the other one",
                    subnet.map_or_else(String::new, |subnet| subnet.to_string()),
                    second
                ))
                .on(&first.name)
                .with_remedy(format!(
                    "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.{}.rp_filter=2 net.ipv4.conf.{}.rp_filter=2 (or use one subnet for each interface)",
                    first.name, second
                )),
            );
        }
    }
    if findings.is_empty() && !addresses.is_empty() {
        findings.push(Finding::ok(
            "every RDMA interface has an address and a subnet of its own",
        ));
    }
    findings
}

/// Returns `true` if the kernel answers ARP requests, and sends its own, only on the interface with
/// the address. The larger value of the interface and of `all` applies.
fn answers_separately(facts: &HostFacts, netdev: &str) -> bool {
    let settings = || {
        ["all", netdev]
            .into_iter()
            .filter_map(|name| facts.arp.get(name))
    };
    settings().filter_map(|settings| settings.ignore).max() >= Some(1)
        && settings().filter_map(|settings| settings.announce).max() >= Some(1)
}

fn network(address: &Address) -> Option<IpNet> {
    let bits = u8::try_from(address.bits?).ok()?;
    let network = IpNet::new(address.ip, bits).ok()?.trunc();
    // A host route is not a subnet.
    (network.prefix_len() < network.max_prefix_len()).then_some(network)
}

pub(super) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
