//! Whether something else used the port while a test ran, by the port's counters.

use super::Warning;
use crate::common::units::Style;
use crate::rperf::spec::{Limit, Spec};
use crate::rperf::stats::SideStats;
use crate::rperf::stats::port_counters::PortTraffic;

/// Headers of a packet, and an acknowledgement to each: more than any link has.
const OVERHEAD: u64 = 200;
/// What nobody needs to hear of.
const BYTES: u64 = 4 << 20;
const PACKETS: u64 = 4000;

/// What both ends moved, and what the port counted meanwhile.
pub(super) fn traffic(
    spec: &Spec,
    mtu: Option<u32>,
    one_port: bool,
    ends: [&SideStats; 2],
    port: PortTraffic,
) -> Option<Warning> {
    let own = Own::most(spec, mtu, one_port, ends);
    // Retried packets, the test's own words, what the estimate forgot: a quarter more is no news.
    let above = |counted: u64, own: u64, small: u64| {
        counted
            .checked_sub(own + own / 4)
            .filter(|other| *other > small)
    };
    if let Some(other) = port.bytes.and_then(|bytes| above(bytes, own.bytes, BYTES)) {
        let size = Style::default().size(other / 1000 * 1000);
        return Some(warning(&format!("about {size}")));
    }
    let other = port
        .packets
        .and_then(|packets| above(packets, own.packets, PACKETS))?;
    Some(warning(&format!("about {other} packets")))
}

fn warning(what: &str) -> Warning {
    let text = format!(
        "{what} more than this test's went through the port meanwhile: something else uses it, or much was sent again"
    );
    Warning::new("other_traffic", text)
}

/// The most that a test can have moved through its port.
struct Own {
    bytes: u64,
    packets: u64,
}

impl Own {
    fn most(
        spec: &Spec,
        mtu: Option<u32>,
        one_port: bool,
        [local, remote]: [&SideStats; 2],
    ) -> Self {
        // One end counts where the other's software takes no part.
        let there = local.sent.msgs.max(remote.received.msgs);
        let back = local.received.msgs.max(remote.sent.msgs);
        // What went before the clock started and after it stopped counts there too.
        let uncounted = u64::from(spec.depth)
            .saturating_mul(u64::from(spec.qps) * u64::from(spec.threads))
            .saturating_mul(2);
        let warm = match spec.limit {
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
        let msgs = ((there + back) as f64 * warm) as u64 + uncounted;
        let per_message = spec
            .msg_size
            .div_ceil(u64::from(mtu.unwrap_or(1024)).max(256))
            .max(1);
        // Data and an acknowledgement for each packet, and credits.
        let packets = msgs.saturating_mul(per_message * 2 + 1);
        let bytes = msgs
            .saturating_mul(spec.msg_size)
            .saturating_add(packets.saturating_mul(OVERHEAD));
        // Within one port each packet leaves and comes.
        let times = if one_port { 2 } else { 1 };
        Self {
            bytes: bytes.saturating_mul(times),
            packets: packets.saturating_mul(times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::report::record::Outcome;
    use crate::rperf::report::text::tests::one_way;

    #[test]
    fn only_more_than_the_tests_own_is_said() {
        let Outcome::Measured(m) = one_way().outcome else {
            panic!()
        };
        let of = |bytes: Option<u64>, packets: Option<u64>| {
            traffic(
                &m.spec,
                Some(4096),
                false,
                [&m.local_stats, &m.remote_stats],
                PortTraffic { bytes, packets },
            )
        };
        let own = m.local_stats.sent.bytes;
        assert_eq!(of(Some(own + own / 20), Some(11_344 * 17)), None);
        assert_eq!(of(None, None), None);
        assert!(of(Some(own * 2), None).unwrap().text.starts_with("about "));
        let text = of(None, Some(2_000_000)).unwrap().text;
        assert!(text.contains("packets more than this test's"), "{text}");
        // Through one port everything goes twice.
        let twice = traffic(
            &m.spec,
            Some(4096),
            true,
            [&m.local_stats, &m.remote_stats],
            PortTraffic {
                bytes: Some(own * 2),
                packets: None,
            },
        );
        assert_eq!(twice, None);
    }
}
