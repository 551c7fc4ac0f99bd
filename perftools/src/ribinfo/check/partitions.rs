//! partitions.conf, judged.

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::opensm::{DIRECTORIES, Files};
use crate::ribinfo::collect::partitions::{
    DEFAULT_PKEY, Definition, MemberPorts, Membership, Partitions, mtu_bytes, parse, rate_gbps,
    rate_mbps,
};

const RESTART: &str = "systemctl restart opensm";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let files = Files::find(facts.root);
    let mut findings = Vec::new();
    let usual = DIRECTORIES.map(|directory| format!("{directory}/partitions.conf"));
    let named = named(&files);
    for path in usual
        .iter()
        .filter(|path| !named.is_empty() && !named.contains(path) && facts.root.exists(path))
    {
        let instead = named.join(", ");
        findings.push(
            Finding::warning(format!("it is ignored: opensm.conf names {instead}"))
                .on(path)
                .mend(format!(
                    "rm {path}; or, if it is meant, partition_config_file {path} in opensm.conf"
                )),
        );
    }
    for path in if named.is_empty() {
        usual.to_vec()
    } else {
        named
    } {
        if let Some(text) = facts.root.text(&path) {
            findings.extend(
                judge(facts, &parse(&text))
                    .into_iter()
                    .map(|finding| finding.on(&path)),
            );
        }
    }
    findings
}

/// The files that opensm's configuration names; those of all instances, where there are any. One
/// that does not name any reads the usual one.
fn named(files: &Files) -> Vec<String> {
    let confs = files.read();
    let mut paths: Vec<String> = confs
        .iter()
        .filter_map(|conf| conf.get("partition_config_file"))
        .map(str::to_owned)
        .collect();
    if let Some(conf) = confs
        .iter()
        .find(|conf| conf.get("partition_config_file").is_none() && !paths.is_empty())
    {
        paths.push(format!(
            "{}/partitions.conf",
            conf.path
                .rsplit_once('/')
                .map_or("", |(directory, _)| directory)
        ));
    }
    paths.sort();
    paths.dedup();
    paths
}

fn judge(facts: &HostFacts<'_>, read: &Partitions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for problem in &read.problems {
        let finding = if problem.fatal {
            Finding::fault(format!("{problem}: opensm reads no further"))
        } else {
            Finding::warning(problem.to_string())
        };
        findings.push(finding.mend(format!("correct the line; {RESTART}")));
    }
    findings.extend(default(read));
    for definition in &read.definitions {
        findings.extend(rate(facts, definition));
        findings.extend(mtu(definition));
        findings.extend(groups(definition));
    }
    findings.extend(keys(read));
    if findings.is_empty() {
        let names: Vec<_> = read
            .definitions
            .iter()
            .map(|d| format!("{}=0x{:04x}", d.name, d.pkey.unwrap_or_default()))
            .collect();
        findings.push(Finding::ok(format!(
            "{} (in full: | 0x8000)",
            names.join(", ")
        )));
    }
    findings
}

/// All fabrics have partition 0x7fff, with every host and switch in it.
fn default(read: &Partitions) -> Option<Finding> {
    let default: Vec<&Definition> = read
        .definitions
        .iter()
        .filter(|d| d.pkey == Some(DEFAULT_PKEY))
        .collect();
    let mend = format!("Default=0x7fff, ipoib : ALL=full; as the first line; {RESTART}");
    if default.is_empty() {
        return Some(Finding::fault("there is no default partition 0x7fff, so all ports but opensm's are limited members and cannot talk to each other").mend(mend));
    }
    let members: Vec<_> = default.iter().flat_map(|d| &d.members).collect();
    let all: Vec<_> = members
        .iter()
        .filter(|m| m.who == MemberPorts::All)
        .collect();
    // Without ALL, only those listed are in; hosts and switches may be named each.
    let hosts = all
        .iter()
        .chain(
            members
                .iter()
                .filter(|m| m.who == MemberPorts::AllCas)
                .collect::<Vec<_>>()
                .iter(),
        )
        .count()
        > 0;
    if !hosts {
        return Some(
            Finding::warning("the default partition 0x7fff has not every host and switch in it")
                .mend(mend),
        );
    }
    let full = members.iter().any(|m| {
        matches!(m.who, MemberPorts::All | MemberPorts::AllCas)
            && m.membership != Membership::Limited
    });
    (!full).then(|| {
        Finding::warning(
            "hosts are limited members of the default partition 0x7fff: they reach opensm's host only, not each other",
        )
        .mend(format!("ALL=full; {RESTART}"))
    })
}

fn name(definition: &Definition) -> String {
    format!(
        "line {}, {}",
        definition.line,
        if definition.name.is_empty() {
            "no name"
        } else {
            &definition.name
        }
    )
}

/// A host slower than the partition's rate cannot join.
fn rate(facts: &HostFacts<'_>, definition: &Definition) -> Vec<Finding> {
    let Some(code) = definition.flags.rate else {
        return Vec::new();
    };
    let Some((text, mbps)) = rate_gbps(code).zip(rate_mbps(code)) else {
        return vec![Finding::fault(format!("{}: rate={code} is no code", name(definition))).mend(
            "2 = 2.5, 3 = 10, 4 = 30, 5 = 5, 6 = 20, 7 = 40, 8 = 60, 9 = 80, 10 = 120, 12 = 56, 16 = 100 Gbit/s",
        )];
    };
    let slower = facts
        .ports()
        .filter(|(_, port)| !port.is_ethernet() && port.is_active())
        .filter_map(|(d, p)| Some((d, p, p.rate?)))
        .filter(|(.., rate)| rate.mbps < mbps);
    slower
        .map(|(device, port, rate)| {
            Finding::fault(format!(
                "{}: rate={code} is {text} Gbit/s, so {}/{} with {rate} cannot join",
                name(definition),
                device.name,
                port.port
            ))
            .mend(format!(
                "a rate that all hosts have: rate=3 is 10 Gbit/s; {RESTART}"
            ))
        })
        .collect()
}

fn mtu(definition: &Definition) -> Option<Finding> {
    let code = definition
        .flags
        .mtu
        .filter(|code| mtu_bytes(*code).is_none())?;
    Some(
        Finding::fault(format!("{}: mtu={code} is no code", name(definition)))
            .mend("1 to 5 for 256, 512, 1024, 2048, 4096"),
    )
}

/// IP groups must have the rate and MTU of the broadcast group, or opensm does not make them.
fn groups(definition: &Definition) -> Vec<Finding> {
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
                crate::ribinfo::collect::partitions::DEFAULT_RATE,
            ) || differs(
                group.flags.mtu,
                definition.flags.mtu,
                crate::ribinfo::collect::partitions::DEFAULT_MTU,
            )
        });
    bad.map(|group| {
        Finding::warning(format!(
            "line {}: {} has another rate or MTU than its partition, so opensm does not make it",
            group.line, group.mgid
        ))
        .mend("the same rate= and mtu= as the partition")
    })
    .collect()
}

/// A key that nobody has.
fn free(read: &Partitions) -> u16 {
    let taken = |key: &u16| {
        read.definitions
            .iter()
            .any(|definition| definition.pkey == Some(*key))
    };
    (2..DEFAULT_PKEY).find(|key| !taken(key)).unwrap_or(2)
}

/// A key given twice under two names is one partition.
fn keys(read: &Partitions) -> Vec<Finding> {
    let mut seen: BTreeMap<u16, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for definition in &read.definitions {
        let Some(pkey) = definition.pkey else {
            findings.push(
                Finding::warning(format!(
                    "{}: without a key opensm makes one up",
                    name(definition)
                ))
                .mend(format!(
                    "{}=0x{:04x}; {RESTART}",
                    definition.name,
                    free(read)
                )),
            );
            continue;
        };
        let first = *seen.entry(pkey).or_insert(&definition.name);
        if first != definition.name {
            findings.push(
                Finding::warning(format!(
                    "{}: has the key 0x{pkey:04x} of {first}, so it is the same partition",
                    name(definition)
                ))
                .mend(format!(
                    "a key of its own: {}=0x{:04x}; {RESTART}",
                    definition.name,
                    free(read)
                )),
            );
        }
    }
    findings
}
