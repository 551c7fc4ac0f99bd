//! Selects the loop for the pattern of a test, and computes the statistics from its counts.

use std::ops::Range;
use std::time::Instant;

use base::error::{Kind, Result};
use host::tcp;

use super::pingpong;
use super::wait::Waiter;
use super::warm_up::WarmUpBase;
use super::{DataPath, Measurement, Peer, Role, bandwidth, passive, pin};
use crate::spec::modes::Wait;
use crate::spec::plan::{Pattern, Verb};
use crate::spec::{Shape, Side};
use crate::stats::cpu::ClockReading;
use crate::stats::interval::is_stall;
use crate::stats::latency::LatencyRecorder;
use crate::stats::{Count, SideStats};

/// Runs the test of `shape` over `data_path`. Receives must be posted on both ends.
pub(crate) fn run<W: DataPath, P: Peer>(
    role: Role,
    shape: &Shape,
    side: &Side,
    data_path: &mut W,
    peer: &P,
) -> Result<Measurement> {
    let _pinned = pin::Pinned::to(side.cpus.as_ref())?;
    let plan = shape.plan;
    let client = role == Role::Client;
    let is_sender = client != shape.flip;
    let mut side = side.clone();
    if plan.pattern == Pattern::Polled {
        side.wait = Wait::Poll; // a write to memory causes no event
    }
    let side = &side;
    let mut waiter = Waiter::new(side, plan.is_latency())
        .with_counters(peer.counters())
        .solicited(shape.solicits() && !is_sender);
    let mut latency = (plan.is_latency() && client)
        .then(|| LatencyRecorder::new(peer.counters()).with_samples(shape.tuning.samples));
    let retransmitted_before = data_path.retransmitted();
    let start = ClockReading::now();
    let counted = match (plan.pattern, &mut latency) {
        (Pattern::PingPong, Some(latency)) if plan.is_round_trip() => {
            pingpong::one_sided(shape, data_path, peer, &mut waiter, &start, latency)
        }
        (Pattern::PingPong | Pattern::Polled, Some(latency)) => {
            pingpong::ping(shape, data_path, peer, &mut waiter, &start, latency)
        }
        (Pattern::PingPong | Pattern::Polled, None) if plan.has_receiver() => {
            pingpong::pong(shape, data_path, peer, &mut waiter)
        }
        (Pattern::OneWay, _) if !is_sender && !plan.has_receiver() => {
            passive::wait_for_peer(shape, side, data_path, peer)
        }
        (Pattern::PingPong | Pattern::Polled, None) => {
            passive::wait_for_peer(shape, side, data_path, peer)
        }
        (Pattern::OneWay | Pattern::BothWays, _) => {
            let both = plan.pattern == Pattern::BothWays;
            let flow = bandwidth::Flow {
                sends: both || is_sender,
                receives: plan.has_receiver() && (both || !is_sender),
                // On iWARP the accepting end may not send before the connecting end has sent.
                waits_first: both && plan.has_receiver() && shape.is_reliable() && !client,
            };
            bandwidth::run(flow, shape, data_path, peer, &mut waiter, &start)
        }
    }
    // An error reported by the peer explains more than a completion status does.
    .map_err(|error| {
        if error.kind() == Kind::Device {
            peer.explain(error)
        } else {
            error
        }
    })?;
    let base = counted.base.unwrap_or(WarmUpBase {
        sent: 0,
        received: Count::default(),
        begin: start,
    });
    let (sent, start) = (counted.sent - base.sent, base.begin);
    let received = Count {
        msgs: counted.received.msgs - base.received.msgs,
        bytes: counted.received.bytes - base.received.bytes,
    };
    let done = Count {
        msgs: sent,
        bytes: sent * u64::from(shape.msg_size),
    };
    let (sent, received) = if plan.verb == Verb::Read {
        (Count::default(), done)
    } else {
        (done, received)
    };
    let until = counted.until.unwrap_or(counted.end.wall());
    let completions = done.msgs / u64::from(shape.signal_every) + received.msgs;
    let stats = SideStats {
        sent,
        received,
        lost: counted.lost,
        duplicates: data_path.counts().duplicates,
        foreign: data_path.counts().foreign,
        nanos: u64::try_from(until.saturating_duration_since(start.wall()).as_nanos())
            .unwrap_or(u64::MAX),
        max_cqe: Some(waiter.max_completions()),
        retransmitted: tcp::increase(retransmitted_before, data_path.retransmitted()),
        jitter: None,
        port_counters: None,
        stalled: Some(stalled(
            waiter.silence(),
            start.wall()..until,
            completions,
            usual_gap(shape),
        )),
        cpu: counted.end.since(&start),
        verified: data_path.verified(),
        threads: Vec::new(),
    };
    Ok(Measurement { stats, latency })
}

/// Returns the time between two completions that the rate limit of the user causes, in nanoseconds.
fn usual_gap(shape: &Shape) -> u64 {
    let together = shape.signal_every.max(shape.tuning.burst.unwrap_or(1));
    let gap = shape.gap().unwrap_or_default().as_nanos() * u128::from(together);
    u64::try_from(gap).unwrap_or(u64::MAX)
}

/// Returns the length in nanoseconds of the part of `silence` in the counted time, or 0 if that was
/// not a stall. A silence that the rate limit causes is none.
fn stalled(
    silence: Option<Range<Instant>>,
    counted: Range<Instant>,
    completions: u64,
    usual_gap: u64,
) -> u64 {
    let Some(silence) = silence else { return 0 };
    let nanos = |from: Instant, to: Instant| {
        u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
    };
    let length = nanos(
        silence.start.max(counted.start),
        silence.end.min(counted.end),
    );
    let remaining = nanos(counted.start, counted.end).saturating_sub(length);
    let usual = remaining
        .checked_div(completions)
        .unwrap_or(u64::MAX)
        .max(usual_gap);
    if is_stall(length, usual) { length } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_silence_longer_than_usual_is_a_stall() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let stall = |from, to, completions| {
            stalled(Some(at(from)..at(to)), at(100)..at(600), completions, 0) / 1_000_000
        };
        assert_eq!(stall(110, 590, 3), 480);
        assert_eq!(stall(0, 700, 3), 500);
        // Only the part within the counted time matters.
        assert_eq!(
            (
                stall(0, 190, 1000),
                stall(520, 900, 1000),
                stall(0, 90, 1000)
            ),
            (0, 0, 0)
        );
        // Short silences, usual ones, and a test without completions are no stalls.
        assert_eq!(
            (
                stall(200, 300, 1000),
                stall(200, 400, 5),
                stall(200, 500, 0)
            ),
            (0, 0, 0)
        );
        assert_eq!(stalled(None, at(0)..at(9), 1, 0), 0);
        // With a rate limit, a silence is expected.
        let silence = Some(at(110)..at(590));
        assert_eq!(stalled(silence, at(100)..at(600), 3, 200_000_000), 0);
    }
}
