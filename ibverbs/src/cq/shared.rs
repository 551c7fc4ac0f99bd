//! The part of a completion queue that its queue pairs share.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rdma_sys::{ibv_cq, ibv_destroy_cq};

use super::channel::CompletionChannel;
use super::id::CqId;
use crate::device::Context;
use crate::forked::{self, Object};
use crate::pd::ParentDomain;

/// The `ibv_cq`, shared by its [`CompletionQueue`](crate::CompletionQueue) and the queue pairs that
/// complete on it. The last owner destroys it.
pub(crate) struct SharedCq {
    pub(crate) raw: NonNull<ibv_cq>,
    pub(crate) id: CqId,
    pub(crate) context: Context,
    pub(crate) channel: Option<CompletionChannel>,
    /// The domain that the queue was created in, if any.
    pub(crate) parent: Option<Arc<ParentDomain>>,
    /// Number of polls that found the queue empty. Only the one `CompletionQueue` changes it.
    pub(crate) empty_polls: AtomicU64,
    /// `true` if the provider leaves the completions of a destroyed queue pair in the queue,
    /// because the queue was exposed.
    pub(crate) exposed: AtomicBool,
}

// SAFETY: only the one `CompletionQueue` polls, arms and modifies the queue, with `&mut self`.
// Queue pairs are only created and destroyed on it, which is thread safe in libibverbs, or excluded
// by a lock (`LeftCompletions`).
unsafe impl Send for SharedCq {}
// SAFETY: see `Send`.
unsafe impl Sync for SharedCq {}

impl SharedCq {
    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    #[cfg(feature = "mlx5")]
    pub(crate) fn set_lent(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed)
    }

    /// Counts a poll that found the queue empty. Only the polling thread calls it.
    #[inline]
    pub(crate) fn count_empty_poll(&self) {
        let before = self.empty_polls.load(Ordering::Relaxed);
        self.empty_polls.store(before + 1, Ordering::Relaxed);
    }

    /// Returns the number of polls that found the queue empty.
    pub(crate) fn empty_polls(&self) -> u64 {
        // Unlike a load, this returns the newest value.
        self.empty_polls.fetch_add(0, Ordering::Relaxed)
    }
}

impl Drop for SharedCq {
    fn drop(&mut self) {
        forked::remove(Object::CompletionQueue(self.raw.cast()));
        // SAFETY: this is the last owner: each queue pair on the queue holds an `Arc` of this.
        // Events are acknowledged when they are read, so the call does not wait.
        let returned = unsafe { ibv_destroy_cq(self.raw.as_ptr()) };
        if returned != 0 {
            let parents = (self.context.clone(), self.channel.clone());
            crate::leak::with_parent(&(parents, self.parent.clone()));
        }
    }
}
