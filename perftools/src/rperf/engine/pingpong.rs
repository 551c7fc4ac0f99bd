//! Latency: one message goes to and fro, or one request at a time is answered by the peer's device.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use super::heartbeat::Heartbeat;
use super::wait::Waiter;
use super::warm_up::WarmUp;
use super::{Counted, Peer, Wire, deadline, lost};
use crate::common::error::{Error, Result};
use crate::rperf::spec::{Limit, Shape};
use crate::rperf::stats::Count;
use crate::rperf::stats::cpu::ClockReading;
use crate::rperf::stats::latency::LatencyRecorder;

/// How long an answer may take before its message counts as lost, where messages can be lost.
const PATIENCE: Duration = Duration::from_millis(200);

fn last(shape: &Shape) -> u64 {
    match shape.limit {
        Limit::Messages(n) => n,
        Limit::Time(_) => u64::MAX,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What has arrived so far.
#[derive(Default)]
struct Arrived {
    count: Count,
    /// The number after that of the latest.
    reached: u64,
}

impl Arrived {
    /// Posts again what was used, and waits once: in this order, so that a message is answered
    /// first. The peer waits for the answer, and for no receive, as there are more posted than
    /// one.
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

/// The client: sends, waits for the answer, and records half of the time.
pub(crate) fn ping<W: Wire, P: Peer>(
    shape: &Shape,
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &ClockReading,
    latency: &mut LatencyRecorder,
) -> Result<Counted> {
    let deadline = deadline(shape, start.wall());
    let (signal, last) = (shape.signal_every, last(shape));
    let mut arrived = Arrived::default();
    let mut sent = 0;
    let mut unanswered = 0;
    let mut before = start.wall();
    let mut warm_up = WarmUp::new(shape, start.wall());
    while sent < last && deadline.is_none_or(|end| before < end) {
        wire.send(sent, 1, signal, last)?;
        sent += 1;
        let patience = (!shape.is_reliable()).then(|| before + PATIENCE);
        while arrived.reached < sent {
            arrived.wait(wire, peer, waiter, patience)?;
            if patience.is_some_and(|end| arrived.reached < sent && Instant::now() >= end) {
                break;
            }
        }
        let now = Instant::now();
        match arrived.reached.cmp(&sent) {
            Ordering::Equal if warm_up.is_on() => {}
            Ordering::Equal => latency.record(nanos(now.duration_since(before)) / 2),
            Ordering::Less => unanswered += 1,
            Ordering::Greater => {
                return Err(Error::test(format!(
                    "{} answers arrived to {sent} messages",
                    arrived.reached
                )));
            }
        }
        before = now;
        if warm_up.ends(|| now, sent, arrived.count) {
            before = Instant::now();
        }
    }
    let end = ClockReading::of_counts();
    peer.finish(sent)?;
    Ok(Counted {
        lost: unanswered,
        ..Counted::new(&warm_up, sent, arrived.count, end)
    })
}

/// The server: answers until the client has finished.
pub(crate) fn pong<W: Wire, P: Peer>(
    shape: &Shape,
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
) -> Result<Counted> {
    let (signal, last) = (shape.signal_every, last(shape));
    let mut warm_up = WarmUp::new(shape, Instant::now());
    let mut arrived = Arrived::default();
    let (mut answered, mut sent) = (0, 0);
    loop {
        arrived.wait(wire, peer, waiter, None)?;
        if answered < arrived.reached {
            // The number says which message it answers.
            wire.send(arrived.reached - 1, 1, signal, last)?;
            answered = arrived.reached;
            sent += 1;
        }
        warm_up.ends(Instant::now, sent, arrived.count);
        match peer.finished() {
            Some(pinged) if arrived.reached > pinged => return Err(lost(arrived.reached, pinged)),
            Some(pinged) if arrived.reached == pinged || !shape.is_reliable() => break,
            _ => {}
        }
    }
    let end = ClockReading::of_counts();
    peer.finish(sent)?;
    Ok(Counted::new(&warm_up, sent, arrived.count, end))
}

/// The client of a test in which the server's device answers alone: one request at a time, the
/// whole way there and back.
pub(crate) fn ask<W: Wire, P: Peer>(
    shape: &Shape,
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &ClockReading,
    latency: &mut LatencyRecorder,
) -> Result<Counted> {
    let deadline = deadline(shape, start.wall());
    let last = last(shape);
    let (mut asked, mut done) = (0, 0);
    let mut before = start.wall();
    let mut warm_up = WarmUp::new(shape, start.wall());
    let mut beat = Heartbeat::new(shape, start.wall());
    while asked < last && deadline.is_none_or(|end| before < end) {
        beat.tick(peer)?;
        wire.send(asked, 1, 1, last)?;
        asked += 1;
        while done < asked {
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
    let end = ClockReading::of_counts();
    peer.finish(asked)?;
    Ok(Counted::new(&warm_up, asked, Count::default(), end))
}
