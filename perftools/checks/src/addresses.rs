//! IP addresses of the network interfaces of RDMA ports. Routes by subnet cannot distinguish two
//! interfaces in one subnet.

use std::net::IpAddr;

use host::HostFacts;
use host::device::{Device, Port};
use host::netdev::{ArpSettings, Netdev, needs_interface};
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
    let is_interface = |name: &str| interfaces.iter().any(|netdev| netdev.name == name);
    // An interface that is down has no routes.
    let is_up = |name: &str| facts.netdev(name).is_none_or(|netdev| netdev.up);
    let all = || {
        let addresses = facts.probe.addresses.iter();
        let addresses = addresses.filter(|a| !is_link_local(a.ip) && !a.ip.is_loopback());
        addresses.filter(|address| is_up(&address.netdev))
    };
    let addresses: Vec<&Address> = all()
        .filter(|address| is_interface(&address.netdev))
        .collect();
    let mut findings = Vec::new();
    let mut subnets: Vec<IpNet> = Vec::new();
    for (at, address) in addresses.iter().enumerate() {
        let name = &address.netdev;
        // Another interface, with or without RDMA. Unnumbered ones share an address of no subnet.
        let same = all().find(|other| {
            let is_same = other.ip == address.ip && other.netdev != *name;
            is_same && (network(address).is_some() || network(other).is_some())
        });
        let is_first = |same: &&Address| {
            !addresses[..at]
                .iter()
                .any(|other| other.netdev == same.netdev)
        };
        if let Some(same) = same.filter(is_first) {
            findings.push(
                Finding::fault(format!(
                    "{} also has the address {}",
                    same.netdev, address.ip
                ))
                .on(name)
                .with_remedy(format!(
                    "give one of the two interfaces another address, or remove {} from the one that does not need it",
                    address.ip
                )),
            );
        }
        let Some(subnet) = network(address).filter(|subnet| !subnets.contains(subnet)) else {
            continue;
        };
        subnets.push(subnet);
        let mut members: Vec<&Address> = vec![address];
        for other in all().filter(|other| network(other) == Some(subnet)) {
            let is_new = members
                .iter()
                .all(|member| member.netdev != other.netdev && member.ip != other.ip);
            members.extend(is_new.then_some(other));
        }
        // In IPv6, one interface may have the route of the main table. In IPv4, each may answer ARP
        // requests for the others.
        let mixed = members
            .iter()
            .filter(|member| !is_separate(facts, member))
            .count();
        if members.len() > 1 && mixed > usize::from(address.ip.is_ipv6()) {
            findings.push(check_subnet(subnet, &members));
        }
    }
    if findings.is_empty() && !addresses.is_empty() {
        findings.push(Finding::ok(
            "every RDMA interface has an address and a subnet of its own",
        ));
    }
    findings
}

/// Returns the warning for interfaces in one subnet. The settings of ARP are those of IPv4.
fn check_subnet(subnet: IpNet, members: &[&Address]) -> Finding {
    let (first, others) = members.split_first().expect("two members");
    let others: Vec<&str> = others.iter().map(|other| other.netdev.as_str()).collect();
    let others = others.join(", ");
    let (text, remedy) = if subnet.addr().is_ipv4() {
        let filters = members.iter();
        let filters = filters.map(|member| format!(" net.ipv4.conf.{}.rp_filter=2", member.netdev));
        (
            "the kernel may send, and answer ARP requests, through another one",
            format!(
                "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2{} (or use one subnet for each interface)",
                filters.collect::<String>()
            ),
        )
    } else {
        let routes = members.iter().zip(101..).map(|(member, table)| {
            format!(
                "ip -6 route add {subnet} dev {} table {table} && ip -6 rule add from {} table {table}",
                member.netdev, member.ip
            )
        });
        (
            "the kernel sends through one of them, whatever the source address is",
            format!(
                "use one subnet for each interface; or routes by source: {}",
                routes.collect::<Vec<_>>().join(" && ")
            ),
        )
    };
    Finding::warning(format!("in the same subnet {subnet} as {others}: {text}"))
        .on(&first.netdev)
        .with_remedy(remedy)
}

/// Returns `true` if packets of an address pass through its interface only. In IPv6 this needs a
/// rule for the address (ip-rule(8)), and in IPv4 settings of ARP, or a rule and `arp_filter`.
fn is_separate(facts: &HostFacts, address: &Address) -> bool {
    // A master of an interface with an address of its own is a VRF, which has its own routes.
    if facts.master(&address.netdev).is_some() {
        return true;
    }
    let mut rules = facts.probe.source_rules.iter();
    let has_rule = rules.any(|rule| {
        let rule = rule.parse::<IpNet>();
        rule.is_ok_and(|rule| rule.contains(&address.ip))
    });
    if address.ip.is_ipv6() {
        return has_rule;
    }
    // The larger value of the interface and of `all` applies.
    let names = ["all", address.netdev.as_str()];
    let is_set = |setting: fn(&ArpSettings) -> Option<u32>| {
        let settings = names.iter().filter_map(|name| facts.arp.get(*name));
        settings.filter_map(setting).max() >= Some(1)
    };
    is_set(|arp| arp.ignore) && is_set(|arp| arp.announce) || has_rule && is_set(|arp| arp.filter)
}

fn network(address: &Address) -> Option<IpNet> {
    let bits = u8::try_from(address.bits?).ok()?;
    let network = IpNet::new(address.ip, bits).ok()?.trunc();
    // A host route is not a subnet.
    (network.prefix_len() < network.max_prefix_len()).then_some(network)
}

/// Returns `true` if a device needs no address: another function of its adapter has one, or it is a
/// virtual function for a guest of this host.
pub(super) fn is_spare(facts: &HostFacts, device: &Device) -> bool {
    let has_address = |name: &String| facts.addresses(name).any(|a| !needs_interface(a.ip));
    let mut functions = facts.ports().filter(|(other, _)| {
        let is_host = device.is_virtual && !other.is_virtual && !other.is_software();
        other.name != device.name && (is_host || device.is_same_adapter(other))
    });
    functions.any(|(other, port)| {
        if other.is_iwarp() {
            return iwarp_netdev(facts, port).is_some_and(has_address);
        }
        port.is_infiniband() || port.gids.iter().any(|row| !row.gid.is_link_local())
    })
}

/// Returns the interface of an iWARP port, or the one whose hardware address is its GID. That of
/// erdma belongs to another PCI function.
pub(super) fn iwarp_netdev<'a>(facts: &'a HostFacts, port: &'a Port) -> Option<&'a String> {
    if port.netdev.is_some() {
        return port.netdev.as_ref();
    }
    let gid = port.gids.first()?.gid.as_ipv6().octets();
    let address: Vec<String> = gid[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let address = address.join(":");
    let found = facts
        .netdevs
        .iter()
        .find(|netdev| netdev.address == address);
    found.map(|netdev| &netdev.name)
}

pub(super) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
