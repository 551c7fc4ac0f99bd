//! The counters of ports as metrics.

use std::fmt;

use host::counters::Counters;

use crate::exposition::Metrics;

/// Counters that the IBTA specifies (volume 1, 16.1.3): the file in `counters`, the metric without
/// `_total`, its description, and the unit of the file.
const SPECIFIED: &[(&str, &str, &str, u64)] = &[
    (
        "port_xmit_data",
        "rdma_port_transmit_bytes",
        "Bytes sent, with headers.",
        4,
    ),
    (
        "port_rcv_data",
        "rdma_port_receive_bytes",
        "Bytes received, with headers.",
        4,
    ),
    (
        "port_xmit_packets",
        "rdma_port_transmit_packets",
        "Packets sent.",
        1,
    ),
    (
        "port_rcv_packets",
        "rdma_port_receive_packets",
        "Packets received.",
        1,
    ),
    (
        "unicast_xmit_packets",
        "rdma_port_unicast_transmit_packets",
        "Unicast packets sent.",
        1,
    ),
    (
        "unicast_rcv_packets",
        "rdma_port_unicast_receive_packets",
        "Unicast packets received.",
        1,
    ),
    (
        "multicast_xmit_packets",
        "rdma_port_multicast_transmit_packets",
        "Multicast packets sent.",
        1,
    ),
    (
        "multicast_rcv_packets",
        "rdma_port_multicast_receive_packets",
        "Multicast packets received.",
        1,
    ),
    (
        "port_xmit_wait",
        "rdma_port_transmit_wait",
        "Ticks in which the port had data and no credits to send them.",
        1,
    ),
    (
        "symbol_error",
        "rdma_port_symbol_errors",
        "Errors on a lane of the link.",
        1,
    ),
    (
        "link_error_recovery",
        "rdma_port_link_error_recoveries",
        "Successful recoveries of the link.",
        1,
    ),
    (
        "link_downed",
        "rdma_port_link_downed",
        "Failed recoveries of the link, after which it went down.",
        1,
    ),
    (
        "port_rcv_errors",
        "rdma_port_receive_errors",
        "Packets received with errors.",
        1,
    ),
    (
        "port_rcv_remote_physical_errors",
        "rdma_port_receive_remote_physical_errors",
        "Packets received with the mark of an error before.",
        1,
    ),
    (
        "port_rcv_switch_relay_errors",
        "rdma_port_receive_switch_relay_errors",
        "Packets that a switch could not forward.",
        1,
    ),
    (
        "port_xmit_discards",
        "rdma_port_transmit_discards",
        "Packets that were not sent because the link was down or congested.",
        1,
    ),
    (
        "port_xmit_constraint_errors",
        "rdma_port_transmit_constraint_errors",
        "Packets that a rule of the port did not allow to be sent.",
        1,
    ),
    (
        "port_rcv_constraint_errors",
        "rdma_port_receive_constraint_errors",
        "Packets that a rule of the port did not allow to be received.",
        1,
    ),
    (
        "local_link_integrity_errors",
        "rdma_port_local_link_integrity_errors",
        "Excessive errors of the link.",
        1,
    ),
    (
        "excessive_buffer_overrun_errors",
        "rdma_port_excessive_buffer_overrun_errors",
        "Repeated overruns of the receive buffer.",
        1,
    ),
    (
        "VL15_dropped",
        "rdma_port_management_drops",
        "Management packets that were dropped.",
        1,
    ),
];

/// A port with its counters.
#[derive(Debug)]
pub(super) struct ExportedCounters {
    pub(super) device: String,
    pub(super) port: String,
    pub(super) counters: Counters,
}

/// Writes the counters of all ports.
pub(super) fn write(ports: &[ExportedCounters], metrics: &mut Metrics<'_>) -> fmt::Result {
    for (file, name, help, unit) in SPECIFIED {
        let file = format!("counters/{file}");
        let samples = ports.iter().filter_map(|port| {
            let labels = [("device", port.device.as_str()), ("port", &port.port)];
            Some((labels, port.counters.get(&file)?.wrapping_mul(*unit)))
        });
        metrics.counters(name, help, samples)?;
    }
    let others = ports.iter().flat_map(|port| {
        let others = port.counters.iter().filter(|(name, _)| !is_specified(name));
        others.map(|(name, value)| {
            let name = name.split_once('/').map_or(name, |(_, name)| name);
            let labels = [
                ("device", port.device.as_str()),
                ("port", &port.port),
                ("counter", name),
            ];
            (labels, value)
        })
    });
    metrics.counters(
        "rdma_port_hw_counters",
        "Counters of the driver, with the names that it gives them.",
        others,
    )
}

/// Returns `true` if the counter has a metric of its own.
fn is_specified(name: &str) -> bool {
    let file = name.strip_prefix("counters/");
    file.is_some_and(|file| SPECIFIED.iter().any(|(specified, ..)| *specified == file))
}
