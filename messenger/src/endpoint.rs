//! The state of one messenger behind its lock, as its driver and its messages see it.

use std::fmt;
use std::sync::Arc;

use ibverbs::{Buf, QueueId};

use super::deferred::{Apply, Deferred};
use super::lease::Lease;
use super::state::State;
use rdmacm::IdKey;

/// One end of a connection.
pub(crate) struct Endpoint {
    /// The work of others is to post receives in place of buffers that the application has dropped.
    state: Deferred<State>,
    /// The identity of the queue pair.
    pub(crate) id: QueueId,
    pub(crate) key: IdKey,
    /// The share in the receives of the group.
    pub(crate) lease: Option<Arc<Lease>>,
}

impl Endpoint {
    pub(crate) fn new(state: State, id: QueueId, key: IdKey, lease: Option<Arc<Lease>>) -> Self {
        Self {
            state: Deferred::new(state),
            id,
            key,
            lease,
        }
    }

    /// Calls a function on the state.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        self.state.with(f)
    }

    /// Returns a buffer to its pool and posts a receive in its place, in this order.
    pub(crate) fn release(&self, buf: Buf) {
        drop(buf);
        self.state.defer();
    }

    /// Keeps the memory of a dropped message for the next one, unless another thread holds the
    /// lock.
    pub(crate) fn recycle(&self, bytes: Vec<u8>) {
        self.state.try_with(|state| state.recycle(bytes));
    }
}

impl Apply for State {
    /// Posts receives in place of the returned buffers.
    fn apply(&mut self, count: u32) {
        self.release(count);
        self.pump();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
