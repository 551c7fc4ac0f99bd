//! The loop of an end whose memory the peer accesses with one-sided operations.

use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::units::show_time;

use super::warm_up::WarmUp;
use super::{DataPath, LoopResult, Peer};
use crate::spec::{Limit, Shape, Side};
use crate::stats::Count;
use crate::stats::cpu::ClockReading;

/// Interval between checks of the peer.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until the peer has finished, then checks the memory that it wrote.
pub(crate) fn wait_for_peer<W: DataPath, P: Peer>(
    shape: &Shape,
    side: &Side,
    data_path: &mut W,
    peer: &P,
) -> Result<LoopResult> {
    // One-sided operations are not visible here. A peer in a test by time notifies this end when it
    // has finished. A peer in a test by count also sends heartbeats, and before one of them it may
    // wait for its own timeout.
    let longest_silence = side.timeout * 2;
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
        data_path.check(Instant::now())?;
        if deadline.is_none()
            && peer
                .silence()
                .is_some_and(|silence| silence >= longest_silence)
        {
            return Err(Error::test(format!(
                "the peer sent no heartbeat for {}",
                show_time(longest_silence)
            ))
            .with_help(
                "check that the peer is still running; --timeout (-to) sets half of this time",
            ));
        }
        if deadline.is_some_and(|end| Instant::now() >= end) {
            return Err(Error::test(format!(
                "nothing arrived from the peer for {} after the time of the test",
                show_time(side.timeout)
            ))
            .with_help("check that the peer is still running and the link is up; --timeout (-to) sets this time"));
        }
        std::thread::sleep(CHECK_INTERVAL);
    };
    let end = ClockReading::now_wall_first();
    data_path.verify_final(made)?;
    peer.finish(0)?;
    Ok(LoopResult::new(&warm_up, 0, Count::default(), end))
}
