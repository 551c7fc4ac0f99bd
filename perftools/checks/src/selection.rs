//! The checks that a user selects, and the findings that a user does not skip.

use host::HostFacts;

use super::expect::{Expectation, check_expected};
use super::finding::Finding;
use super::{CHECKS, check};

/// The checks to run, and the findings to omit.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of the checks to run; empty: all of them.
    pub checks: Vec<String>,
    /// Checks, devices and ports whose findings are omitted.
    pub skip: Vec<String>,
    /// Requirements of the ports.
    pub expect: Option<Expectation>,
}

impl Selection {
    /// Returns the names of the checks to run: the named ones, or all of them, without those to
    /// skip.
    fn checks(&self) -> Vec<String> {
        let names = CHECKS.iter().map(|check| check.name.to_owned());
        names
            .filter(|name| self.checks.is_empty() || self.checks.contains(name))
            .filter(|name| !self.skip.contains(name))
            .collect()
    }

    /// Runs the checks, compares the ports with the requirements, and omits the findings to skip.
    pub fn findings(&self, facts: &HostFacts) -> Vec<Finding> {
        let checks = self.checks();
        let mut findings = if checks.is_empty() {
            Vec::new()
        } else {
            check(facts, &checks)
        };
        // Most checks find nothing without a device. That of the modules says what to do.
        let modules = "modules".to_owned();
        let is_silent = |name: &String| findings.iter().all(|finding| finding.check != name);
        let lacks_device = !self.checks.is_empty() && facts.devices.is_empty();
        let is_wanted = !self.skip.contains(&modules) && is_silent(&modules);
        if lacks_device && is_wanted && checks.iter().any(is_silent) {
            findings.extend(check(facts, &[modules]));
        }
        let expect = self.expect.iter();
        findings.extend(expect.flat_map(|expect| check_expected(facts, expect)));
        findings.retain(|finding| !is_skipped(finding, &self.skip));
        findings
    }
}

/// Returns `true` if the object of a finding is one to skip, or a port of a device to skip.
fn is_skipped(finding: &Finding, skip: &[String]) -> bool {
    let Some(object) = &finding.object else {
        return false;
    };
    let device = object
        .split_once('/')
        .map_or(object.as_str(), |(device, _)| device);
    skip.iter().any(|name| name == object || name == device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_the_named_ones_without_those_to_skip() {
        let selection = |checks: &[&str], skip: &[&str]| Selection {
            checks: checks.iter().map(ToString::to_string).collect(),
            skip: skip.iter().map(ToString::to_string).collect(),
            expect: None,
        };
        assert_eq!(selection(&["port", "mtu"], &["mtu"]).checks(), ["port"]);
        let all = selection(&[], &["gpu"]).checks();
        assert_eq!(all.len(), CHECKS.len() - 1);
        assert!(!all.contains(&"gpu".to_owned()));
    }

    #[test]
    fn checks_without_a_device_say_so() {
        for (checks, skip, expected) in [
            ("port mtu roce", "", true),
            ("modules port", "", true),
            ("port governor", "", true),
            ("governor", "", false),
            ("port", "modules", false),
            ("port", "port", false),
        ] {
            let names = |list: &str| list.split_whitespace().map(str::to_owned).collect();
            let selection = Selection {
                checks: names(checks),
                skip: names(skip),
                expect: None,
            };
            let findings = selection.findings(&HostFacts::default());
            let is_it = |finding: &&Finding| finding.text.starts_with("no RDMA device");
            let count = findings.iter().filter(is_it).count();
            assert_eq!(count, usize::from(expected), "{checks}: {findings:?}");
        }
    }
}
