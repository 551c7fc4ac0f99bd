//! Error counters of ports, compared with thresholds.

use host::HostFacts;

use super::finding::Finding;

/// Counters: the file in `counters`, the name in the file of thresholds, and the threshold of
/// `ibqueryerrors`.
const THRESHOLDS: &[(&str, &str, u64)] = &[
    ("symbol_error", "SymbolErrorCounter", 10),
    ("link_error_recovery", "LinkErrorRecoveryCounter", 10),
    ("link_downed", "LinkDownedCounter", 10),
    ("port_rcv_errors", "PortRcvErrors", 10),
    (
        "port_rcv_remote_physical_errors",
        "PortRcvRemotePhysicalErrors",
        100,
    ),
    (
        "port_rcv_switch_relay_errors",
        "PortRcvSwitchRelayErrors",
        100,
    ),
    ("port_xmit_discards", "PortXmitDiscards", 100),
    (
        "port_xmit_constraint_errors",
        "PortXmitConstraintErrors",
        100,
    ),
    ("port_rcv_constraint_errors", "PortRcvConstraintErrors", 100),
    (
        "local_link_integrity_errors",
        "LocalLinkIntegrityErrors",
        10,
    ),
    (
        "excessive_buffer_overrun_errors",
        "ExcessiveBufferOverrunErrors",
        10,
    ),
    ("VL15_dropped", "VL15Dropped", 100),
];

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in facts.ports() {
        let Some(counters) = facts.counters.get(&(device.name.clone(), port.port)) else {
            continue;
        };
        let on = format!("{}/{}", device.name, port.port);
        let known = THRESHOLDS.iter().filter_map(|(name, other, default)| {
            let value = counters.get(&format!("counters/{name}"))?;
            let threshold = facts.thresholds.get(*other).unwrap_or(default);
            Some((*name, value, *threshold))
        });
        let known: Vec<(&str, u64, u64)> = known.collect();
        if known.is_empty() {
            continue;
        }
        let before = findings.len();
        for (name, value, threshold) in known.iter().filter(|(_, value, max)| value > max) {
            let remedy = if name.starts_with("port_xmit") {
                "ribinfo counters --watch (does it grow?); look for congestion and for a link that goes down"
            } else {
                "ribinfo counters --watch (does it grow?); reseat or replace the cable"
            };
            let text = format!("{name} is {value}, above the threshold of {threshold}");
            findings.push(Finding::warning(text).on(&on).with_remedy(remedy));
        }
        if findings.len() == before {
            let text = format!("{} error counters are within their thresholds", known.len());
            findings.push(Finding::ok(text).on(&on));
        }
    }
    findings
}
