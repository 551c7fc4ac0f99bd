//! Functions that replace those of libibverbs and librdmacm in this program. They note their calls,
//! and call the original unless a test replaces it.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use nix::errno::Errno;
use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    ibv_device, ibv_ece, ibv_qp, ibv_qp_attr, rdma_cm_event, rdma_cm_id, rdma_cm_join_mc_attr_ex,
    rdma_conn_param, rdma_event_channel, rdma_port_space,
};

/// The original function with the arguments of the call.
pub(crate) type Original<'c> = &'c mut dyn FnMut() -> c_int;

type Hook = Box<dyn FnOnce(Original<'_>) -> c_int + Send>;
type ParamsHook = Box<dyn FnMut(&mut rdma_conn_param) + Send>;
type EventHook = Box<dyn FnMut(&mut rdma_cm_event) + Send>;

/// Parameters of `rdma_connect` or `rdma_accept`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) qp_num: u32,
    pub(crate) has_srq: bool,
    pub(crate) private_data: Vec<u8>,
    /// Numbers of READs that this side serves, and that it has in flight.
    pub(crate) depths: (u8, u8),
    pub(crate) thread: ThreadId,
}

/// Attributes of a queue pair that the parameters of a connection determine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) access: u32,
    pub(crate) min_rnr_timer: u8,
    /// Numbers of READs that the queue pair serves, and that it has in flight.
    pub(crate) depths: (u8, u8),
}

/// The calls since the last [`reset`].
#[derive(Default)]
pub(crate) struct Calls {
    /// Names of functions, in the order of their calls.
    pub(crate) names: Vec<&'static str>,
    /// Objects that were destroyed, and the threads that did it.
    destroyed: Vec<(&'static str, ThreadId)>,
    pub(crate) params: Vec<Params>,
    pub(crate) backlogs: Vec<c_int>,
    /// Time limits of the address resolutions, in milliseconds.
    pub(crate) time_limits: Vec<c_int>,
    /// Addresses of the identifier that was created last and of its channel.
    last_id: (usize, usize),
    /// Number of attempts to read an event.
    reads: u32,
    /// Addresses of events that were read and not acknowledged.
    unacknowledged: Vec<usize>,
    /// Number of events that were acknowledged without being read, or twice.
    wrongly_acknowledged: u32,
    hooks: Vec<(&'static str, Hook)>,
    /// Attributes that queue pairs got from rdmacm, by the number of the queue pair.
    pub(crate) attributes: HashMap<u32, Attributes>,
    params_hook: Option<ParamsHook>,
    event_hook: Option<EventHook>,
    /// Events of tests, with the addresses of their channels.
    added: Vec<(usize, Added)>,
    /// Addresses of events of tests that were read and not acknowledged.
    added_unacknowledged: Vec<usize>,
    /// Name of all devices instead of their own.
    device_name: Option<&'static CStr>,
}

/// An event of a test.
struct Added(Box<rdma_cm_event>);

// SAFETY: the pointers of the event stay valid while the test runs.
unsafe impl Send for Added {}

static CALLS: Mutex<Option<Calls>> = Mutex::new(None);

fn with<R>(f: impl FnOnce(&mut Calls) -> R) -> R {
    let mut calls: MutexGuard<'_, Option<Calls>> =
        CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    f(calls.get_or_insert_default())
}

/// Returns the calls since the last time, and forgets all replacements.
pub(crate) fn reset() -> Calls {
    with(std::mem::take)
}

/// Fails if an event was not acknowledged once.
pub(crate) fn check_events() {
    let left = with(|calls| {
        let added = calls.added_unacknowledged.len();
        (
            calls.unacknowledged.len() + added,
            calls.wrongly_acknowledged,
        )
    });
    assert_eq!(left, (0, 0), "events not acknowledged, or twice");
}

pub(crate) fn reads() -> u32 {
    with(|calls| calls.reads)
}

/// Returns the objects that were destroyed since the last time.
pub(crate) fn destroyed() -> Vec<&'static str> {
    let list = with(|calls| std::mem::take(&mut calls.destroyed));
    list.into_iter().map(|(object, _)| object).collect()
}

/// Returns the objects that were destroyed so far, and the threads that did it.
pub(crate) fn destroyed_by() -> Vec<(&'static str, ThreadId)> {
    with(|calls| calls.destroyed.clone())
}

/// Notes that an object was destroyed.
pub(crate) fn note_destroyed(object: &'static str) {
    let thread = thread::current().id();
    with(|calls| calls.destroyed.push((object, thread)));
}

/// Replaces the next call of a function.
pub(crate) fn replace_next(
    name: &'static str,
    hook: impl FnOnce(Original<'_>) -> c_int + Send + 'static,
) {
    with(|calls| calls.hooks.push((name, Box::new(hook))));
}

/// Lets the next call of a function fail without any effect.
pub(crate) fn fail_next(name: &'static str, errno: Errno) {
    replace_next(name, move |_| {
        errno.set();
        -1
    });
}

/// Changes the parameters of connecting and accepting after they were noted.
pub(crate) fn change_params(hook: impl FnMut(&mut rdma_conn_param) + Send + 'static) {
    with(|calls| calls.params_hook = Some(Box::new(hook)));
}

/// Changes each event that librdmacm returns.
pub(crate) fn change_events(hook: impl FnMut(&mut rdma_cm_event) + Send + 'static) {
    with(|calls| calls.event_hook = Some(Box::new(hook)));
}

/// Gives all devices another name, or their own.
pub(crate) fn rename_devices(name: Option<&'static CStr>) {
    with(|calls| calls.device_name = name);
}

/// Adds an event to those of the identifier that was created last.
pub(crate) fn add_event(mut event: rdma_cm_event) {
    with(|calls| {
        let (id, channel) = calls.last_id;
        event.id = std::ptr::with_exposed_provenance_mut(id);
        calls.added.push((channel, Added(Box::new(event))));
    });
}

/// Returns the identifier that was created last.
pub(crate) fn last_id() -> *mut rdma_cm_id {
    std::ptr::with_exposed_provenance_mut(with(|calls| calls.last_id.0))
}

/// Returns the function that the one of this program replaces. The name ends with NUL.
fn original(name: &'static str) -> *mut c_void {
    // SAFETY: the name ends with NUL.
    let function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    assert!(!function.is_null(), "{name}");
    function
}

/// Calls the replacement of a test, or the original.
fn call(name: &'static str, original: Original<'_>) -> c_int {
    let hook = with(|calls| {
        calls.names.push(name);
        let index = calls.hooks.iter().position(|(hooked, _)| *hooked == name)?;
        Some(calls.hooks.remove(index).1)
    });
    match hook {
        Some(hook) => hook(original),
        None => original(),
    }
}

/// Replaces a function that returns an integer.
macro_rules! replace {
    ($name:ident($($argument:ident: $type:ty),*), |$original:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let $original: Original<'_> = &mut || {
                type Function = unsafe extern "C" fn($($type),*) -> c_int;
                let function = original(concat!(stringify!($name), "\0"));
                // SAFETY: the function of this name has this type, and its caller keeps its
                // contract.
                unsafe {
                    let function: Function = std::mem::transmute(function);
                    function($($argument),*)
                }
            };
            $body
        }
    };
}

replace!(ibv_destroy_qp(qp: *mut ibv_qp), |original| {
    note_destroyed("queue pair");
    call("ibv_destroy_qp", original)
});

replace!(
    ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int),
    |original| {
        // SAFETY: the caller passes a queue pair and its attributes.
        let (number, attr) = unsafe { ((*qp).qp_num, &*attr) };
        let has = |flag| mask.cast_unsigned() & flag != 0;
        with(|calls| {
            let seen = calls.attributes.entry(number).or_default();
            if has(IBV_QP_ACCESS_FLAGS) {
                seen.access = attr.qp_access_flags;
            }
            if has(IBV_QP_MIN_RNR_TIMER) {
                seen.min_rnr_timer = attr.min_rnr_timer;
            }
            if has(IBV_QP_MAX_DEST_RD_ATOMIC) {
                seen.depths.0 = attr.max_dest_rd_atomic;
            }
            if has(IBV_QP_MAX_QP_RD_ATOMIC) {
                seen.depths.1 = attr.max_rd_atomic;
            }
        });
        call("ibv_modify_qp", original)
    }
);

replace!(
    rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        port_space: rdma_port_space
    ),
    |original| {
        let returned = call("rdma_create_id", original);
        // SAFETY: librdmacm has written the pointer.
        let created = unsafe { *id };
        let addresses = (created.expose_provenance(), channel.expose_provenance());
        with(|calls| calls.last_id = addresses);
        returned
    }
);

replace!(rdma_destroy_id(id: *mut rdma_cm_id), |original| {
    note_destroyed("identifier");
    call("rdma_destroy_id", original)
});

replace!(rdma_listen(id: *mut rdma_cm_id, backlog: c_int), |original| {
    with(|calls| calls.backlogs.push(backlog));
    call("rdma_listen", original)
});

replace!(
    rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel),
    |original| call("rdma_migrate_id", original)
);

replace!(
    rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece),
    |original| call("rdma_get_remote_ece", original)
);

replace!(
    rdma_join_multicast_ex(
        id: *mut rdma_cm_id,
        attr: *mut rdma_cm_join_mc_attr_ex,
        context: *mut c_void
    ),
    |original| call("rdma_join_multicast_ex", original)
);

replace!(
    rdma_leave_multicast(id: *mut rdma_cm_id, address: *mut libc::sockaddr),
    |original| call("rdma_leave_multicast", original)
);

replace!(
    rdma_resolve_addr(
        id: *mut rdma_cm_id,
        source: *mut libc::sockaddr,
        destination: *mut libc::sockaddr,
        timeout: c_int
    ),
    |original| {
        with(|calls| calls.time_limits.push(timeout));
        call("rdma_resolve_addr", original)
    }
);

replace!(
    rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param),
    |original| {
        // SAFETY: the caller passes valid parameters.
        unsafe { note_params(param) };
        call("rdma_connect", original)
    }
);

replace!(
    rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8),
    |original| call("rdma_reject", original)
);

replace!(
    rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, len: u8),
    |original| call("rdma_reject", original)
);

replace!(rdma_disconnect(id: *mut rdma_cm_id), |original| call(
    "rdma_disconnect",
    original
));

replace!(
    rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param),
    |original| {
        // SAFETY: the caller passes valid parameters.
        unsafe { note_params(param) };
        call("rdma_accept", original)
    }
);

unsafe fn note_params(param: *mut rdma_conn_param) {
    // SAFETY: the caller passes valid parameters.
    let params = unsafe {
        let param = &*param;
        let len = usize::from(param.private_data_len);
        Params {
            qp_num: param.qp_num,
            has_srq: param.srq != 0,
            private_data: std::slice::from_raw_parts(param.private_data.cast(), len).to_vec(),
            depths: (param.responder_resources, param.initiator_depth),
            thread: thread::current().id(),
        }
    };
    with(|calls| {
        calls.params.push(params);
        if let Some(hook) = &mut calls.params_hook {
            // SAFETY: the caller passes valid parameters.
            hook(unsafe { &mut *param });
        }
    });
}

replace!(
    rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event),
    |original| {
        let channel = channel.addr();
        let added = with(|calls| {
            calls.reads += 1;
            let index = calls.added.iter().position(|(own, _)| *own == channel)?;
            Some(calls.added.remove(index).1)
        });
        if let Some(Added(added)) = added {
            let added = Box::into_raw(added);
            with(|calls| calls.added_unacknowledged.push(added.addr()));
            // SAFETY: the caller passes a valid pointer.
            unsafe { *event = added };
            return 0;
        }
        let returned = original();
        if returned == 0 {
            with(|calls| {
                // SAFETY: the event was returned, and is not acknowledged.
                let event = unsafe { &mut **event };
                calls.unacknowledged.push(std::ptr::from_mut(event).addr());
                if let Some(hook) = &mut calls.event_hook {
                    hook(event);
                }
            });
        }
        returned
    }
);

/// Acknowledges an event after it was overwritten, as freed memory may be.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    let (is_added, is_unacknowledged) = with(|calls| {
        let remove = |list: &mut Vec<usize>| {
            let before = list.len();
            list.retain(|own| *own != event.addr());
            list.len() < before
        };
        let is_added = remove(&mut calls.added_unacknowledged);
        let is_unacknowledged = remove(&mut calls.unacknowledged);
        calls.wrongly_acknowledged += u32::from(!is_added && !is_unacknowledged);
        (is_added, is_unacknowledged)
    });
    if is_added {
        // SAFETY: the event was in a box, and is acknowledged once.
        drop(unsafe { Box::from_raw(event) });
    }
    if !is_unacknowledged {
        return 0;
    }
    // SAFETY: the event was returned, and is not acknowledged. Its private data is in the memory
    // of the event.
    unsafe {
        let param = &mut (*event).param.conn;
        let data: *mut u8 = param.private_data.cast_mut().cast();
        if !data.is_null() {
            data.write_bytes(0xa5, param.private_data_len.into());
        }
        (*event).status = -1;
        param.private_data = null_mut();
        let function = original("rdma_ack_cm_event\0");
        let function: unsafe extern "C" fn(*mut rdma_cm_event) -> c_int =
            std::mem::transmute(function);
        function(event)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    note_destroyed("channel");
    // SAFETY: the function of this name has this type, and its caller keeps its contract.
    unsafe {
        let function = original("rdma_destroy_event_channel\0");
        let function: unsafe extern "C" fn(*mut rdma_event_channel) = std::mem::transmute(function);
        function(channel);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if let Some(name) = with(|calls| calls.device_name) {
        return name.as_ptr();
    }
    // SAFETY: the function of this name has this type, and its caller keeps its contract.
    unsafe {
        let function = original("ibv_get_device_name\0");
        let function: unsafe extern "C" fn(*mut ibv_device) -> *const c_char =
            std::mem::transmute(function);
        function(device)
    }
}
