//! Functions that replace those of C libraries in this program. They run code of a test at one step
//! of the calling thread, or count its calls. Without them, an order of steps would only show if
//! another thread ran between them.

#![allow(unsafe_code, reason = "replaces functions of C libraries")]

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::time::Duration;

use ibverbs::{QueuePair, Rc};
use messenger::Messenger;
use rdma_sys::{
    IBV_QPS_ERR, ibv_pd, ibv_qp, ibv_qp_attr, ibv_srq, ibv_srq_init_attr, rdma_cm_id,
    rdma_event_channel,
};

/// Code that runs at the next call of a function.
struct Code(Cell<Option<Box<dyn FnOnce()>>>);

impl Code {
    const fn new() -> Self {
        Self(Cell::new(None))
    }

    fn run(&self) {
        if let Some(code) = self.0.take() {
            code();
        }
    }

    /// Calls `action`, which must call the function.
    fn during<R>(&self, code: impl FnOnce() + 'static, action: impl FnOnce() -> R) -> R {
        self.0.set(Some(Box::new(code)));
        let result = action();
        assert!(self.0.take().is_none(), "the function was not called");
        result
    }
}

thread_local! {
    static BEFORE_ERROR_STATE: Code = const { Code::new() };
    static BEFORE_DESTRUCTION: Code = const { Code::new() };
    static BEFORE_MIGRATION: Code = const { Code::new() };
    static BEFORE_SLEEP: Code = const { Code::new() };
    static SHARED_QUEUES: Cell<usize> = const { Cell::new(0) };
}

/// Calls `code` once, before `action` moves a queue pair to the error state.
pub(crate) fn before_error_state<R>(
    code: impl FnOnce() + 'static,
    action: impl FnOnce() -> R,
) -> R {
    BEFORE_ERROR_STATE.with(|at| at.during(code, action))
}

/// Calls `code` once, before `action` destroys a queue pair.
pub(crate) fn before_destruction<R>(
    code: impl FnOnce() + 'static,
    action: impl FnOnce() -> R,
) -> R {
    BEFORE_DESTRUCTION.with(|at| at.during(code, action))
}

/// Calls `code` once, before `action` moves an identifier to another channel.
pub(crate) fn before_migration<R>(code: impl FnOnce() + 'static, action: impl FnOnce() -> R) -> R {
    BEFORE_MIGRATION.with(|at| at.during(code, action))
}

/// Calls `code` once, before `action` waits for events of epoll.
pub(crate) fn before_sleep<R>(code: impl FnOnce() + 'static, action: impl FnOnce() -> R) -> R {
    BEFORE_SLEEP.with(|at| at.during(code, action))
}

/// Returns the number of shared receive queues that this thread has created.
pub(crate) fn shared_queues() -> usize {
    SHARED_QUEUES.get()
}

/// Sends a message, and waits until the adapter of the peer has received it.
pub(crate) fn deliver(sender: &mut Messenger, message: &[u8]) {
    assert!(sender.try_send(message).expect("send"));
    let is_idle = |qp: &mut QueuePair<Rc>| qp.send_slots_free() == qp.caps().max_send_wr as usize;
    while !sender.with_qp(is_idle).expect("open") {
        // Takes completions, but no message.
        let _ = sender.completed(Duration::ZERO);
    }
}

/// Returns the function that the one of this program replaces.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with NUL.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!next.is_null(), "{name:?}");
    next
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    type Modify = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    // SAFETY: the caller passes valid attributes.
    if unsafe { (*attr).qp_state } == IBV_QPS_ERR {
        BEFORE_ERROR_STATE.with(Code::run);
    }
    // SAFETY: the function of this name has this type, and its caller keeps its contract.
    unsafe {
        let next: Modify = std::mem::transmute(next(c"ibv_modify_qp"));
        next(qp, attr, mask)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    BEFORE_DESTRUCTION.with(Code::run);
    // SAFETY: the function of this name has this type, and its caller keeps its contract.
    unsafe {
        let next: unsafe extern "C" fn(*mut ibv_qp) -> c_int =
            std::mem::transmute(next(c"ibv_destroy_qp"));
        next(qp)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    type Create = unsafe extern "C" fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    SHARED_QUEUES.set(SHARED_QUEUES.get() + 1);
    // SAFETY: the function of this name has this type, and its caller keeps its contract.
    unsafe {
        let next: Create = std::mem::transmute(next(c"ibv_create_srq"));
        next(pd, attr)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, to: *mut rdma_event_channel) -> c_int {
    type Migrate = unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    BEFORE_MIGRATION.with(Code::run);
    // SAFETY: the function of this name has this type, and its caller keeps its contract.
    unsafe {
        let next: Migrate = std::mem::transmute(next(c"rdma_migrate_id"));
        next(id, to)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    type Wait = unsafe extern "C" fn(c_int, *mut libc::epoll_event, c_int, c_int) -> c_int;
    if timeout != 0 {
        BEFORE_SLEEP.with(Code::run);
    }
    // SAFETY: the function of this name has this type, and its caller keeps its contract.
    unsafe {
        let next: Wait = std::mem::transmute(next(c"epoll_wait"));
        next(epoll, events, max, timeout)
    }
}
