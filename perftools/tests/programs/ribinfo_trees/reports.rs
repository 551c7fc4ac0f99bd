//! The score of `ribinfo check` on public reports. `tests/reports/README.md` describes the files.

use std::fmt::Write as _;
use std::fs;

use checks::finding::{Finding, Level};
use host::HostFacts;
use host::peer::PeerFacts;
use host::root::Root;

use super::host_builder::Host;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reports");
/// Share of the reports whose cause and remedy must be right, in percent.
const GOAL: usize = 98;
/// Number of reports that the files must have.
const COUNT: usize = 500;

/// An entry of a file: a public report, or a planted mistake.
pub(super) struct Report {
    /// The repository and number of a report.
    pub(super) source: String,
    /// Lines that make the host.
    pub(super) host: Vec<String>,
    /// The expected findings. None for a healthy host.
    pub(super) expected: Vec<Expected>,
}

/// An expected finding.
pub(super) struct Expected {
    /// A finding that is no problem.
    is_note: bool,
    check: String,
    text: String,
    remedy: String,
}

/// First words of an entry, before its source.
const KINDS: [&str; 3] = ["report", "mistake", "remedy"];

/// Returns the entries of all files whose names end so.
pub(super) fn entries(end: &str) -> Vec<Report> {
    let mut reports: Vec<Report> = Vec::new();
    let files = fs::read_dir(DIRECTORY).expect("the reports").flatten();
    let mut files: Vec<_> = files.map(|file| file.path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == end));
    files.sort();
    for path in files {
        let text = fs::read_to_string(&path).expect("reports");
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some((_, source)) = line
                .split_once(' ')
                .filter(|(kind, _)| KINDS.contains(kind))
            {
                reports.push(Report {
                    source: source.to_owned(),
                    host: Vec::new(),
                    expected: Vec::new(),
                });
                continue;
            }
            let report = reports.last_mut().expect("a report");
            let note = line.strip_prefix("note ").map(|note| format!("{note} => "));
            let is_note = note.is_some();
            match line.strip_prefix("expect ").or(note.as_deref()) {
                Some(expected) => {
                    let parts = expected.split_once(": ").and_then(|(check, rest)| {
                        let (text, remedy) = rest.split_once(" => ")?;
                        Some((check, text, remedy))
                    });
                    let (check, text, remedy) = parts.unwrap_or_else(|| panic!("{line}"));
                    report.expected.push(Expected {
                        is_note,
                        check: check.to_owned(),
                        text: text.to_owned(),
                        remedy: remedy.to_owned(),
                    });
                }
                None => report.host.push(line.to_owned()),
            }
        }
    }
    reports
}

/// Returns the warnings and faults on the host of a report.
fn findings(report: &Report) -> Vec<Finding> {
    let of_peer = |line: &String| line.strip_prefix("peer ").map(str::to_owned);
    let lines: Vec<String> = report.host.iter().filter_map(of_peer).collect();
    let peer = (!lines.is_empty()).then(|| {
        let peer = Host::new(&report.source, &lines);
        Ok(PeerFacts::collect(&Root::at(peer.path()).expect("a tree")))
    });
    let own = report.host.iter().filter(|line| of_peer(line).is_none());
    let host = Host::new(&report.source, &own.cloned().collect::<Vec<_>>());
    let root = Root::at(host.path()).expect("a tree");
    let facts = HostFacts::read(&root, peer);
    let mut findings = checks::check(&facts, &[]);
    findings.retain(|finding| {
        let is_expected = report.expected.iter().any(|expected| expected.is(finding));
        finding.level >= Level::Warning || is_expected
    });
    findings
}

impl Expected {
    /// Returns `true` if the finding has the cause and the remedy.
    pub(super) fn is(&self, finding: &Finding) -> bool {
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        (finding.level < Level::Warning) == self.is_note
            && finding.check == self.check
            && finding.text.contains(&self.text)
            && remedy.contains(&self.remedy)
    }
}

#[test]
fn causes_of_public_reports_are_found() {
    let reports = entries("reports");
    let (mut right, mut wrong, mut alarms) = (0, String::new(), String::new());
    for report in &reports {
        let source = &report.source;
        let is_dated = source.split(' ').count() == 2 && source.contains('/');
        assert!(is_dated, "{source}: expected REPOSITORY#NUMBER DATE");
        let findings = findings(report);
        let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let list = list.join("\n    ");
        let expected = &report.expected;
        let is_expected = |finding: &Finding| expected.iter().any(|expected| expected.is(finding));
        let is_found = |expected: &Expected| findings.iter().any(|finding| expected.is(finding));
        let all_found = expected.iter().all(is_found);
        let is_healthy = expected.iter().all(|expected| expected.is_note);
        if all_found && findings.iter().all(is_expected) {
            right += 1;
        } else if is_healthy {
            writeln!(alarms, "{source}: healthy\n    {list}").expect("a string");
        } else {
            let texts: Vec<String> = expected
                .iter()
                .map(|e| format!("{}: {}", e.check, e.text))
                .collect();
            let texts = texts.join("; ");
            writeln!(wrong, "{source}: expected {texts}\n    {list}").expect("a string");
        }
    }
    let count = reports.len();
    println!("{right} of {count} reports are right\n{wrong}{alarms}");
    assert_eq!(alarms, "", "false alarms");
    assert!(right * 100 >= count * GOAL, "{right} of {count}:\n{wrong}");
    assert!(count >= COUNT, "{count} reports");
}
