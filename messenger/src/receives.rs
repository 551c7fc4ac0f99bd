//! The shared receive queue of a group.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ibverbs::{
    Completion, Error, Pool, ProtectionDomain, QueueId, Result, Retired, SharedReceiveQueue,
    SrqOptions, wr,
};

/// A shared receive queue and its buffers. It has as many of both as its messengers have promised
/// to their peers, so that no message finds it empty.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    srq: Mutex<SharedReceiveQueue>,
    pool: Pool,
    options: SrqOptions,
    /// `true` if a receive may never complete: see [`renew`](Self::renew).
    may_lack: AtomicBool,
}

impl SharedReceives {
    pub(crate) fn new(pd: &ProtectionDomain, options: SrqOptions, pool: Pool) -> Result<Self> {
        Ok(Self {
            srq: Mutex::new(pd.create_srq(options)?),
            pool,
            options,
            may_lack: AtomicBool::new(false),
        })
    }

    /// Records that a queue pair was stopped, perhaps in the middle of a message.
    pub(crate) fn set_may_lack(&self) {
        self.may_lack.store(true, Ordering::Release);
    }

    /// Replaces the queue by an empty one if a receive may be missing. The caller has no queue pair
    /// that receives from it, and [refills](Self::refill) it afterwards.
    ///
    /// A queue pair in ERR does not complete a receive that it has begun, or completes it later
    /// (IBTA 10.3.1; docs/drivers.md, fault 57). The application never learns which one it was, and
    /// only destroying the queue returns its buffer.
    pub(crate) fn renew(&self) -> Result<()> {
        if self.may_lack.swap(false, Ordering::AcqRel) {
            let mut srq = self.lock();
            *srq = srq.pd().clone().create_srq(self.options)?;
        }
        Ok(())
    }

    /// Posts all free buffers.
    pub(crate) fn refill(&self) -> Result<()> {
        let mut srq = self.lock();
        while srq.recv_slots_free() > 0 {
            let Some(buf) = self.pool.take() else {
                break;
            };
            srq.post_recv(wr::recv(buf)).map_err(Error::from)?;
        }
        Ok(())
    }

    /// Retires the completion of a receive. Returns the queue pair that received the message, too.
    pub(crate) fn retire(&self, completion: Completion<'_>) -> Option<(QueueId, Retired)> {
        let mut srq = self.lock();
        let id = srq.queue_pair(&completion);
        let retired = srq.retire(completion).ok()?;
        Some((id?, retired))
    }

    /// Calls a function on the queue.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&SharedReceiveQueue) -> R) -> R {
        f(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, SharedReceiveQueue> {
        self.srq.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
