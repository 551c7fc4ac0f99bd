//! Tells a peer that takes no part, and so sees nothing of the data, that this end is at work.
//!
//! Where a test ends by the clock the peer knows when that has to be; where it ends by count, only
//! the one who counts knows.

use std::time::{Duration, Instant};

use super::Peer;
use crate::common::error::Result;
use crate::rperf::spec::{Limit, Shape};

/// When to say so next; none where the peer needs no word.
#[derive(Debug)]
pub(super) struct Heartbeat(Option<(Duration, Instant)>);

impl Heartbeat {
    /// Of a test that began at `start`.
    pub(super) fn new(shape: &Shape, start: Instant) -> Self {
        let wanted = !shape.plan.has_receiver() && matches!(shape.limit, Limit::Messages(_));
        Self(wanted.then(|| (shape.heartbeat, start + shape.heartbeat)))
    }

    /// Says so if it is time.
    #[inline]
    pub(super) fn tick<P: Peer>(&mut self, peer: &P) -> Result<()> {
        let Some((every, next)) = &mut self.0 else {
            return Ok(());
        };
        let now = Instant::now();
        if now < *next {
            return Ok(());
        }
        *next = now + *every;
        peer.send_heartbeat()
    }

    /// When it is time.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.map(|beat| beat.1)
    }
}
