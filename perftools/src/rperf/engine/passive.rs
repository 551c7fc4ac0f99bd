//! The end that takes no part: the peer reads, writes or does atomics on its memory.

use std::time::{Duration, Instant};

use super::warm_up::WarmUp;
use super::{Counted, Peer, Wire};
use crate::common::error::{Error, Result};
use crate::common::units::show_time;
use crate::rperf::spec::{Limit, Shape, Side};
use crate::rperf::stats::Count;
use crate::rperf::stats::cpu::ClockReading;

/// How often it looks whether the peer has finished.
const NAP: Duration = Duration::from_millis(2);

/// Stays until the peer has finished, then looks at what that left.
pub(crate) fn stay<W: Wire, P: Peer>(
    shape: &Shape,
    side: &Side,
    wire: &mut W,
    peer: &P,
) -> Result<Counted> {
    // Nothing is seen of a peer that works on memory. One that works by the clock is heard of at
    // the end, one that counts says now and then that it is at work; between two such words
    // there may be a message of its own timeout.
    let patience = side.timeout * 2;
    let deadline = match shape.limit {
        Limit::Time(time) => Instant::now().checked_add(time + shape.tuning.warm_up + side.timeout),
        Limit::Messages(_) => None,
    };
    let mut warm_up = WarmUp::new(shape, Instant::now());
    let made = loop {
        warm_up.ends(Instant::now, 0, Count::default());
        if let Some(made) = peer.finished() {
            break made;
        }
        if let Some(failure) = peer.failure() {
            return Err(failure);
        }
        wire.check(Instant::now())?;
        if deadline.is_none() && peer.silence().is_some_and(|silence| silence >= patience) {
            return Err(Error::test(format!(
                "nothing was heard of the peer for {}: does it still run? --timeout (-to) sets half of how long to wait",
                show_time(patience)
            )));
        }
        if deadline.is_some_and(|end| Instant::now() >= end) {
            return Err(Error::test(format!(
                "nothing arrived from the peer for {} after the time of the test: is it still running, and the link up? --timeout (-to) sets how long to wait",
                show_time(side.timeout)
            )));
        }
        std::thread::sleep(NAP);
    };
    let end = ClockReading::of_counts();
    wire.verify_final(made)?;
    peer.finish(0)?;
    Ok(Counted::new(&warm_up, 0, Count::default(), end))
}
