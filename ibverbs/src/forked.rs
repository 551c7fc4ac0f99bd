//! Objects of the parent in a forked child, where posting and polling fail.
//!
//! The queues of some devices are memory that parent and child share, but each has its own copy of
//! the tables of requests in flight. So a request that the child posts would complete in the
//! parent, whose table has another request there. A check of the process on the data path would
//! cost every request. Instead, the child replaces the functions of the provider when it starts to
//! run: they are in tables, and the child has its own copy of these too.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use rdma_sys::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_mw, ibv_mw_bind, ibv_poll_cq_attr, ibv_qp, ibv_qp_ex,
    ibv_wc,
};

/// An object that has functions of its provider.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Context(NonNull<ibv_context>),
    /// A queue pair with `ibv_wr_*`.
    QueuePair(NonNull<ibv_qp_ex>),
    /// A completion queue with `ibv_start_poll`.
    CompletionQueue(NonNull<ibv_cq_ex>),
}

// SAFETY: the pointers are only followed in a child, by its only thread.
unsafe impl Send for Object {}

type Objects = BTreeSet<Object>;

/// The objects of this process that exist.
static OBJECTS: Mutex<Objects> = Mutex::new(BTreeSet::new());

fn objects() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an object that was created.
pub(crate) fn add(object: Object) {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // Miri has no processes.
        if !cfg!(miri) {
            // SAFETY: the functions have no preconditions of their own. If memory is short, the
            // call fails, and only the documented rule holds.
            let _ = unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        }
    });
    objects().insert(object);
}

/// Removes an object that is destroyed next.
pub(crate) fn remove(object: Object) {
    objects().remove(&object);
}

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// The lock of [`OBJECTS`] while the process forks. Only the thread that has locked it uses it.
struct Held(UnsafeCell<Option<MutexGuard<'static, Objects>>>);

// SAFETY: only the thread that holds the lock accesses the cell, and in the child its copy.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

unsafe extern "C" fn prepare() {
    let locked = objects();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(locked) };
}

unsafe extern "C" fn parent() {
    // SAFETY: this thread has taken the lock in `prepare`.
    drop(unsafe { (*HELD.0.get()).take() });
}

unsafe extern "C" fn child() {
    // SAFETY: as in `parent`, whose only thread in the child this is.
    let Some(objects) = (unsafe { (*HELD.0.get()).take() }) else {
        return;
    };
    for &object in &*objects {
        // SAFETY: the object existed when the process forked, and no other thread uses the child's
        // copy. The functions have the types of their fields.
        unsafe {
            match object {
                Object::Context(context) => {
                    let ops = &raw mut (*context.as_ptr()).ops;
                    (*ops).post_send = Some(post);
                    (*ops).post_recv = Some(post);
                    (*ops).post_srq_recv = Some(post);
                    (*ops).bind_mw = Some(bind_mw);
                    (*ops).poll_cq = Some(poll_cq);
                    (*ops).req_notify_cq = Some(req_notify_cq);
                }
                Object::QueuePair(qp) => (*qp.as_ptr()).wr_start = Some(wr_start),
                Object::CompletionQueue(cq) => (*cq.as_ptr()).start_poll = Some(start_poll),
            }
        }
    }
}

/// Rejects the first of a list of requests to send or to receive.
unsafe extern "C" fn post<Queue, Request>(
    _: *mut Queue,
    wr: *mut Request,
    bad_wr: *mut *mut Request,
) -> c_int {
    // SAFETY: guaranteed by the caller of `ibv_post_send` or `ibv_post_recv`.
    unsafe { *bad_wr = wr };
    libc::EPERM
}

unsafe extern "C" fn bind_mw(_: *mut ibv_qp, _: *mut ibv_mw, _: *mut ibv_mw_bind) -> c_int {
    libc::EPERM
}

unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
    -libc::EPERM
}

unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    libc::EPERM
}

unsafe extern "C" fn start_poll(_: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
    libc::EPERM
}

/// Ends the child, because the functions that follow write to the queue.
unsafe extern "C" fn wr_start(_: *mut ibv_qp_ex) {
    let message = b"ibverbs: a forked child posted to a queue pair of its parent\n";
    // SAFETY: both calls are allowed in a forked child, and the message is readable.
    unsafe {
        libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
        libc::abort()
    }
}
