//! The checks that a user selects, and the findings that a user does not skip.

use host::HostFacts;

use super::expect::{Expectation, check_expected};
use super::finding::Finding;
use super::{CHECKS, check};

/// Returns the names of the checks to run: the named ones, or all of them, without those to skip.
pub fn checks(named: &[String], skip: &[String]) -> Vec<String> {
    let all = || CHECKS.iter().map(|check| check.name.to_owned());
    let names: Vec<String> = if named.is_empty() {
        all().collect()
    } else {
        named.to_vec()
    };
    names
        .into_iter()
        .filter(|name| !skip.contains(name))
        .collect()
}

/// Runs the checks, compares the ports with the requirements, and omits the findings to skip.
pub fn findings(
    facts: &HostFacts,
    checks: &[String],
    expect: Option<&Expectation>,
    skip: &[String],
) -> Vec<Finding> {
    let mut findings = if checks.is_empty() {
        Vec::new()
    } else {
        check(facts, checks)
    };
    findings.extend(
        expect
            .iter()
            .flat_map(|expect| check_expected(facts, expect)),
    );
    findings.retain(|finding| !is_skipped(finding, skip));
    findings
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
