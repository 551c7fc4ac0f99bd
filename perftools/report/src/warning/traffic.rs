//! Detection of other traffic on the port during a test. It compares the counters of the port with
//! an upper estimate of the test's traffic.

use base::units::Style;
use measure::spec::{Limit, Spec};
use measure::stats::SideStats;

use super::{Warning, WarningKind};

/// Upper limit for the headers of a packet, in bytes.
const PACKET_OVERHEAD: u64 = 200;
/// Maximum number of bytes of other traffic without a warning.
const IGNORED_BYTES: u64 = 4 << 20;
/// Maximum number of packets of other traffic without a warning.
const IGNORED_PACKETS: u64 = 4000;

/// Returns a warning if the port counted more traffic than the test can have caused.
pub(super) fn other_traffic(
    spec: &Spec,
    mtu: Option<u32>,
    one_port: bool,
    stats: [&SideStats; 2],
) -> Option<Warning> {
    let counted = stats[0].port_counters.as_ref()?;
    let own = TrafficEstimate::new(spec, mtu, one_port, stats);
    // Allow 25 % for retransmissions, control messages and the inaccuracy of the estimate.
    let excess = |counted: u64, own: u64, ignored: u64| {
        counted
            .checked_sub(own + own / 4)
            .filter(|other| *other > ignored)
    };
    if let Some(other) = excess(counted.bytes(), own.bytes, IGNORED_BYTES) {
        let size = Style::default().size(other / 1000 * 1000);
        return Some(warning(&format!("about {size}")));
    }
    let other = excess(counted.packets(), own.packets, IGNORED_PACKETS)?;
    Some(warning(&format!("about {other} packets")))
}

fn warning(amount: &str) -> Warning {
    let text = format!("the port carried {amount} more than this test's traffic");
    Warning::new(WarningKind::OtherTraffic, text)
        .with_help("stop other programs that use the port, and check for retransmissions")
}

/// Upper estimate of the traffic of a test through its port.
struct TrafficEstimate {
    bytes: u64,
    packets: u64,
}

impl TrafficEstimate {
    fn new(
        spec: &Spec,
        mtu: Option<u32>,
        one_port: bool,
        [local, remote]: [&SideStats; 2],
    ) -> Self {
        // For one-sided operations only one end counts messages.
        let to_server = local.sent.msgs.max(remote.received.msgs);
        let to_client = local.received.msgs.max(remote.sent.msgs);
        // The port also counts messages from before the clock started and after it stopped.
        let uncounted = u64::from(spec.depth)
            .saturating_mul(u64::from(spec.qps) * u64::from(spec.threads))
            .saturating_mul(2);
        let warm_up = match spec.limit {
            Limit::Time(time) => {
                1.0 + spec.tuning.warm_up.as_secs_f64() / time.as_secs_f64().max(1e-3)
            }
            Limit::Messages(_) => 1.0,
        };
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )] // An estimate.
        let msgs = ((to_server + to_client) as f64 * warm_up) as u64 + uncounted;
        let per_message = spec
            .msg_size
            .div_ceil(u64::from(mtu.unwrap_or(1024)).max(256))
            .max(1);
        // Each packet can have an acknowledgement, and each message a credit message.
        let packets = msgs.saturating_mul(per_message * 2 + 1);
        let bytes = msgs
            .saturating_mul(spec.msg_size)
            .saturating_add(packets.saturating_mul(PACKET_OVERHEAD));
        // With both ends on one port, the port sends and receives each packet.
        let factor = if one_port { 2 } else { 1 };
        Self {
            bytes: bytes.saturating_mul(factor),
            packets: packets.saturating_mul(factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;
    use crate::samples::one_way;
    use measure::stats::port_counters::CounterChanges;

    #[test]
    fn only_traffic_beyond_the_tests_own_is_reported() {
        let Outcome::Measured(m) = one_way().outcome else {
            panic!()
        };
        let warning_for = |bytes: u64, packets: u64, one_port| {
            let increased = [
                ("counters/port_xmit_data", bytes / 4),
                ("hw_counters/sent_pkts", packets),
            ];
            let changes = CounterChanges {
                increased: increased.map(|(name, by)| (name.to_owned(), by)).into(),
                unknown: Vec::new(),
            };
            let local = SideStats {
                port_counters: Some(changes),
                ..m.local_stats.clone()
            };
            let stats = [&local, &m.remote_stats];
            other_traffic(&m.spec, Some(4096), one_port, stats)
        };
        let own = m.local_stats.sent.bytes;
        assert_eq!(warning_for(own + own / 20, 11_344 * 17, false), None);
        assert_eq!(warning_for(0, 0, false), None);
        let text = warning_for(own * 2, 0, false).unwrap().text;
        assert!(text.contains("carried about "), "{text}");
        let text = warning_for(0, 2_000_000, false).unwrap().text;
        assert!(text.contains("packets more than this test's"), "{text}");
        // With both ends on one port, all traffic is counted twice.
        assert_eq!(warning_for(own * 2, 0, true), None);
    }
}
