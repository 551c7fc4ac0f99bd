//! The configuration of opensm: the base file, the numbered files of further instances, and files
//! that opensm ignores.

use std::collections::BTreeMap;

use host::HostFacts;
use host::opensm::{Conf, Files, GuidFile};
use host::root::unsigned;

use super::finding::{Finding, Level};
use super::spelling;

/// Highest value of a subnet manager's priority.
const MAX_PRIORITY: i64 = 15;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let files = &facts.opensm;
    let mut findings = Vec::new();
    for path in &files.leftovers {
        findings.push(
            Finding::warning("left by a package update next to the edited file")
                .on(path)
                .with_remedy(format!(
                    "diff {} {path}; merge the new settings, then remove {path}",
                    without_extension(path)
                )),
        );
    }
    for path in &files.misnamed {
        findings.push(
            Finding::warning("opensm does not read this file: an instance is named opensm.conf.N, with a number N")
                .on(path)
                .with_remedy("rename it to opensm.conf.N with a number that no other file has; then: systemctl restart opensm"),
        );
    }
    let ignored = ignored(files);
    let effective = files.effective();
    let is_numbered = effective.iter().any(|conf| conf.instance.is_some());
    // The packages install these files, so their existence is not a mistake.
    for path in ignored.iter().filter(|_| is_numbered) {
        findings.push(
            Finding::ok(format!(
                "not in use: opensm starts one instance per numbered file ({})",
                effective.first().map_or("", |conf| &conf.path)
            ))
            .on(path),
        );
    }
    for conf in &effective {
        findings.extend(spelling::check(facts, &conf.path));
        findings.extend(
            check_file(facts, conf, conf.instance.is_some())
                .into_iter()
                .map(|finding| finding.on(&conf.path)),
        );
    }
    findings.extend(check_shared(&effective));
    if !is_numbered {
        findings.extend(check_sysconfig(facts, files));
    }
    if findings.iter().all(|finding| finding.level == Level::Ok) && !effective.is_empty() {
        let paths: Vec<_> = effective.iter().map(|conf| conf.path.as_str()).collect();
        findings.push(Finding::ok(format!("no problem in {}", paths.join(", "))));
    }
    findings
}

/// Returns the files that opensm ignores if numbered files exist: the base file, and the
/// environment file of the service.
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

fn without_extension(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(stem, _)| stem)
}

/// Returns `true` if an InfiniBand port of this host has the GUID, or if there is no InfiniBand
/// port to compare it with.
fn is_local_guid(facts: &HostFacts, guid: u64) -> bool {
    let mut ports = facts
        .ports()
        .filter(|(_, port)| port.is_infiniband())
        .peekable();
    ports.peek().is_none()
        || ports.any(|(_, port)| port.guid().is_some_and(|local| local.0 == guid))
}

fn local_guids(facts: &HostFacts) -> String {
    let guids = facts
        .ports()
        .filter(|(_, port)| port.is_infiniband())
        .filter_map(|(_, port)| port.guid());
    guids
        .map(|guid| format!("0x{:016x}", guid.0))
        .collect::<Vec<_>>()
        .join(", ")
}

fn check_file(facts: &HostFacts, conf: &Conf, is_numbered: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, key) in &conf.assignments {
        findings.push(
            Finding::warning(format!(
                "line {line}: opensm ignores `{key}=`, because a space separates key and value"
            ))
            .with_remedy(format!("write {key} VALUE; then: systemctl restart opensm")),
        );
    }
    for (line, key) in &conf.missing_values {
        findings.push(
            Finding::warning(format!("line {line}: `{key}` has no value"))
                .with_remedy(format!("write {key} VALUE, or comment the line out with #")),
        );
    }
    if let Some(text) = conf.get("guid") {
        match unsigned(text) {
            None => {
                findings.push(
                    Finding::fault(format!("guid {text}: not a valid GUID"))
                        .with_remedy("set guid to a port GUID that ibstat -p prints (0x…)"),
                );
            }
            Some(guid) if guid != 0 && !is_local_guid(facts, guid) => {
                findings.push(
                    Finding::fault(format!("guid {text}: no port of this host has this GUID"))
                        .with_remedy(format!(
                            "set guid to one of {} (ibstat -p)",
                            local_guids(facts)
                        )),
                );
            }
            Some(_) => {}
        }
    }
    findings.extend(conf.guid_files.iter().filter_map(check_guid_file));
    if is_numbered && conf.guid().is_none() {
        findings.push(
            Finding::fault("no guid in a numbered file: all instances would use the same port")
                .with_remedy(
                    "set guid in each file to a different port GUID that ibstat -p prints (0x…)",
                ),
        );
    }
    if let Some(text) = conf.get("sm_priority") {
        if !conf
            .priority()
            .is_some_and(|priority| (0..=MAX_PRIORITY).contains(&priority))
        {
            findings.push(
                Finding::fault(format!(
                    "sm_priority {text}: expected 0 to {MAX_PRIORITY} (highest)"
                ))
                .with_remedy("sm_priority 15"),
            );
        }
    }
    if let Some(text) = conf.get("subnet_prefix") {
        if unsigned(text).is_none_or(|prefix| prefix >> 54 != 0xfe80 >> 6) {
            findings.push(
                Finding::fault(format!(
                    "subnet_prefix {text}: expected a prefix within fe80::/10"
                ))
                .with_remedy("subnet_prefix 0xfe80000000000000"),
            );
        }
    }
    if let Some(file) = conf.get("partition_config_file") {
        if !facts
            .partitions
            .iter()
            .any(|found| found.path == file && found.exists)
        {
            let existing = facts.partitions.iter().filter(|found| found.exists);
            let existing: Vec<&str> = existing.map(|found| found.path.as_str()).collect();
            let remedy = match existing.as_slice() {
                [] => format!("create {file}, or comment the line out"),
                paths => format!(
                    "set partition_config_file {} (which exists), or comment the line out",
                    paths.join(" or ")
                ),
            };
            findings.push(Finding::warning(format!("partition_config_file {file} does not exist: opensm creates only the default partition")).with_remedy(remedy));
        }
    }
    findings
}

/// Checks a file with a GUID in each line.
fn check_guid_file(file: &GuidFile) -> Option<Finding> {
    let GuidFile { key, path, .. } = file;
    if !file.exists {
        return Some(
            Finding::warning(format!("{key} {path}: the file does not exist"))
                .with_remedy(format!("create {path}, or comment the line out with #")),
        );
    }
    let (line, text) = file.invalid.first()?;
    Some(
        Finding::warning(format!("{key} {path}, line {line}: `{text}` is not a GUID"))
            .with_remedy("write one GUID in each line: 0x and 16 hexadecimal digits (ibstat -p)"),
    )
}

/// Checks that no two instances use the same port, subnet prefix or output file.
fn check_shared(confs: &[&Conf]) -> Vec<Finding> {
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
            let text = format!("{key} {text}: same as in {first}");
            let finding = match key {
                "guid" => Finding::fault(text + ", but each instance needs its own port")
                    .with_remedy("set guid to another port GUID that ibstat -p prints (0x…)"),
                "subnet_prefix" => Finding::fault(text + ", but each fabric needs its own prefix")
                    .with_remedy("for example subnet_prefix 0xfe80000000000001"),
                _ => Finding::warning(text).with_remedy(format!("set {key} to another path")),
            };
            findings.push(finding.on(&conf.path));
        }
    }
    findings
}

fn check_sysconfig(facts: &HostFacts, files: &Files) -> Vec<Finding> {
    let Some(sysconfig) = &files.sysconfig else {
        return Vec::new();
    };
    let mut findings = spelling::check(facts, &sysconfig.path);
    for guid in &sysconfig.guids {
        match unsigned(guid) {
            Some(number) if is_local_guid(facts, number) => {}
            _ => findings.push(
                Finding::fault(format!("GUIDS {guid}: no port of this host has this GUID"))
                    .with_remedy(format!("GUIDS=\"{}\" (ibstat -p)", local_guids(facts))),
            ),
        }
    }
    if let Some(priority) = &sysconfig.priority {
        if !priority
            .parse()
            .is_ok_and(|priority: i64| (0..=MAX_PRIORITY).contains(&priority))
        {
            findings.push(
                Finding::fault(format!(
                    "PRIORITY={priority}: expected 0 to {MAX_PRIORITY} (highest)"
                ))
                .with_remedy("PRIORITY=15"),
            );
        }
    }
    findings
        .into_iter()
        .map(|finding| finding.on(&sysconfig.path))
        .collect()
}
