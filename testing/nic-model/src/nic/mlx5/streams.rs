//! Streams of a DC initiator, as the manual pages of `mlx5dv_create_qp` and
//! `mlx5dv_dci_stream_id_reset` describe them: their channels, errors and requests in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::progress::Requester;
use crate::abi::mlx5::DciStreamsCaps;
use crate::errno::{Errno, Result};

/// Largest numbers of streams, as powers of 2. They are examples: the kernel's driver takes them
/// from the adapter.
pub(super) const CAPS: DciStreamsCaps = DciStreamsCaps {
    max_log_concurrent: 4,
    max_log_errored: 3,
};

pub(super) struct Streams {
    /// Number of streams that can have requests in flight.
    channels: usize,
    /// Number of streams in error that stops the queue pair.
    pub(super) max_errored: usize,
    pub(super) errored: BTreeSet<u16>,
    /// Requests in flight of each stream, except those that are in `Qp::requester` at the moment.
    pub(super) requesters: BTreeMap<u16, Requester>,
    /// The stream of `Qp::requester`.
    pub(super) current: u16,
}

impl Streams {
    /// Returns the streams of a new queue pair.
    pub(super) fn new([log_concurrent, log_errored]: [u8; 2]) -> Result<Self> {
        if log_concurrent > CAPS.max_log_concurrent || log_errored > CAPS.max_log_errored {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            channels: 1 << log_concurrent,
            max_errored: 1 << log_errored,
            errored: BTreeSet::new(),
            requesters: BTreeMap::new(),
            current: 0,
        })
    }

    pub(super) fn reset(&mut self) {
        self.requesters.clear();
        self.errored.clear();
    }

    /// Removes and returns the requests in flight of all streams.
    pub(super) fn take_requesters(&mut self) -> impl Iterator<Item = Requester> + use<> {
        mem::take(&mut self.requesters).into_values()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requesters.values().all(Requester::is_idle)
    }

    /// Returns `true` if a channel is free for a request of the stream, or has it already.
    pub(super) fn has_channel(&self, stream: u16) -> bool {
        let is_busy = |requester: &&Requester| !requester.is_idle();
        self.requesters.get(&stream).as_ref().is_some_and(is_busy)
            || self.requesters.values().filter(is_busy).count() < self.channels
    }
}
