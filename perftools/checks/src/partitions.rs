//! `partitions.conf`, the partitions that opensm creates.

use std::collections::BTreeMap;

use host::HostFacts;
use host::device::{Device, Port};
use host::partitions::{
    DEFAULT_PKEY, Definition, MemberPorts, Membership, PartitionFile, Partitions, mtu_bytes,
    rate_gbps, rate_mbps,
};

use super::finding::Finding;

const RESTART: &str = "systemctl restart opensm";
/// The bit of a P_Key that full members have.
const FULL_MEMBER: u16 = 0x8000;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    // If the file that opensm.conf names does not exist, the check `opensm` reports it.
    let is_named = !facts.opensm.partition_files().is_empty();
    let is_missing = is_named
        && facts
            .partitions
            .iter()
            .any(|file| file.is_used && !file.exists);
    let ignored = |file: &&PartitionFile| file.exists && !file.is_used && !is_missing;
    for file in facts.partitions.iter().filter(ignored) {
        let used = facts.opensm.partition_files().join(", ");
        findings.push(
            Finding::warning(format!("ignored, because opensm.conf names {used}"))
                .on(&file.path)
                .with_remedy(format!(
                    "to use it, set partition_config_file {} in opensm.conf",
                    file.path
                )),
        );
    }
    for file in facts.partitions.iter().filter(|file| file.is_used) {
        if let Some(partitions) = &file.partitions {
            let found = check_file(facts, partitions).into_iter();
            findings.extend(found.map(|finding| finding.on(&file.path)));
        }
    }
    findings.extend(check_membership(facts));
    findings
}

/// Returns a warning for each port that is a limited member of all its partitions. The check
/// `ipoib` reports those with an interface.
fn check_membership(facts: &HostFacts) -> Vec<Finding> {
    let has_interface = |port: &Port| {
        let addresses = facts
            .netdevs
            .iter()
            .filter_map(|netdev| netdev.ipoib.as_ref()?.hwaddr);
        let mut guids = addresses.map(|address| address.guid());
        guids.any(|guid| Some(guid) == port.guid())
    };
    let is_limited = |port: &Port| {
        let mut keys = port.pkeys.iter();
        !port.pkeys.is_empty() && keys.all(|key| key & FULL_MEMBER == 0)
    };
    let ports = facts
        .ports()
        .filter(|(_, port)| port.is_active() && port.is_infiniband());
    let ports = ports.filter(|(_, port)| is_limited(port) && !has_interface(port));
    let warn = |(device, port): (&Device, &Port)| {
        Finding::warning(format!(
            "limited member of its partitions ({}): rperf and all other programs cannot communicate with other limited members",
            port.pkeys.iter().map(|key| format!("0x{key:04x}")).collect::<Vec<_>>().join(", ")
        ))
        .on(format!("{}/{}", device.name, port.port))
        .with_remedy("set defmember=full or GUID=full in partitions.conf; then systemctl restart opensm (on the host that runs it)")
    };
    ports.map(warn).collect()
}

fn check_file(facts: &HostFacts, partitions: &Partitions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for problem in &partitions.problems {
        let finding = if problem.fatal {
            Finding::fault(format!("{problem}; opensm stops reading here"))
        } else {
            Finding::warning(problem.to_string())
        };
        findings.push(finding.with_remedy(format!("correct this line; {RESTART}")));
    }
    findings.extend(check_default(partitions));
    for definition in &partitions.definitions {
        findings.extend(check_rate(facts, definition));
        findings.extend(check_mtu(facts, definition));
        findings.extend(check_groups(definition));
    }
    findings.extend(check_keys(partitions));
    if findings.is_empty() {
        let names: Vec<_> = partitions
            .definitions
            .iter()
            .map(|d| format!("{}=0x{:04x}", d.name, d.pkey.unwrap_or_default()))
            .collect();
        findings.push(Finding::ok(format!(
            "{} (full members have bit 0x8000 set in the key)",
            names.join(", ")
        )));
    }
    findings
}

/// Checks that the default partition 0x7fff exists and has all hosts as full members.
fn check_default(partitions: &Partitions) -> Option<Finding> {
    let default: Vec<&Definition> = partitions
        .definitions
        .iter()
        .filter(|d| d.pkey == Some(DEFAULT_PKEY))
        .collect();
    let remedy = format!("add as the first line: Default=0x7fff, ipoib : ALL=full; then {RESTART}");
    if default.is_empty() {
        return Some(Finding::fault("no default partition 0x7fff, so all ports except opensm's own are limited members and cannot communicate with each other").with_remedy(remedy));
    }
    let members: Vec<_> = default.iter().flat_map(|d| &d.members).collect();
    // ALL_CAS includes all hosts. Without it and ALL, only the listed ports are members.
    let mut host_entries = members
        .iter()
        .filter(|m| matches!(m.ports, MemberPorts::All | MemberPorts::AllCas))
        .peekable();
    if host_entries.peek().is_none() {
        return Some(
            Finding::warning("the default partition 0x7fff does not include all hosts")
                .with_remedy(remedy),
        );
    }
    let full = host_entries.any(|m| m.membership != Membership::Limited);
    (!full).then(|| {
        Finding::warning(
            "hosts are limited members of the default partition 0x7fff: they can communicate with opensm's host, but not with each other",
        )
        .with_remedy(format!("set ALL=full; then {RESTART}"))
    })
}

fn name(definition: &Definition) -> String {
    format!("line {}, partition `{}`", definition.line, definition.name)
}

/// Returns a fault for each local port that is slower than the partition's rate, because it cannot
/// join.
fn check_rate(facts: &HostFacts, definition: &Definition) -> Vec<Finding> {
    let Some(code) = definition.flags.rate else {
        return Vec::new();
    };
    let Some((text, mbps)) = rate_gbps(code).zip(rate_mbps(code)) else {
        return vec![Finding::fault(format!("{}: unknown rate code {code}", name(definition))).with_remedy(
            "available codes: 2 = 2.5, 3 = 10, 4 = 30, 5 = 5, 6 = 20, 7 = 40, 8 = 60, 9 = 80, 10 = 120, 12 = 56, 16 = 100 Gbit/s",
        )];
    };
    let slower = facts
        .ports()
        .filter(|(_, port)| port.is_infiniband() && port.is_active())
        .filter_map(|(d, p)| Some((d, p, p.rate?)))
        .filter(|(.., rate)| rate.mbps < mbps);
    slower
        .map(|(device, port, rate)| {
            Finding::fault(format!(
                "{}: rate={code} means {text} Gbit/s, so {}/{} with {rate} cannot join",
                name(definition),
                device.name,
                port.port
            ))
            .with_remedy(format!(
                "use a rate that all hosts reach, for example rate=3 (10 Gbit/s); then {RESTART}"
            ))
        })
        .collect()
}

/// Returns a fault for an unknown code, or for a local port whose MTU is smaller than that of the
/// partition, because it cannot join the broadcast group.
fn check_mtu(facts: &HostFacts, definition: &Definition) -> Option<Finding> {
    let code = definition.flags.mtu?;
    if let Some(bytes) = mtu_bytes(code) {
        let mut ports = facts
            .ports()
            .filter(|(_, port)| port.is_infiniband() && port.is_active());
        let (device, port, max) = ports.find_map(|(device, port)| {
            let max = facts
                .verbs_port(&device.name, port.port)?
                .active_mtu_bytes()?;
            (max < bytes).then_some((device, port, max))
        })?;
        let text = format!(
            "{}: mtu={code} means {bytes} bytes, but the link of {}/{} has {max} bytes, so it cannot join",
            name(definition),
            device.name,
            port.port
        );
        let fitting = (1..=5)
            .rev()
            .find(|code| mtu_bytes(*code).is_some_and(|bytes| bytes <= max));
        return Some(
            Finding::fault(text)
                .with_remedy(format!("set mtu={}; then {RESTART}", fitting.unwrap_or(1))),
        );
    }
    Some(
        Finding::fault(format!("{}: unknown MTU code {code}", name(definition)))
            .with_remedy("available codes: 1 = 256, 2 = 512, 3 = 1024, 4 = 2048, 5 = 4096 bytes"),
    )
}

/// Checks the IP multicast groups. opensm does not create a group whose rate or MTU differs from
/// the broadcast group.
fn check_groups(definition: &Definition) -> Vec<Finding> {
    let is_ip = |gid: &std::net::Ipv6Addr| matches!(gid.segments()[1], 0x401b | 0x601b);
    let differs = |own: Option<u32>, of: Option<u32>, default: u32| {
        own.is_some_and(|own| own != of.unwrap_or(default))
    };
    let bad = definition
        .groups
        .iter()
        .filter(|group| is_ip(&group.mgid))
        .filter(|group| {
            differs(
                group.flags.rate,
                definition.flags.rate,
                host::partitions::DEFAULT_RATE,
            ) || differs(
                group.flags.mtu,
                definition.flags.mtu,
                host::partitions::DEFAULT_MTU,
            )
        });
    bad.map(|group| {
        Finding::warning(format!(
            "line {}: {} differs from its partition in rate or MTU, so opensm does not create it",
            group.line, group.mgid
        ))
        .with_remedy("use the same rate= and mtu= as the partition")
    })
    .collect()
}

/// Returns a partition key that no definition uses.
fn unused_pkey(partitions: &Partitions) -> u16 {
    let used = |key: &u16| {
        partitions
            .definitions
            .iter()
            .any(|definition| definition.pkey == Some(*key))
    };
    (2..DEFAULT_PKEY).find(|key| !used(key)).unwrap_or(2)
}

/// Checks that each definition has a key of its own. Definitions with the same key are one
/// partition.
fn check_keys(partitions: &Partitions) -> Vec<Finding> {
    let mut seen: BTreeMap<u16, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for definition in &partitions.definitions {
        let Some(pkey) = definition.pkey else {
            findings.push(
                Finding::warning(format!(
                    "{}: no key, so opensm generates one",
                    name(definition)
                ))
                .with_remedy(format!(
                    "set a key: {}=0x{:04x}; then {RESTART}",
                    definition.name,
                    unused_pkey(partitions)
                )),
            );
            continue;
        };
        let first = *seen.entry(pkey).or_insert(&definition.name);
        if first != definition.name {
            findings.push(
                Finding::warning(format!(
                    "{}: same key 0x{pkey:04x} as {first}, so both are one partition",
                    name(definition)
                ))
                .with_remedy(format!(
                    "use another key: {}=0x{:04x}; then {RESTART}",
                    definition.name,
                    unused_pkey(partitions)
                )),
            );
        }
    }
    findings
}
