//! The figures that are printed, from what both ends counted. Their meaning is qperf's.

use serde::{Deserialize, Serialize};

use super::SideStats;
use crate::rperf::spec::plan::{Pattern, Plan, Verb};
use crate::rperf::spec::test::Test;

/// The figures of one test. Rates are per second, times in nanoseconds, costs in processor seconds
/// a gigabyte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// Bytes that arrived, over the receiver's time (that were written, over the writer's, where
    /// nobody sees them arrive); both ways: the sum over the mean time.
    pub bandwidth: Option<f64>,
    /// What was sent, over the sender's time, where it need not arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_bandwidth: Option<f64>,
    /// One way: half a round trip, the mean; or there and back, where nobody answers.
    pub latency: Option<f64>,
    /// Messages that arrived.
    pub msg_rate: f64,
    /// The sender's host, one-way tests only.
    pub send_cost: Option<f64>,
    /// The receiver's host, one-way tests only.
    pub recv_cost: Option<f64>,
}

/// What the counts of a test mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Independent of each other.
pub struct Interpretation {
    /// The time of one message is the figure.
    pub latency: bool,
    /// What arrives is counted; else what is done, as nobody sees it arrive.
    pub arrives: bool,
    /// The server's software takes no part.
    pub alone: bool,
    /// Both ends send.
    pub both_ways: bool,
    /// Data comes to the client.
    pub fetches: bool,
    /// What is sent need not arrive.
    pub may_lose: bool,
    /// The server sends, where data goes one way.
    pub flip: bool,
}

impl Interpretation {
    /// Of a test and, on an RDMA device, what it came to there.
    pub fn new(test: Test, plan: Option<Plan>) -> Self {
        let Some(plan) = plan else {
            let may_lose = test.may_lose();
            let latency = test.is_latency();
            return Self {
                latency,
                arrives: true,
                alone: false,
                both_ways: false,
                fetches: false,
                may_lose,
                flip: false,
            };
        };
        let alone = !plan.has_receiver();
        Self {
            latency: plan.is_latency(),
            arrives: !alone || plan.verb == Verb::Read,
            alone,
            both_ways: plan.pattern == Pattern::BothWays,
            fetches: plan.verb == Verb::Read,
            may_lose: test.may_lose() && !alone,
            flip: false,
        }
    }
}

impl Interpretation {
    /// The same where the server sends instead of the client.
    #[must_use]
    pub fn flipped(self, flip: bool) -> Self {
        Self { flip, ..self }
    }
}

#[allow(clippy::cast_precision_loss)] // Counts below 2^53.
impl Summary {
    /// Makes the figures of a plan from both ends' counts.
    pub fn new(meaning: Interpretation, local: &SideStats, remote: &SideStats) -> Self {
        let (lt, rt) = (local.seconds(), remote.seconds());
        let over = |l: u64, r: u64| match (l, r) {
            (0, r) => ratio(r as f64, rt),
            (l, 0) => ratio(l as f64, lt),
            (l, r) => ratio((l + r) as f64, f64::midpoint(lt, rt)),
        };
        // Where the peer takes no part, what counts is what is done: nobody sees it arrive.
        let done = |side: &SideStats| {
            if meaning.arrives {
                side.received
            } else {
                side.sent
            }
        };
        let msg_rate = over(done(local).msgs, done(remote).msgs);
        if meaning.latency {
            let moved = done(local).msgs + done(remote).msgs;
            let latency = (moved > 0).then(|| local.nanos as f64 / moved as f64);
            return Self {
                latency,
                msg_rate,
                ..Self::default()
            };
        }
        let moved = done(local).bytes + done(remote).bytes;
        let cost = |side: &SideStats, bytes: u64| {
            // The end that takes no part has moved as much as the other.
            let bytes = if meaning.alone { moved } else { bytes };
            (!meaning.both_ways && bytes > 0).then(|| side.cpu.host.busy() * 1e9 / bytes as f64)
        };
        let (sender, receiver) = if meaning.fetches == meaning.flip {
            (local, remote)
        } else {
            (remote, local)
        };
        Self {
            bandwidth: Some(over(done(local).bytes, done(remote).bytes)),
            send_bandwidth: meaning
                .may_lose
                .then(|| over(local.sent.bytes, remote.sent.bytes)),
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
    use crate::rperf::stats::Count;
    use crate::rperf::stats::cpu::{CpuUse, HostCpuTime};

    fn meaning(test: Test) -> Interpretation {
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
                host: HostCpuTime {
                    kernel: busy,
                    ..HostCpuTime::default()
                },
                ..CpuUse::default()
            },
            ..SideStats::default()
        }
    }

    #[test]
    fn bandwidth_is_the_receivers_bytes_over_the_receivers_time() {
        let s = Summary::new(
            meaning(Test::RcBw),
            &side(5000, 0, 1, 1.0),
            &side(0, 4000, 2, 3.0),
        );
        assert_eq!(s.bandwidth, Some(2_000_000.0));
        assert!((s.msg_rate - 2000.0).abs() < 1e-9);
        assert_eq!(s.send_cost, Some(1e9 / 5_000_000.0));
        assert_eq!(s.recv_cost, Some(3e9 / 4_000_000.0));
    }

    #[test]
    fn both_ways_is_the_sum_over_the_mean_time_and_has_no_cost() {
        let s = Summary::new(
            meaning(Test::RcBiBw),
            &side(9, 3000, 1, 1.0),
            &side(9, 6000, 2, 1.0),
        );
        assert_eq!(s.bandwidth, Some(6_000_000.0));
        assert_eq!((s.send_cost, s.recv_cost), (None, None));
    }

    #[test]
    fn latency_is_half_a_round_trip() {
        let s = Summary::new(
            meaning(Test::RcLat),
            &side(500, 500, 1, 1.0),
            &side(500, 500, 1, 1.0),
        );
        assert_eq!(s.latency, Some(1_000_000.0));
        assert_eq!(s.bandwidth, None);
    }

    #[test]
    fn nothing_arrived_is_zero_not_nan() {
        let s = Summary::new(
            meaning(Test::RcBw),
            &side(0, 0, 0, 0.0),
            &side(0, 0, 0, 0.0),
        );
        assert_eq!((s.bandwidth, s.send_cost), (Some(0.0), None));
        assert_eq!(
            Summary::new(
                meaning(Test::RcLat),
                &side(0, 0, 0, 0.0),
                &side(0, 0, 0, 0.0)
            )
            .latency,
            None
        );
    }
}
