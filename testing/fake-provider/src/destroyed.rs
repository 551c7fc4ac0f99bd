//! Objects whose memory stays after they were destroyed, so that a test can see writes to it.
//!
//! Miri and AddressSanitizer see them too, but neither runs a forked child.

use rdma_sys::{ibv_context, ibv_cq_ex, ibv_qp_ex};

use crate::state::{DeviceState, Handle};

/// A destroyed object, in which the functions that a forked child replaces are absent.
pub(crate) enum Destroyed {
    Context(Handle<ibv_context>),
    Cq(Handle<ibv_cq_ex>),
    Qp(Handle<ibv_qp_ex>),
}

impl Destroyed {
    /// Removes the functions.
    ///
    /// # Safety
    /// The memory of the object is never freed, and no other thread accesses it.
    unsafe fn clear(&self) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Self::Context(context) => (*context.0).ops.post_send = None,
                Self::Cq(cq) => (*cq.0).start_poll = None,
                Self::Qp(qp) => (*qp.0).wr_start = None,
            }
        }
    }

    /// Returns `true` if the object has a function again.
    fn was_changed(&self) -> bool {
        // SAFETY: the memory of a kept object is never freed, and only `forked` of the library
        // changes it, in a child with one thread.
        unsafe {
            match self {
                Self::Context(context) => (*context.0).ops.post_send.is_some(),
                Self::Cq(cq) => (*cq.0).start_poll.is_some(),
                Self::Qp(qp) => (*qp.0).wr_start.is_some(),
            }
        }
    }
}

impl DeviceState {
    /// Keeps a destroyed object, or frees it with `free` if the test keeps none.
    ///
    /// # Safety
    /// The program does not use the object any more, and nothing else frees it.
    pub(crate) unsafe fn keep_or_free(&mut self, object: Destroyed, free: impl FnOnce()) {
        match &mut self.destroyed {
            None => free(),
            Some(destroyed) => {
                // SAFETY: guaranteed by the caller, and the memory is not freed.
                unsafe { object.clear() };
                destroyed.push(object);
            }
        }
    }

    /// Returns `true` if a kept object was written to.
    pub(crate) fn destroyed_were_changed(&self) -> bool {
        self.destroyed.iter().flatten().any(Destroyed::was_changed)
    }
}
