//! The requirements of `check --expect`.

use std::str::FromStr;

use host::HostFacts;

use super::finding::Finding;

/// Requirements of `check --expect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Minimum number of ACTIVE ports.
    pub ports: Option<usize>,
    /// Minimum rate of each ACTIVE port in Gb/s.
    pub rate: Option<u32>,
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut expectation = Self::default();
        let invalid = || format!("`{text}`: expected ports=N, rate=GBPS, or both with a comma");
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("ports", number)) => {
                    expectation.ports = Some(number.parse().map_err(|_| invalid())?);
                }
                Some(("rate", number)) => {
                    expectation.rate = Some(number.parse().map_err(|_| invalid())?);
                }
                _ => return Err(invalid()),
            }
        }
        Ok(expectation)
    }
}

/// Compares the ports with the requirements.
pub(crate) fn check_expected(facts: &HostFacts, expect: &Expectation) -> Vec<Finding> {
    let mut findings = Vec::new();
    let active = || facts.ports().filter(|(_, port)| port.is_active());
    if let Some(ports) = expect.ports {
        let count = active().count();
        let noun = if count == 1 { "port is" } else { "ports are" };
        let text = format!("{count} {noun} ACTIVE, {ports} are expected");
        findings.push(if count < ports {
            Finding::fault(text).with_remedy("ribinfo check port (for the reasons)")
        } else {
            Finding::ok(text)
        });
    }
    if let Some(expected) = expect.rate {
        for (device, port) in active() {
            let on = format!("{}/{}", device.name, port.port);
            let Some(rate) = port.rate else { continue };
            let text = format!("{rate}, at least {expected} Gb/sec are expected");
            findings.push(
                if rate.mbps < expected.saturating_mul(1000) {
                    Finding::fault(text).with_remedy("ribinfo check link (for the reasons)")
                } else {
                    Finding::ok(text)
                }
                .on(on),
            );
        }
    }
    for finding in &mut findings {
        finding.check = "expect";
    }
    findings
}
