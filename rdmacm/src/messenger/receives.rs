//! The shared receive queue of a group, and the shares of its connections.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibverbs::{Completion, Error, Pool, Result, Retired, SharedReceiveQueue, wr};

/// A shared receive queue and its buffers. It has as many of both as its messengers have promised
/// to their peers, so that no message finds it empty.
#[derive(Debug)]
pub(super) struct SharedReceives {
    srq: Mutex<SharedReceiveQueue>,
    pool: Pool,
}

impl SharedReceives {
    pub(super) fn new(srq: SharedReceiveQueue, pool: Pool) -> Self {
        let srq = Mutex::new(srq);
        Self { srq, pool }
    }

    /// Posts all free buffers.
    pub(super) fn refill(&self) -> Result<()> {
        let mut srq = self.lock();
        while srq.recv_slots_free() > 0 {
            let Some(buf) = self.pool.take() else {
                break;
            };
            srq.post_recv(wr::recv(buf)).map_err(Error::from)?;
        }
        Ok(())
    }

    pub(super) fn retire(&self, completion: Completion<'_>) -> Option<Retired> {
        self.lock().retire(completion).ok()
    }

    /// Calls a function on the queue.
    pub(super) fn with<R>(&self, f: impl FnOnce(&SharedReceiveQueue) -> R) -> R {
        f(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, SharedReceiveQueue> {
        self.srq.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share of one connection in the receives of its group. Its messages keep it.
#[derive(Debug)]
pub(super) struct Lease(Arc<AtomicU32>);

impl Lease {
    pub(super) fn new(members: &Arc<AtomicU32>) -> Self {
        Self(Arc::clone(members))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
