//! The handle of a completion queue, as its owner and its queue pairs share it.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::{ibv_cq, ibv_destroy_cq};

use super::channel::CompletionChannel;
use super::id::CqId;
use crate::device::Context;

/// What queue pairs share with the owner of the queue: the handle, and what it must outlive.
pub(crate) struct Shared {
    pub(crate) raw: NonNull<ibv_cq>,
    pub(crate) id: CqId,
    pub(crate) context: Context,
    pub(crate) channel: Option<CompletionChannel>,
}

// SAFETY: the handle is used to poll and arm through `CompletionQueue` only, which has one owner;
// creating and destroying queue pairs on it is thread safe in libibverbs.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the last owner goes; every queue pair on the queue held an Arc of this, and
        // events are acknowledged when taken.
        let returned = unsafe { ibv_destroy_cq(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with(&(self.context.clone(), self.channel.clone()));
        }
    }
}
