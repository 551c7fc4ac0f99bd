//! One loop for each pattern: which runs here, and what its counts come to.

use std::ops::Range;
use std::time::Instant;

use super::pingpong;
use super::wait::Waiter;
use super::warm_up::Base;
use super::{Measurement, Peer, Role, Wire, bandwidth, passive, pin};
use crate::common::error::{Kind, Result};
use crate::rperf::spec::modes::Wait;
use crate::rperf::spec::plan::{Pattern, Verb};
use crate::rperf::spec::{Shape, Side};
use crate::rperf::stats::cpu::ClockReading;
use crate::rperf::stats::interval::is_stall;
use crate::rperf::stats::latency::LatencyRecorder;
use crate::rperf::stats::{Count, SideStats};

/// Runs what `shape` plans over `wire`, whose receives are posted on both ends.
///
/// # Errors
/// The connection broke, the peer went away or reported an error, nothing moved for the timeout, or
/// payload was wrong.
pub fn run<W: Wire, P: Peer>(
    role: Role,
    shape: &Shape,
    side: &Side,
    wire: &mut W,
    peer: &P,
) -> Result<Measurement> {
    let _pinned = pin::Pinned::to(side.cpus.as_ref())?;
    let plan = shape.plan;
    let client = role == Role::Client;
    // Who sends, where data goes one way.
    let sender = client != shape.flip;
    // Nothing wakes who looks at memory.
    let polled = Side {
        wait: Wait::Poll,
        ..side.clone()
    };
    let mut waiter = Waiter::new(
        if plan.pattern == Pattern::Polled {
            &polled
        } else {
            side
        },
        plan.is_latency(),
    )
    .with_counters(peer.counters())
    .solicited(shape.solicits() && !sender);
    let mut latency = (plan.is_latency() && client).then(|| LatencyRecorder::new(peer.counters()));
    let start = ClockReading::now();
    let counted = match (plan.pattern, &mut latency) {
        (Pattern::PingPong, Some(latency)) if plan.is_round_trip() => {
            pingpong::ask(shape, wire, peer, &mut waiter, &start, latency)
        }
        (Pattern::PingPong | Pattern::Polled, Some(latency)) => {
            pingpong::ping(shape, wire, peer, &mut waiter, &start, latency)
        }
        (Pattern::PingPong | Pattern::Polled, None) if plan.has_receiver() => {
            pingpong::pong(shape, wire, peer, &mut waiter)
        }
        (Pattern::OneWay, _) if !sender && !plan.has_receiver() => {
            passive::stay(shape, side, wire, peer)
        }
        (Pattern::PingPong | Pattern::Polled, None) => passive::stay(shape, side, wire, peer),
        (Pattern::OneWay | Pattern::BothWays, _) => {
            let both = plan.pattern == Pattern::BothWays;
            let flow = bandwidth::Flow {
                sends: both || sender,
                receives: plan.has_receiver() && (both || !sender),
                // An accepting iWARP end may not send before the connecting one has.
                waits_first: both && plan.has_receiver() && shape.is_reliable() && !client,
            };
            bandwidth::run(flow, shape, wire, peer, &mut waiter, &start)
        }
    }
    // What the peer says explains more than what a completion says; what was found wrong here needs
    // no explanation.
    .map_err(|error| {
        if error.kind() == Kind::Device {
            peer.explain(error)
        } else {
            error
        }
    })?;
    let base = counted.base.unwrap_or(Base {
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
        nanos: u64::try_from(until.saturating_duration_since(start.wall()).as_nanos())
            .unwrap_or(u64::MAX),
        max_cqe: waiter.max_completions(),
        stalled: stalled(waiter.silence(), start.wall()..until, completions),
        cpu: counted.end.since(&start),
        verified: wire.verified(),
        threads: Vec::new(),
    };
    Ok(Measurement { stats, latency })
}

/// Nanoseconds of the longest silence while the clock ran, where that was a stall.
fn stalled(silence: Option<Range<Instant>>, counted: Range<Instant>, completions: u64) -> u64 {
    let Some(silence) = silence else { return 0 };
    let nanos = |from: Instant, to: Instant| {
        u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
    };
    let length = nanos(
        silence.start.max(counted.start),
        silence.end.min(counted.end),
    );
    let others = nanos(counted.start, counted.end).saturating_sub(length);
    let usual = others.checked_div(completions).unwrap_or(u64::MAX);
    if is_stall(length, usual) { length } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_silence_within_the_time_is_a_stall_where_it_is_longer_than_completions_are_apart() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let stall = |from, to, completions| {
            stalled(Some(at(from)..at(to)), at(100)..at(600), completions) / 1_000_000
        };
        assert_eq!(stall(110, 590, 3), 480);
        assert_eq!(stall(0, 700, 3), 500);
        // What came before the clock started, or after it stopped, counts no more.
        assert_eq!(
            (
                stall(0, 190, 1000),
                stall(520, 900, 1000),
                stall(0, 90, 1000)
            ),
            (0, 0, 0)
        );
        // Neither what is short, nor what is usual, nor where nothing is.
        assert_eq!(
            (
                stall(200, 300, 1000),
                stall(200, 400, 5),
                stall(200, 500, 0)
            ),
            (0, 0, 0)
        );
        assert_eq!(stalled(None, at(0)..at(9), 1), 0);
    }
}
