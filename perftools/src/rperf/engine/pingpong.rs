//! Latency tests: one message in flight, which the peer returns, or one one-sided operation in
//! flight, which the peer's device completes.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use super::heartbeat::Heartbeat;
use super::wait::Waiter;
use super::warm_up::WarmUp;
use super::{LoopResult, Peer, Wire, deadline, interrupted_in_warm_up, wrong_count};
use crate::common::error::{Error, Result};
use crate::rperf::spec::{Limit, Shape};
use crate::rperf::stats::Count;
use crate::rperf::stats::cpu::ClockReading;
use crate::rperf::stats::latency::LatencyRecorder;

/// Time without a reply after which a message counts as lost, on unreliable services.
const LOST_AFTER: Duration = Duration::from_millis(200);

fn last(shape: &Shape) -> u64 {
    match shape.limit {
        Limit::Messages(n) => n,
        Limit::Time(_) => u64::MAX,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The messages that have arrived so far.
#[derive(Default)]
struct Arrived {
    count: Count,
    /// Number after that of the latest message.
    reached: u64,
}

impl Arrived {
    /// Posts receives again for the latest messages, and then waits once. In this order a message
    /// is answered before its receive is posted again. The peer always meets a posted receive,
    /// because several are posted.
    fn wait<W: Wire, P: Peer>(
        &mut self,
        wire: &mut W,
        peer: &P,
        waiter: &mut Waiter,
        until: Option<Instant>,
    ) -> Result<()> {
        wire.repost()?;
        let progress = waiter.wait(wire, peer, until)?;
        self.count.msgs += u64::from(progress.data);
        self.count.bytes += progress.bytes;
        self.reached = self.reached.max(progress.reached);
        Ok(())
    }
}

/// Runs the client: sends, waits for the reply, and records half of the time.
pub(crate) fn ping<W: Wire, P: Peer>(
    shape: &Shape,
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &ClockReading,
    latency: &mut LatencyRecorder,
) -> Result<LoopResult> {
    let deadline = deadline(shape, start.wall());
    let (signal, last) = (shape.signal_every, last(shape));
    let mut arrived = Arrived::default();
    let mut sent = 0;
    let mut before = start.wall();
    let mut warm_up = WarmUp::new(shape, start.wall());
    while sent < last && deadline.is_none_or(|end| before < end) && !peer.is_interrupted() {
        wire.send(sent, 1, signal, last)?;
        sent += 1;
        let lost_at = (!shape.is_reliable()).then(|| before + LOST_AFTER);
        while arrived.reached < sent {
            arrived.wait(wire, peer, waiter, lost_at)?;
            if lost_at.is_some_and(|end| arrived.reached < sent && Instant::now() >= end) {
                break;
            }
        }
        let now = Instant::now();
        match arrived.reached.cmp(&sent) {
            Ordering::Equal if warm_up.is_on() => {}
            Ordering::Equal => latency.record(nanos(now.duration_since(before)) / 2),
            // No reply in time, which is no latency.
            Ordering::Less => {}
            Ordering::Greater => {
                return Err(Error::test(format!(
                    "{} replies arrived for {sent} messages",
                    arrived.reached
                )));
            }
        }
        before = now;
        if warm_up.ends(|| now, sent, arrived.count) {
            before = Instant::now();
        }
    }
    if warm_up.is_on() {
        return Err(interrupted_in_warm_up());
    }
    let end = ClockReading::now_wall_first();
    peer.finish(sent)?;
    let result = LoopResult::new(&warm_up, sent, arrived.count, end);
    // A reply that arrived after the next message was sent is not lost.
    let lost = result.unanswered();
    Ok(LoopResult { lost, ..result })
}

/// Runs the server: replies until the client has finished.
pub(crate) fn pong<W: Wire, P: Peer>(
    shape: &Shape,
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
) -> Result<LoopResult> {
    let (signal, last) = (shape.signal_every, last(shape));
    let mut warm_up = WarmUp::new(shape, Instant::now());
    let mut arrived = Arrived::default();
    let (mut replied, mut sent) = (0, 0);
    loop {
        arrived.wait(wire, peer, waiter, None)?;
        if replied < arrived.reached {
            // The number of a reply is that of the message.
            wire.send(arrived.reached - 1, 1, signal, last)?;
            replied = arrived.reached;
            sent += 1;
        }
        warm_up.ends(Instant::now, sent, arrived.count);
        match peer.finished() {
            Some(pinged) if arrived.reached > pinged => {
                return Err(wrong_count(arrived.reached, pinged));
            }
            Some(pinged) if arrived.reached == pinged || !shape.is_reliable() => break,
            _ => {}
        }
    }
    let end = ClockReading::now_wall_first();
    peer.finish(sent)?;
    Ok(LoopResult::new(&warm_up, sent, arrived.count, end))
}

/// Runs the client of a one-sided test: posts one operation at a time, and records the whole round
/// trip.
pub(crate) fn one_sided<W: Wire, P: Peer>(
    shape: &Shape,
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &ClockReading,
    latency: &mut LatencyRecorder,
) -> Result<LoopResult> {
    let deadline = deadline(shape, start.wall());
    let last = last(shape);
    let (mut posted, mut done) = (0, 0);
    let mut before = start.wall();
    let mut warm_up = WarmUp::new(shape, start.wall());
    let mut heartbeat = Heartbeat::new(shape, start.wall());
    while posted < last && deadline.is_none_or(|end| before < end) && !peer.is_interrupted() {
        heartbeat.tick(peer)?;
        wire.send(posted, 1, 1, last)?;
        posted += 1;
        while done < posted {
            done = waiter.wait(wire, peer, None)?.sent.max(done);
        }
        let now = Instant::now();
        if !warm_up.is_on() {
            latency.record(nanos(now.duration_since(before)));
        }
        before = now;
        if warm_up.ends(|| now, done, Count::default()) {
            before = Instant::now();
        }
    }
    if warm_up.is_on() {
        return Err(interrupted_in_warm_up());
    }
    let end = ClockReading::now_wall_first();
    peer.finish(posted)?;
    Ok(LoopResult::new(&warm_up, posted, Count::default(), end))
}
