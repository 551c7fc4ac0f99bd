//! Polling under the rules for a device without some properties.
//!
//! The fast path of polling must not cost more on other devices. So it polls a queue that is always
//! empty ([`empty_queue`]), and the rare path, which handles an empty queue, polls the real one.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::OnceLock;

use rdma_sys::{
    ibv_context, ibv_context_ops, ibv_cq, ibv_cq_ex, ibv_poll_cq, ibv_poll_cq_attr, ibv_wc,
};

use super::wc::WcFields;
use crate::device::Context;

/// Returns `true` if completion queues of the device are polled under rules of this module.
pub(crate) fn is_strict(context: &Context) -> bool {
    context.polls_take_turns() || context.marks_failures()
}

/// A completion queue that has never a completion, and the context with its functions.
struct EmptyQueue {
    cq: ibv_cq_ex,
    context: ibv_context,
}

// SAFETY: the functions of the queue do not read it, and nothing writes it.
unsafe impl Send for EmptyQueue {}
// SAFETY: as for Send.
unsafe impl Sync for EmptyQueue {}

unsafe extern "C" fn poll_none(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
    0
}

unsafe extern "C" fn start_none(_: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
    libc::ENOENT
}

/// Returns a queue that can only be polled, and that has never a completion.
pub(crate) fn empty_queue() -> NonNull<ibv_cq> {
    static QUEUE: OnceLock<&EmptyQueue> = OnceLock::new();
    let queue = QUEUE.get_or_init(|| {
        let queue = Box::leak(Box::new(EmptyQueue {
            cq: ibv_cq_ex {
                start_poll: Some(start_none),
                ..Default::default()
            },
            context: ibv_context {
                ops: ibv_context_ops {
                    poll_cq: Some(poll_none),
                    ..Default::default()
                },
                ..Default::default()
            },
        }));
        queue.cq.context = &raw mut queue.context;
        queue
    });
    // The address is only read. An `ibv_cq_ex` begins with the fields of an `ibv_cq`.
    NonNull::from(&queue.cq).cast()
}

/// Copies at most `max` entries. Returns the value that the provider returned.
///
/// # Safety
/// The queue is alive and belongs to the context, no other thread polls it, and there are `max`
/// entries.
pub(super) unsafe fn poll(
    context: &Context,
    cq: NonNull<ibv_cq>,
    max: c_int,
    entries: *mut ibv_wc,
) -> c_int {
    let numbers = context.numbers();
    let returned = loop {
        // SAFETY: guaranteed by the caller.
        match unsafe { ibv_poll_cq(cq.as_ptr(), max, entries) } {
            // The provider has consumed a completion of a queue pair that was destroyed.
            returned if returned == -libc::EINVAL && context.polls_take_turns() => {}
            returned => break returned,
        }
    };
    drop(numbers);
    let filled = usize::try_from(returned.min(max)).unwrap_or(0);
    // SAFETY: the provider has written the entries.
    mark_failures(context, unsafe {
        std::slice::from_raw_parts_mut(entries, filled)
    });
    returned
}

/// Marks the failures after which the device may still access memory.
pub(super) fn mark_failures<'a>(
    context: &Context,
    entries: impl IntoIterator<Item = &'a mut ibv_wc>,
) {
    if context.marks_failures() {
        for wc in entries.into_iter().filter(|wc| !wc.status().is_success()) {
            wc.wr_id = wc.wr_id().with_failure().0;
        }
    }
}
