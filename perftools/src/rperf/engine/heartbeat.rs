//! Heartbeats for a peer that takes no part in the data transfer and so cannot see its progress.
//!
//! Only tests by count need them. In tests by time the peer knows when this end must have finished.

use std::time::{Duration, Instant};

use super::Peer;
use crate::common::error::Result;
use crate::rperf::spec::{Limit, Shape};

/// The interval of the heartbeats and the time of the next one; `None` if the peer needs none.
#[derive(Debug)]
pub(super) struct Heartbeat(Option<(Duration, Instant)>);

impl Heartbeat {
    /// Creates the heartbeat of a test that began at `start`.
    pub(super) fn new(shape: &Shape, start: Instant) -> Self {
        let is_needed = !shape.plan.has_receiver() && matches!(shape.limit, Limit::Messages(_));
        Self(is_needed.then(|| (shape.heartbeat, start + shape.heartbeat)))
    }

    /// Sends a heartbeat if one is due.
    #[inline]
    pub(super) fn tick<P: Peer>(&mut self, peer: &P) -> Result<()> {
        let Some((interval, next)) = &mut self.0 else {
            return Ok(());
        };
        let now = Instant::now();
        if now < *next {
            return Ok(());
        }
        *next = now + *interval;
        peer.send_heartbeat()
    }

    /// Returns when the next heartbeat is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.map(|(_, next)| next)
    }
}
