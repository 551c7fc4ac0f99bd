//! Heartbeats for a peer that cannot see the progress of the data transfer.
//!
//! One-sided tests by count need them, because the peer takes no part in the transfer. (In tests by
//! time it knows when this end must have finished.) So do tests over sockets, after the peer has
//! sent its last message: much of what it sent may still be on its way.

use std::time::{Duration, Instant};

use base::error::Result;

use super::Peer;
use crate::spec::{Limit, Shape};

/// The interval of the heartbeats and the time of the next one; `None` if the peer needs none.
#[derive(Debug)]
pub(crate) struct Heartbeat(Option<(Duration, Instant)>);

impl Heartbeat {
    /// Creates the heartbeat of a test over RDMA that began at `start`.
    pub(super) fn new(shape: &Shape, start: Instant) -> Self {
        let is_needed = !shape.plan.has_receiver() && matches!(shape.limit, Limit::Messages(_));
        if is_needed {
            Self::every(shape.heartbeat, start)
        } else {
            Self(None)
        }
    }

    /// Creates a heartbeat with this interval, in a test that began at `start`.
    pub(crate) fn every(interval: Duration, start: Instant) -> Self {
        Self(Some((interval, start + interval)))
    }

    /// Sends a heartbeat if one is due.
    #[inline]
    pub(crate) fn tick<P: Peer>(&mut self, peer: &P) -> Result<()> {
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
