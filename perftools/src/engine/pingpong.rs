//! Latency: one message goes to and fro.

use std::time::Instant;

use super::wait::Waiter;
use super::{Counted, Peer, Wire, deadline, lost};
use crate::config::{Limit, Shape};
use crate::error::{Error, Result};
use crate::stats::Count;
use crate::stats::cpu::Reading;
use crate::stats::histogram::Latencies;

/// Every so many sends ask for a completion; the send queue has room for more.
fn signal_every(shape: &Shape) -> u32 {
    if shape.verify { 1 } else { shape.depth.max(2) / 2 }
}

/// The client: sends, waits for the answer, and records half of the time.
pub(crate) fn ping<W: Wire, P: Peer>(
    shape: &Shape,
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &Reading,
    latency: &mut Latencies,
) -> Result<Counted> {
    let deadline = deadline(shape, start.wall());
    let signal = signal_every(shape);
    let last = match shape.limit {
        Limit::Messages(n) => n,
        Limit::Time(_) => u64::MAX,
    };
    let mut received = Count::default();
    let mut sent = 0;
    let mut before = start.wall();
    while sent < last && deadline.is_none_or(|end| before < end) {
        wire.send(sent, 1, signal, last)?;
        sent += 1;
        await_one(wire, peer, waiter, &mut received, sent)?;
        let now = Instant::now();
        latency.record(u64::try_from(now.duration_since(before).as_nanos() / 2).unwrap_or(u64::MAX));
        before = now;
    }
    let end = Reading::now();
    peer.finish(sent)?;
    Ok(Counted { sent, received, end })
}

/// The server: answers until the client has finished.
pub(crate) fn pong<W: Wire, P: Peer>(shape: &Shape, wire: &mut W, peer: &P, waiter: &mut Waiter) -> Result<Counted> {
    let signal = signal_every(shape);
    let last = match shape.limit {
        Limit::Messages(n) => n,
        Limit::Time(_) => u64::MAX,
    };
    let mut received = Count::default();
    let mut sent = 0;
    loop {
        let progress = waiter.wait(wire, peer, None)?;
        let used = progress.data + progress.credits;
        wire.post_receives(used)?;
        received.msgs += u64::from(progress.data);
        received.bytes += progress.bytes;
        while sent < received.msgs {
            wire.send(sent, 1, signal, last)?;
            sent += 1;
        }
        match peer.finished() {
            Some(pinged) if pinged == received.msgs => break,
            Some(pinged) if pinged < received.msgs => return Err(lost(received.msgs, pinged)),
            _ => {}
        }
    }
    let end = Reading::now();
    peer.finish(sent)?;
    Ok(Counted { sent, received, end })
}

/// Waits until as many answers have arrived as were asked for, and posts their receives again.
fn await_one<W: Wire, P: Peer>(
    wire: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    received: &mut Count,
    sent: u64,
) -> Result<()> {
    while received.msgs < sent {
        let progress = waiter.wait(wire, peer, None)?;
        if progress.data + progress.credits > 0 {
            wire.post_receives(progress.data + progress.credits)?;
        }
        received.msgs += u64::from(progress.data);
        received.bytes += progress.bytes;
    }
    if received.msgs > sent {
        return Err(Error::test(format!("{} answers arrived to {sent} messages", received.msgs)));
    }
    Ok(())
}
