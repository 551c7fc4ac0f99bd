//! IPoIB interfaces.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::device::{Device, Port};
use crate::ribinfo::collect::hwaddr::{DEFAULT_PREFIX, HwAddr};
use crate::ribinfo::collect::netdev::{Ipoib, Netdev};
use crate::ribinfo::collect::verbs::VerbsPort;

/// The largest MTU of connected mode.
const CONNECTED: u32 = 65520;
/// What IPoIB takes of a datagram for itself.
const HEADER: u32 = 4;
const FULL_MEMBER: u16 = 0x8000;
const RULES: &str = "/etc/udev/rules.d/70-persistent-ipoib.rules";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for netdev in &facts.netdevs {
        if let Some(ipoib) = &netdev.ipoib {
            let port = ipoib.hwaddr.and_then(|address| port_of(facts, address));
            let all = [
                Some(mode(facts, netdev, ipoib, port)),
                pkey(netdev, ipoib, port),
                Some(address(facts, netdev, ipoib, port)),
            ];
            findings.extend(
                all.into_iter()
                    .flatten()
                    .map(|finding| finding.on(&netdev.name)),
            );
        }
    }
    findings
}

/// The port whose GUID the address ends with.
fn port_of<'a>(facts: &'a HostFacts<'_>, address: HwAddr) -> Option<(&'a Device, &'a Port)> {
    facts
        .ports()
        .find(|(_, port)| !port.is_ethernet() && port.guid() == Some(address.guid()))
}

fn mode(
    facts: &HostFacts<'_>,
    netdev: &Netdev,
    ipoib: &Ipoib,
    port: Option<(&Device, &Port)>,
) -> Finding {
    let name = &netdev.name;
    let mtu = netdev.mtu.unwrap_or(0);
    match ipoib.mode.as_str() {
        "connected" if mtu > CONNECTED => Finding::fault(format!("connected, MTU {mtu}: the largest is {CONNECTED}"))
            .mend(format!("ip link set {name} mtu {CONNECTED}")),
        "connected" if mtu < CONNECTED => Finding::warning(format!(
            "connected, MTU {mtu}: {CONNECTED} is possible (multicast goes by datagram all the same)"
        ))
        .mend(format!("ip link set {name} mtu {CONNECTED}; nmcli con mod {name} infiniband.mtu {CONNECTED}")),
        "connected" => Finding::ok(format!("connected, MTU {mtu}")),
        "datagram" => {
            let verbs = port.and_then(|(device, port)| facts.verbs_port(&device.name, port.port));
            let link = verbs.and_then(VerbsPort::active_mtu_bytes);
            let limits = link.map_or_else(|| vec![2044, 4092], |link| vec![link.saturating_sub(HEADER)]);
            let largest = limits.last().copied().unwrap_or(0);
            let of = link.map_or_else(String::new, |link| format!(" on a link of MTU {link}"));
            if mtu > largest {
                Finding::fault(format!("datagram, MTU {mtu}: the largest is {largest}{of}"))
                    .mend(format!("ip link set {name} mtu {largest}"))
            } else if !limits.contains(&mtu) {
                Finding::warning(format!("datagram, MTU {mtu}: {largest} is possible{of}")).mend(format!(
                    "ip link set {name} mtu {largest}, and mtu=5 of the partition in partitions.conf for 4092"
                ))
            } else {
                Finding::ok(format!("datagram, MTU {mtu}{of}"))
            }
        }
        "" => Finding::ok(format!("Enhanced mode: datagram only, MTU {mtu}")),
        other => Finding::warning(format!("its mode is {other}, which is neither datagram nor connected"))
            .mend(format!("echo datagram > /sys/class/net/{name}/mode")),
    }
}

fn pkey(netdev: &Netdev, ipoib: &Ipoib, port: Option<(&Device, &Port)>) -> Option<Finding> {
    let pkey = ipoib.pkey?;
    let child = match &ipoib.parent {
        Some(parent) => format!("partition 0x{pkey:04x}, child of {parent}"),
        None => format!("partition 0x{pkey:04x}"),
    };
    if pkey & !FULL_MEMBER == 0 {
        return Some(
            Finding::fault(format!("{child}: 0 is no partition")).mend(format!(
                "ip link delete {}; nmcli: infiniband.p-key 0x8002",
                netdev.name
            )),
        );
    }
    let Some((device, port)) = port else {
        return Some(Finding::ok(child));
    };
    let same = |key: &&u16| **key & !FULL_MEMBER == pkey & !FULL_MEMBER;
    match port.pkeys.iter().find(same) {
        None if !port.pkeys.is_empty() => Some(
            Finding::fault(format!("{child}: the port {}/{} is not a member", device.name, port.port)).mend(format!(
                "in partitions.conf: NAME=0x{pkey:04x}, ipoib : {}=full; then systemctl restart opensm",
                port.guid().map_or_else(|| "PORTGUID".into(), |guid| format!("0x{:016x}", guid.0))
            )),
        ),
        Some(key) if key & FULL_MEMBER == 0 => Some(
            Finding::warning(format!("{child}: a limited member, which other limited members cannot reach"))
                .mend("defmember=full, or GUID=full, in partitions.conf; then systemctl restart opensm"),
        ),
        _ => Some(Finding::ok(child)),
    }
}

fn address(
    facts: &HostFacts<'_>,
    netdev: &Netdev,
    ipoib: &Ipoib,
    port: Option<(&Device, &Port)>,
) -> Finding {
    let Some(address) = ipoib.hwaddr else {
        return Finding::warning(format!(
            "its hardware address {:?} has not 20 bytes",
            netdev.address
        ))
        .mend(format!("ip link show {}", netdev.name));
    };
    let prefix = if address.prefix() == DEFAULT_PREFIX {
        ", the default"
    } else {
        ""
    };
    let owner = port.map_or_else(String::new, |(device, port)| {
        format!(", {}/{}", device.name, port.port)
    });
    let text = format!(
        "hardware address: flags 0x{:02x}, queue pair 0x{:06x}, subnet prefix {:016x}{prefix}, port GUID {}{owner}",
        address.flags(),
        address.qpn(),
        address.prefix(),
        address.guid()
    );
    let rules = facts.root.text(RULES).unwrap_or_default();
    // By its name, or by what matches one: only what is there is judged.
    let rule = rules
        .lines()
        .find(|line| !line.trim_start().starts_with('#') && line.contains(&address.stable_part()));
    match rule {
        _ if ipoib.parent.is_some() => Finding::ok(text),
        Some(rule) if rule.contains(&format!("NAME=\"{}\"", netdev.name)) => {
            Finding::ok(format!("{text}; named by {RULES}"))
        }
        Some(_) => Finding::warning(format!(
            "{text}; {RULES} gives it another name than {}, from the next start on",
            netdev.name
        ))
        .mend(address.udev_rule(&netdev.name)),
        None => Finding::ok(format!(
            "{text}; a lasting name, in {RULES}: {}",
            address.udev_rule(&netdev.name)
        )),
    }
}
