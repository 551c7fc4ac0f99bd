//! The counters of ports as metrics.

use std::fmt;

use host::counters::Counters;

use crate::exposition::Metrics;

/// Counters that the IBTA specifies (volume 1, 16.1.3): the file in `counters`, its unit, the
/// metric without `rdma_port_` and `_total`, and its description.
const SPECIFIED: &str = "\
port_xmit_data 4 transmit_bytes Bytes sent, with headers.
port_rcv_data 4 receive_bytes Bytes received, with headers.
port_xmit_packets 1 transmit_packets Packets sent.
port_rcv_packets 1 receive_packets Packets received.
unicast_xmit_packets 1 unicast_transmit_packets Unicast packets sent.
unicast_rcv_packets 1 unicast_receive_packets Unicast packets received.
multicast_xmit_packets 1 multicast_transmit_packets Multicast packets sent.
multicast_rcv_packets 1 multicast_receive_packets Multicast packets received.
port_xmit_wait 1 transmit_wait Ticks in which the port had data and no credits to send them.
symbol_error 1 symbol_errors Errors on a lane of the link.
link_error_recovery 1 link_error_recoveries Successful recoveries of the link.
link_downed 1 link_downed Failed recoveries of the link, after which it went down.
port_rcv_errors 1 receive_errors Packets received with errors.
port_rcv_remote_physical_errors 1 receive_remote_physical_errors Packets received with the mark of an error before.
port_rcv_switch_relay_errors 1 receive_switch_relay_errors Packets that a switch could not forward.
port_xmit_discards 1 transmit_discards Packets that were not sent because the link was down or congested.
port_xmit_constraint_errors 1 transmit_constraint_errors Packets that a rule of the port did not allow to be sent.
port_rcv_constraint_errors 1 receive_constraint_errors Packets that a rule of the port did not allow to be received.
local_link_integrity_errors 1 local_link_integrity_errors Excessive errors of the link.
excessive_buffer_overrun_errors 1 excessive_buffer_overrun_errors Repeated overruns of the receive buffer.
VL15_dropped 1 management_drops Management packets that were dropped.";

fn specified() -> impl Iterator<Item = (&'static str, u64, &'static str, &'static str)> {
    SPECIFIED.lines().filter_map(|line| {
        let mut words = line.splitn(4, ' ');
        let (file, unit) = (words.next()?, words.next()?.parse().ok()?);
        Some((file, unit, words.next()?, words.next()?))
    })
}

/// A port with its counters.
#[derive(Debug)]
pub(super) struct ExportedCounters {
    pub(super) device: String,
    pub(super) port: String,
    pub(super) counters: Counters,
}

/// Writes the counters of all ports.
pub(super) fn write(ports: &[ExportedCounters], metrics: &mut Metrics<'_>) -> fmt::Result {
    for (file, unit, name, help) in specified() {
        let (file, name) = (format!("counters/{file}"), format!("rdma_port_{name}"));
        let samples = ports.iter().filter_map(|port| {
            let labels = [("device", port.device.as_str()), ("port", &port.port)];
            Some((labels, port.counters.get(&file)?.wrapping_mul(unit)))
        });
        metrics.counters(&name, help, samples)?;
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
    file.is_some_and(|file| specified().any(|(specified, ..)| specified == file))
}
