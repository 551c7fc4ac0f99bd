//! Derives the printed figures from the measurements of both ends. The definitions are those of
//! qperf.

use serde::{Deserialize, Serialize};

use super::SideStats;
use crate::spec::plan::{Pattern, Plan, Verb};
use crate::spec::test::Test;

/// Figures of one test. Bandwidths are in bytes per second, latencies in nanoseconds, and costs in
/// processor seconds per gigabyte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Summary {
    /// Received bytes per second of the receiver's time. For one-sided writes and atomics:
    /// completed bytes per second of the initiator's time. For bidirectional tests: the sum of
    /// both directions divided by the mean of both times.
    pub bandwidth: Option<f64>,
    /// Sent bytes per second of the sender's time, for services that may lose messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_bandwidth: Option<f64>,
    /// Bandwidth towards the server: each end's bytes per second of its own time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_server: Option<f64>,
    /// Bandwidth towards the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_client: Option<f64>,
    /// Mean latency: half a round trip, or one complete operation if it is one-sided.
    pub latency: Option<f64>,
    /// Messages per second, counted like `bandwidth`.
    pub msg_rate: f64,
    /// Cost on the sender's host (unidirectional tests only).
    pub send_cost: Option<f64>,
    /// Cost on the receiver's host (unidirectional tests only).
    pub recv_cost: Option<f64>,
}

/// Properties of a test that determine how its counts become figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Independent of each other.
pub struct Interpretation {
    /// The test measures the latency of single messages.
    pub latency: bool,
    /// Received messages are counted. Otherwise completed sends are counted, because no software
    /// sees the data arrive.
    pub counts_received: bool,
    /// The operations are one-sided: the software of the passive end takes no part.
    pub one_sided: bool,
    /// Both ends send.
    pub bidirectional: bool,
    /// The operation is an RDMA READ: data flows to the end that posts it.
    pub reads: bool,
    /// Sent messages may be lost.
    pub lossy: bool,
    /// The server posts the requests instead of the client (`--flip`).
    pub flip: bool,
}

impl Interpretation {
    /// Derives the properties from a test and its plan. A test over sockets has no plan.
    pub fn new(test: Test, plan: Option<Plan>) -> Self {
        let Some(plan) = plan else {
            return Self {
                latency: test.is_latency(),
                counts_received: true,
                one_sided: false,
                bidirectional: false,
                reads: false,
                lossy: test.may_lose(),
                flip: false,
            };
        };
        let one_sided = !plan.has_receiver();
        Self {
            latency: plan.is_latency(),
            counts_received: !one_sided || plan.verb == Verb::Read,
            one_sided,
            bidirectional: plan.pattern == Pattern::BothWays,
            reads: plan.verb == Verb::Read,
            lossy: test.may_lose() && !one_sided,
            flip: false,
        }
    }

    /// Sets [`bidirectional`](Self::bidirectional) for a test over sockets in both directions.
    #[must_use]
    pub fn with_both_directions(self, both: bool) -> Self {
        Self {
            bidirectional: self.bidirectional || both,
            ..self
        }
    }

    /// Sets [`flip`](Self::flip).
    #[must_use]
    pub fn with_flip(self, flip: bool) -> Self {
        Self { flip, ..self }
    }
}

#[allow(clippy::cast_precision_loss)] // Counts below 2^53.
impl Summary {
    /// Computes the figures of a test from the measurements of both ends.
    pub fn new(interpretation: Interpretation, local: &SideStats, remote: &SideStats) -> Self {
        let (lt, rt) = (local.seconds(), remote.seconds());
        let per_second = |l: u64, r: u64| match (l, r) {
            (0, r) => ratio(r as f64, rt),
            (l, 0) => ratio(l as f64, lt),
            (l, r) => ratio((l + r) as f64, f64::midpoint(lt, rt)),
        };
        let counted = |side: &SideStats| {
            if interpretation.counts_received {
                side.received
            } else {
                side.sent
            }
        };
        let msg_rate = per_second(counted(local).msgs, counted(remote).msgs);
        if interpretation.latency {
            let msgs = counted(local).msgs + counted(remote).msgs;
            let latency = (msgs > 0).then(|| local.nanos as f64 / msgs as f64);
            return Self {
                latency,
                msg_rate,
                ..Self::default()
            };
        }
        let total_bytes = counted(local).bytes + counted(remote).bytes;
        let cost = |side: &SideStats, bytes: u64| {
            // The passive end of one-sided operations counts nothing itself.
            let bytes = if interpretation.one_sided {
                total_bytes
            } else {
                bytes
            };
            let host = side.cpu.host?;
            (!interpretation.bidirectional && bytes > 0).then(|| host.busy() * 1e9 / bytes as f64)
        };
        let (sender, receiver) = if interpretation.reads == interpretation.flip {
            (local, remote)
        } else {
            (remote, local)
        };
        let bandwidth = per_second(counted(local).bytes, counted(remote).bytes);
        let between = |sender: &SideStats, receiver: &SideStats| {
            if interpretation.counts_received {
                ratio(receiver.received.bytes as f64, receiver.seconds())
            } else {
                ratio(sender.sent.bytes as f64, sender.seconds())
            }
        };
        let (to_server, to_client) = if interpretation.bidirectional {
            (Some(between(local, remote)), Some(between(remote, local)))
        } else if interpretation.reads == interpretation.flip {
            (Some(bandwidth), None)
        } else {
            (None, Some(bandwidth))
        };
        Self {
            bandwidth: Some(bandwidth),
            to_server,
            to_client,
            send_bandwidth: interpretation
                .lossy
                .then(|| per_second(local.sent.bytes, remote.sent.bytes)),
            latency: None,
            msg_rate,
            send_cost: cost(sender, sender.sent.bytes),
            recv_cost: cost(receiver, receiver.received.bytes),
        }
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Count;
    use crate::stats::cpu::{CpuUse, HostCpuTime};

    fn interpretation(test: Test) -> Interpretation {
        Interpretation::new(test, test.plan())
    }

    fn side(sent: u64, received: u64, secs: u64, busy: f64) -> SideStats {
        SideStats {
            sent: Count {
                msgs: sent,
                bytes: sent * 1000,
            },
            received: Count {
                msgs: received,
                bytes: received * 1000,
            },
            nanos: secs * 1_000_000_000,
            cpu: CpuUse {
                host: Some(HostCpuTime {
                    kernel: busy,
                    ..HostCpuTime::default()
                }),
                ..CpuUse::default()
            },
            ..SideStats::default()
        }
    }

    #[test]
    fn bandwidth_uses_bytes_and_time_of_the_receiver() {
        let s = Summary::new(
            interpretation(Test::RcBw),
            &side(5000, 0, 1, 1.0),
            &side(0, 4000, 2, 3.0),
        );
        assert_eq!(s.bandwidth, Some(2_000_000.0));
        assert!((s.msg_rate - 2000.0).abs() < 1e-9);
        assert_eq!(s.send_cost, Some(1e9 / 5_000_000.0));
        assert_eq!(s.recv_cost, Some(3e9 / 4_000_000.0));
    }

    #[test]
    fn bidirectional_bandwidth_is_a_sum_and_has_no_cost() {
        let s = Summary::new(
            interpretation(Test::RcBiBw),
            &side(9, 3000, 1, 1.0),
            &side(9, 6000, 2, 1.0),
        );
        assert_eq!(s.bandwidth, Some(6_000_000.0));
        assert_eq!((s.send_cost, s.recv_cost), (None, None));
    }

    #[test]
    fn each_direction_has_a_bandwidth() {
        let directions = |test, flip, local: &SideStats, remote: &SideStats| {
            let s = Summary::new(interpretation(test).with_flip(flip), local, remote);
            (s.to_server, s.to_client)
        };
        let (local, remote) = (side(9, 3000, 1, 1.0), side(9, 6000, 2, 1.0));
        let both = directions(Test::RcBiBw, false, &local, &remote);
        assert_eq!(both, (Some(3_000_000.0), Some(3_000_000.0)));
        // The client receives nothing.
        let both = directions(Test::RcBiBw, false, &side(9, 0, 1, 1.0), &remote);
        assert_eq!(both, (Some(3_000_000.0), Some(0.0)));
        let one = Some(4_000_000.0);
        let (sender, receiver) = (side(5000, 0, 1, 1.0), side(0, 4000, 1, 1.0));
        assert_eq!(
            directions(Test::RcBw, false, &sender, &receiver),
            (one, None)
        );
        assert_eq!(
            directions(Test::RcBw, true, &receiver, &sender),
            (None, one)
        );
        let reads = |flip| directions(Test::RcRdmaReadBw, flip, &receiver, &side(0, 0, 1, 1.0));
        assert_eq!(reads(false), (None, one));
        assert_eq!(reads(true), (one, None));
        assert_eq!(
            directions(Test::RcLat, false, &local, &remote),
            (None, None)
        );
    }

    #[test]
    fn latency_is_half_a_round_trip() {
        let s = Summary::new(
            interpretation(Test::RcLat),
            &side(500, 500, 1, 1.0),
            &side(500, 500, 1, 1.0),
        );
        assert_eq!(s.latency, Some(1_000_000.0));
        assert_eq!(s.bandwidth, None);
    }

    #[test]
    fn no_messages_make_zero_instead_of_nan() {
        let s = Summary::new(
            interpretation(Test::RcBw),
            &side(0, 0, 0, 0.0),
            &side(0, 0, 0, 0.0),
        );
        assert_eq!((s.bandwidth, s.send_cost), (Some(0.0), None));
        assert_eq!(
            Summary::new(
                interpretation(Test::RcLat),
                &side(0, 0, 0, 0.0),
                &side(0, 0, 0, 0.0)
            )
            .latency,
            None
        );
    }

    #[test]
    fn an_unknown_cpu_time_is_no_cost_of_zero() {
        let (local, mut remote) = (side(10, 0, 1, 0.5), side(0, 10, 1, 0.5));
        remote.cpu.host = None;
        let summary = Summary::new(interpretation(Test::RcBw), &local, &remote);
        assert!(summary.send_cost.is_some() && summary.recv_cost.is_none());
    }
}
