//! opensm's own configuration: the base file, its numbered instances, and what is ignored.

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::opensm::{Conf, Files};
use crate::ribinfo::collect::root::unsigned;

/// The highest priority of a subnet manager.
const HIGHEST: i64 = 15;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let files = Files::find(facts.root);
    let mut findings = Vec::new();
    for path in &files.leftovers {
        findings.push(
            Finding::warning("an update left it beside the edited file")
                .on(path)
                .mend(format!(
                    "diff {} {path}, take over what is new, remove it",
                    stem(path)
                )),
        );
    }
    let ignored = ignored(&files);
    let read = files.read();
    let is_numbered = read.iter().any(|conf| conf.instance.is_some());
    for path in ignored.iter().filter(|_| is_numbered) {
        findings.push(
            Finding::warning(format!(
                "it is ignored: {} starts the instances alone",
                read.first().map_or("", |conf| &conf.path)
            ))
            .on(path)
            .mend(format!(
                "move what it says into the numbered files, then rm {path}"
            )),
        );
    }
    for conf in &read {
        findings.extend(
            judge(facts, conf, conf.instance.is_some())
                .into_iter()
                .map(|finding| finding.on(&conf.path)),
        );
    }
    findings.extend(together(&read));
    if !is_numbered {
        findings.extend(sysconfig(facts, &files));
    }
    if findings.is_empty() && !read.is_empty() {
        findings.push(Finding::ok(
            read.iter()
                .map(|conf| conf.path.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        ));
    }
    findings
}

/// Files that nobody reads where there are instances.
fn ignored(files: &Files) -> Vec<&str> {
    let base = files.base().map(|conf| conf.path.as_str());
    base.into_iter()
        .chain(
            files
                .sysconfig
                .as_ref()
                .filter(|s| !s.guids.is_empty() || s.priority.is_some())
                .map(|s| s.path.as_str()),
        )
        .collect()
}

fn stem(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(stem, _)| stem)
}

/// Whether a port of this host has a GUID; always where there are no InfiniBand ports to compare
/// with.
fn is_here(facts: &HostFacts<'_>, guid: u64) -> bool {
    let mut ports = facts
        .ports()
        .filter(|(_, port)| !port.is_ethernet())
        .peekable();
    ports.peek().is_none() || ports.any(|(_, port)| port.guid().is_some_and(|own| own.0 == guid))
}

fn guids(facts: &HostFacts<'_>) -> String {
    let guids = facts
        .ports()
        .filter(|(_, port)| !port.is_ethernet())
        .filter_map(|(_, port)| port.guid());
    guids
        .map(|guid| format!("0x{:016x}", guid.0))
        .collect::<Vec<_>>()
        .join(", ")
}

fn judge(facts: &HostFacts<'_>, conf: &Conf, instance: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, key) in &conf.bare {
        findings.push(
            Finding::warning(format!("line {line}: `{key}` has no value"))
                .mend(format!("{key} VALUE, or # in front")),
        );
    }
    if let Some(text) = conf.get("guid") {
        match unsigned(text) {
            None => {
                findings.push(
                    Finding::fault(format!("guid {text}: is no GUID"))
                        .mend("guid 0x…, from `ibstat -p`"),
                );
            }
            Some(guid) if guid != 0 && !is_here(facts, guid) => {
                findings.push(
                    Finding::fault(format!("guid {text}: no port of this host has it"))
                        .mend(format!("one of {} (ibstat -p)", guids(facts))),
                );
            }
            Some(_) => {}
        }
    }
    if instance && conf.guid().is_none() {
        findings.push(
            Finding::fault("an instance without guid: all would take the same port")
                .mend("guid 0x…, from `ibstat -p`, one in each file"),
        );
    }
    if let Some(text) = conf.get("sm_priority") {
        if !conf
            .priority()
            .is_some_and(|priority| (0..=HIGHEST).contains(&priority))
        {
            findings.push(
                Finding::fault(format!(
                    "sm_priority {text}: goes from 0 to {HIGHEST}, which wins"
                ))
                .mend("sm_priority 15"),
            );
        }
    }
    if let Some(text) = conf.get("subnet_prefix") {
        if unsigned(text).is_none_or(|prefix| prefix >> 54 != 0xfe80 >> 6) {
            findings.push(
                Finding::fault(format!(
                    "subnet_prefix {text}: wants 0xfe80… as its first ten bits"
                ))
                .mend("subnet_prefix 0xfe80000000000000"),
            );
        }
    }
    if let Some(file) = conf.get("partition_config_file") {
        if !facts.root.exists(file) {
            findings.push(Finding::warning(format!("partition_config_file {file}: is not there, so all ports are full members of the default partition alone")).mend(format!("echo 'Default=0x7fff, ipoib : ALL=full;' > {file}")));
        }
    }
    findings
}

/// What instances must not share.
fn together(confs: &[&Conf]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if confs.len() < 2 {
        return findings;
    }
    for key in ["guid", "subnet_prefix", "log_file", "dump_files_dir"] {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for conf in confs {
            let Some(text) = conf.get(key) else { continue };
            let value = unsigned(text).map_or_else(|| text.to_owned(), |number| number.to_string());
            let Some(first) = seen.insert(value, &conf.path) else {
                continue;
            };
            let what = format!("{key} {text}: {first} has the same");
            let finding = match key {
                "guid" => Finding::fault(what).mend("one port each: guid 0x…, from `ibstat -p`"),
                "subnet_prefix" => Finding::fault(what + ", but two fabrics need two prefixes")
                    .mend("subnet_prefix 0xfe80000000000001, and so on"),
                _ => Finding::warning(what).mend(format!("another {key}")),
            };
            findings.push(finding.on(&conf.path));
        }
    }
    findings
}

fn sysconfig(facts: &HostFacts<'_>, files: &Files) -> Vec<Finding> {
    let Some(sysconfig) = &files.sysconfig else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for guid in &sysconfig.guids {
        match unsigned(guid) {
            Some(number) if is_here(facts, number) => {}
            _ => findings.push(
                Finding::fault(format!("{guid}: no port of this host has this GUID"))
                    .mend(format!("GUIDS=\"{}\" (ibstat -p)", guids(facts))),
            ),
        }
    }
    if let Some(priority) = &sysconfig.priority {
        if !priority
            .parse()
            .is_ok_and(|priority: i64| (0..=HIGHEST).contains(&priority))
        {
            findings.push(
                Finding::fault(format!(
                    "PRIORITY={priority}: goes from 0 to {HIGHEST}, which wins"
                ))
                .mend("PRIORITY=15"),
            );
        }
    }
    findings
        .into_iter()
        .map(|finding| finding.on(&sysconfig.path))
        .collect()
}
