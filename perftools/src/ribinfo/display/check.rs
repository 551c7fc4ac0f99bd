//! The output of `ribinfo check`: a list for terminals and files, one line for monitoring, or a
//! shell script.

use std::collections::BTreeMap;

use base::peer_text::one_line;
use checks::finding::{Finding, Level, worst};
use host::HostFacts;
use serde::Serialize;

/// Version of the schema. It increases when a field changes its meaning or is removed.
pub(crate) const SCHEMA: u32 = 1;

/// The JSON document of `check --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CheckReport<'a> {
    /// Version of the schema.
    pub schema: u32,
    /// The worst level.
    pub status: Level,
    /// The findings, worst first.
    pub findings: &'a [Finding],
}

/// Maximum number of lines of a healthy host.
const MAX_LINES: usize = 30;

/// Returns the findings without repetition: ports with the same finding have one line, which names
/// them. The names of an object's interface and nodes may differ.
pub(crate) fn merged(facts: &HostFacts, findings: &[Finding]) -> Vec<Finding> {
    let mut groups: Vec<(String, Vec<&Finding>)> = Vec::new();
    for finding in findings {
        let key = Finding {
            object: None,
            ..general(facts, finding)
        };
        let key = key.to_string();
        match groups
            .iter_mut()
            .find(|(other, _)| finding.object.is_some() && *other == key)
        {
            Some((_, group)) => group.push(finding),
            None => groups.push((key, vec![finding])),
        }
    }
    let merge = |(_, group): (String, Vec<&Finding>)| match group.as_slice() {
        [single] => (*single).clone(),
        [first, ..] => {
            let objects: Vec<&str> = group.iter().filter_map(|f| f.object.as_deref()).collect();
            let general = general(facts, first);
            Finding {
                object: Some(ranges(&objects)),
                // A command is complete only with the names of one object.
                remedy: first.remedy.as_ref().map(|remedy| match &general.remedy {
                    Some(same) if same == remedy => remedy.clone(),
                    _ => format!("{remedy} (of {}; -v shows all)", objects[0]),
                }),
                ..general
            }
        }
        [] => unreachable!("a group has a finding"),
    };
    groups.into_iter().map(merge).collect()
}

/// Returns a finding without the names that depend on its object.
fn general(facts: &HostFacts, finding: &Finding) -> Finding {
    let object = finding.object.as_deref().unwrap_or_default();
    let (name, port) = object.split_once('/').unwrap_or((object, ""));
    let device = facts.devices.iter().find(|device| device.name == name);
    let mut names = vec![(object, "this port")];
    if let Some(device) = device {
        let ports = device.ports.iter();
        let mut ports = ports.filter(|found| port.is_empty() || found.port.to_string() == port);
        let found = ports.next();
        let netdev = found.and_then(|port| port.netdev.as_deref());
        let umad = found.and_then(|port| port.umad.as_deref());
        let uverbs = device.uverbs.as_deref();
        names.push((name, "this device"));
        names.extend(netdev.map(|netdev| (netdev, "its interface")));
        names.extend(umad.map(|umad| (umad, "umad*")));
        names.extend(uverbs.map(|uverbs| (uverbs, "uverbs*")));
    }
    let replace = |text: &str| {
        names.iter().fold(text.to_owned(), |text, (name, by)| {
            replace_word(&text, name, by)
        })
    };
    Finding {
        text: replace(&finding.text),
        remedy: finding.remedy.as_deref().map(replace),
        ..finding.clone()
    }
}

/// Replaces a name where it is a whole word.
fn replace_word(text: &str, name: &str, by: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(name).filter(|_| !name.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        // A full stop can end a sentence.
        let ends = !after.starts_with(|c: char| is_part(c) && c != '.');
        let is_word = ends && !before.ends_with(is_part);
        replaced += before;
        replaced += if is_word { by } else { name };
        rest = after;
    }
    replaced + rest
}

/// Returns a list of objects, in which a run of three or more with consecutive numbers is shortened
/// to its ends.
fn ranges(objects: &[&str]) -> String {
    let numbers = |object: &str| {
        let digits =
            |text: &str| text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (device, port) = object.split_once('/').unwrap_or((object, ""));
        let (stem, number) = device.split_at(device.len() - digits(device));
        Some((
            stem.to_owned(),
            number.parse::<u64>().ok()?,
            port.parse::<u64>().unwrap_or(0),
        ))
    };
    let follows = |a: &str, b: &str| {
        let pair = numbers(a).zip(numbers(b));
        pair.is_some_and(|((stem, device, port), (other, next, number))| {
            let is_next =
                (next == device + 1 && number == port) || (next == device && number == port + 1);
            stem == other && is_next
        })
    };
    let mut runs: Vec<Vec<&str>> = Vec::new();
    for object in objects {
        match runs
            .last_mut()
            .filter(|run| run.last().is_some_and(|last| follows(last, object)))
        {
            Some(run) => run.push(object),
            None => runs.push(vec![object]),
        }
    }
    let write = |run: &Vec<&str>| match run.as_slice() {
        [first, _, .., last] => format!("{first} to {last}"),
        run => run.join(", "),
    };
    runs.iter().map(write).collect::<Vec<_>>().join(", ")
}

/// Shortens a long list to [`MAX_LINES`] if possible: of each check, an equal number of findings
/// that are no problem is kept, at least one.
pub(crate) fn shortened(findings: Vec<Finding>) -> Vec<Finding> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in findings.iter().filter(|f| f.level < Level::Warning) {
        *counts.entry(finding.check).or_default() += 1;
    }
    let problems = findings
        .iter()
        .filter(|f| f.level >= Level::Warning)
        .count();
    let lines = |limit: usize| {
        counts
            .values()
            .map(|count| limit.min(*count))
            .sum::<usize>()
    };
    let max = counts.values().copied().max().unwrap_or(0);
    // The last line has the number of findings.
    let mut limits = (1..=max).rev();
    let limit = limits
        .find(|limit| problems + lines(*limit) < MAX_LINES)
        .unwrap_or(1);
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for mut finding in findings {
        if finding.level < Level::Warning {
            let number = seen.entry(finding.check).or_default();
            *number += 1;
            if *number > limit {
                continue;
            }
            let more = counts[finding.check].saturating_sub(limit);
            if *number == limit && more > 0 {
                finding.text += &format!(" (and {more} more: -v)");
            }
        }
        kept.push(finding);
    }
    kept
}

/// Returns the number of findings of each level, such as `1 fault, 2 warnings, 20 ok`.
pub(crate) fn count(findings: &[Finding]) -> String {
    let number = |level| {
        findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    };
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let (faults, warnings) = (number(Level::Fault), number(Level::Warning));
    let mut text = format!(
        "{faults} fault{}, {warnings} warning{}",
        plural(faults),
        plural(warnings)
    );
    if number(Level::Unknown) > 0 {
        text += &format!(", {} unknown", number(Level::Unknown));
    }
    text + &format!(", {} ok", number(Level::Ok))
}

/// Returns one line: the worst level, the number of findings, and the first problem.
pub fn status(findings: &[Finding]) -> String {
    let first = findings
        .iter()
        .find(|finding| finding.level >= Level::Warning)
        .map_or_else(String::new, |finding| {
            let object = finding
                .object
                .as_ref()
                .map_or_else(String::new, |object| format!(" {object}"));
            format!("; {}{object}: {}", finding.check, finding.text)
        });
    let line = format!("ribinfo: {}: {}{first}", worst(findings), count(findings));
    one_line(&line) + "\n"
}

/// Returns a shell script with the remedies. Those that could take something away, or that are no
/// complete commands, are comments.
pub fn fix_script(findings: &[Finding]) -> String {
    let mut text = "#!/bin/sh\n# Written by `ribinfo check --fix-script`. Read it before you run it.\nset -ex\n"
        .to_owned();
    let mut written: Vec<&str> = Vec::new();
    for finding in findings {
        let Some(remedy) = finding
            .remedy
            .as_deref()
            .filter(|remedy| !written.contains(remedy))
        else {
            continue;
        };
        written.push(remedy);
        let title = Finding {
            remedy: None,
            ..finding.clone()
        };
        let line = one_line(remedy);
        let by_hand = if line == remedy && finding.is_command {
            ""
        } else {
            "# by hand: "
        };
        text += &format!("\n# {title}\n{by_hand}{line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use test_support::text::assert_contains;

    use super::*;

    #[test]
    fn script_has_complete_commands_only() {
        let findings = [
            Finding::fault("down").with_command("ip link set v0 up"),
            Finding::fault("twice").with_remedy("rm /etc/file"),
            Finding::fault("also\ndown").with_remedy("reseat\nthe cable"),
            Finding::fault("broken").with_command("a\nb"),
            Finding::fault("again").with_command("ip link set v0 up"),
        ];
        let script = fix_script(&findings);
        assert_eq!(
            script.matches("\nip link set v0 up\n").count(),
            1,
            "{script}"
        );
        for by_hand in ["rm /etc/file", "reseat the cable", "a b"] {
            assert_contains(&script, &[&format!("\n# by hand: {by_hand}\n")]);
        }
    }

    #[test]
    fn schema_is_up_to_date() {
        base::schema::assert_up_to_date::<CheckReport<'_>>(
            "ribinfo-check",
            SCHEMA,
            "Output of ribinfo check --json",
        );
    }

    #[test]
    fn consecutive_objects_are_a_range() {
        for (objects, expected) in [
            (
                &["mlx5_0/1", "mlx5_1/1", "mlx5_2/1", "mlx5_9/1"][..],
                "mlx5_0/1 to mlx5_2/1, mlx5_9/1",
            ),
            (&["a0/1", "a0/2", "a0/3", "a1/2"], "a0/1 to a0/3, a1/2"),
            (&["ib0", "ib1", "eno", "x"], "ib0, ib1, eno, x"),
        ] {
            assert_eq!(ranges(objects), expected);
        }
        assert_eq!(
            replace_word("mtu of eth1, not eth10 or eth1.", "eth1", "X"),
            "mtu of X, not eth10 or X."
        );
    }

    #[test]
    fn status_is_one_line() {
        let findings = [Finding::fault("a\nb").on("x/1"), Finding::ok("c")];
        assert_eq!(
            status(&findings),
            "ribinfo: fault: 1 fault, 0 warnings, 1 ok;  x/1: a b\n"
        );
        assert_eq!(status(&[]), "ribinfo: ok: 0 faults, 0 warnings, 0 ok\n");
    }
}
