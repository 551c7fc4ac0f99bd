//! The requirements of `check --expect`.

use super::finding::Finding;
use crate::ribinfo::args::Expectation;
use crate::ribinfo::collect::HostFacts;

/// Compares the ports with the requirements.
pub fn check_expected(facts: &HostFacts<'_>, expect: &Expectation) -> Vec<Finding> {
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
        finding.subject = "expect";
    }
    findings
}
