//! Error counters of ports, compared with thresholds.

use host::HostFacts;
use host::counters::Counters;

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

/// Counters of drivers in `hw_counters`, with what their increase means and what to do.
const CAUSES: &[(&[&str], &str, &str)] = &[
    (
        &[
            "out_of_sequence",
            "packet_seq_err",
            "local_ack_timeout_err",
            "implied_nak_seq_err",
            "roce_adp_retrans",
            "roce_adp_retrans_to",
            "to_retransmits",
            "seq_err_naks_rcvd",
            "max_retry_exceeded",
            "retrans_timeout_events",
            "unresponsive_remote_events",
            "impaired_remote_conn_events",
        ],
        "packets were lost or came late",
        "ribinfo counters --watch (does it grow?); check PFC and ECN on both hosts and all switches (ribinfo check dcb)",
    ),
    (
        &["rnr_nak_retry_err", "out_of_buffer", "rnr_naks_rcvd"],
        "receivers had no buffers posted",
        "ribinfo counters --watch (does it grow?); post more receives in the application on the receiving host",
    ),
    // The drivers do not say why: no buffer posted, or no place in the adapter.
    (
        &["rx_drops", "rx_roce_discards", "rx_roce_drops"],
        "received packets were dropped",
        "ribinfo counters --watch (does it grow?); post more receives, and check PFC (ribinfo check dcb)",
    ),
];
/// Number of errors that is normal, and the number of packets for each further one.
const NORMAL: (u64, u64) = (1000, 100_000);

/// Returns warnings for the counters of the driver that are high compared with the packets.
fn check_driver(counters: &Counters) -> impl Iterator<Item = Finding> {
    let packets = ["counters/port_xmit_packets", "counters/port_rcv_packets"];
    let packets = packets.iter().filter_map(|name| counters.get(name));
    let efa = ["hw_counters/tx_pkts", "hw_counters/rx_pkts"];
    let packets: u64 = packets
        .chain(efa.iter().filter_map(|name| counters.get(name)))
        .fold(0, u64::saturating_add);
    let limit = NORMAL.0.saturating_add(packets / NORMAL.1);
    CAUSES.iter().filter_map(move |(names, cause, remedy)| {
        let high = names.iter().filter_map(|name| {
            let value = counters.get(&format!("hw_counters/{name}"))?;
            (value > limit).then(|| format!("{name} {value}"))
        });
        let high: Vec<String> = high.collect();
        (!high.is_empty())
            .then(|| Finding::warning(format!("{cause}: {}", high.join(", "))).with_remedy(*remedy))
    })
}

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in facts.ports().filter(|(_, port)| port.is_active()) {
        let Some(counters) = facts.counters.get(&(device.name.clone(), port.port)) else {
            continue;
        };
        let on = format!("{}/{}", device.name, port.port);
        findings.extend(check_driver(counters).map(|finding| finding.on(&on)));
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
