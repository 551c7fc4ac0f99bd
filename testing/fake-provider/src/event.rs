//! Asynchronous events. Each context has a queue of events, and a pipe that holds one byte per
//! event.

use std::ffi::c_int;
use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

use rdma_sys::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
    ibv_async_event, ibv_async_event__bindgen_ty_1, ibv_context,
};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::set_errno;
use crate::state::{Context, Cq, DeviceState, Event, EventSource, XrcRole};

/// Returns the constructor of the event source for an event type.
pub(crate) fn source_of(event_type: u32) -> fn(usize) -> EventSource {
    match event_type {
        IBV_EVENT_CQ_ERR => EventSource::Cq,
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => EventSource::Qp,
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => EventSource::Srq,
        _ => |index| EventSource::Number(c_int::try_from(index).unwrap_or(-1)),
    }
}

impl DeviceState {
    /// Raises an event for all objects that it applies to, or for port 1.
    pub(crate) fn raise_all(&mut self, event_type: u32) {
        let to_source = source_of(event_type);
        let queues: Vec<usize> = match to_source(1) {
            EventSource::Cq(_) => self.cqs.indices().collect(),
            EventSource::Qp(_) => self.qps.indices().collect(),
            EventSource::Srq(_) => self.srqs.indices().collect(),
            source @ EventSource::Number(_) => {
                for context in self.contexts.indices().collect::<Vec<_>>() {
                    self.report(context, Event { event_type, source });
                }
                return;
            }
        };
        for queue in queues {
            self.raise(event_type, to_source(queue));
        }
    }

    /// Raises an event in the context of its queue. Objects without a C handle raise no events.
    pub(crate) fn raise(&mut self, event_type: u32, source: EventSource) {
        let of_domain = |state: &Self, pd: usize| state.pds.get(pd).map(|pd| pd.context);
        let context = match source {
            EventSource::Cq(cq) => self.cqs.get(cq).map(|cq| cq.context),
            EventSource::Qp(qp) => self
                .qps
                .get(qp)
                .filter(|qp| !qp.handle.0.is_null())
                .and_then(|qp| match qp.xrc_role {
                    Some(XrcRole::Recv { xrcd, .. }) => self.xrcds.get(xrcd).map(|x| x.context),
                    _ => of_domain(self, qp.pd),
                }),
            EventSource::Srq(srq) => self
                .srqs
                .get(srq)
                .filter(|srq| !srq.handle.0.is_null())
                .and_then(|srq| of_domain(self, srq.pd)),
            EventSource::Number(_) => None,
        };
        if let Some(context) = context {
            self.report(context, Event { event_type, source });
        }
    }

    fn report(&mut self, context: usize, event: Event) {
        let Some(context) = self.contexts.get_mut(context) else {
            return;
        };
        context.events.push_back(event);
        // SAFETY: `writer` is the open write end of the context's pipe, and the buffer has one
        // byte.
        let written = unsafe { libc::write(context.writer, [1_u8].as_ptr().cast(), 1) };
        if written != 1 {
            self.violation("the pipe of asynchronous events is full");
        }
    }

    /// Returns the number of asynchronous events that were read and not acknowledged.
    fn unacked_events(&mut self, source: EventSource) -> Option<&mut u32> {
        match source {
            EventSource::Cq(cq) => self.cqs.get_mut(cq).map(|cq| &mut cq.unacked_async_events),
            EventSource::Qp(qp) => self.qps.get_mut(qp).map(|qp| &mut qp.unacked_async_events),
            EventSource::Srq(srq) => self
                .srqs
                .get_mut(srq)
                .map(|srq| &mut srq.unacked_async_events),
            EventSource::Number(_) => None,
        }
    }

    /// Returns `true` if an event of the object was read and not acknowledged: an asynchronous or a
    /// completion event.
    fn has_unacked_events(&mut self, source: EventSource) -> bool {
        let of_completions = |cq: &Cq| cq.unacked_events > 0;
        matches!(source, EventSource::Cq(cq) if self.cqs.get(cq).is_some_and(of_completions))
            || (self.unacked_events(source)).is_some_and(|taken| *taken > 0)
    }

    /// Discards the unread events of an object that will be destroyed.
    pub(crate) fn forget_events(&mut self, source: EventSource) {
        for context in self.contexts.iter_mut() {
            let before = context.events.len();
            context.events.retain(|event| event.source != source);
            for _ in context.events.len()..before {
                context.read();
            }
        }
    }
}

impl Context {
    /// Reads one byte from the pipe.
    fn read(&self) {
        let mut byte = 0_u8;
        // SAFETY: `reader` is the open read end of this context's pipe, and the buffer has one
        // byte. The read does not block: the pipe has a byte per event, and only this
        // function reads it.
        unsafe { libc::read(self.reader, (&raw mut byte).cast(), 1) };
    }
}

/// Number of times that a destroy operation checks for acknowledged events, and the time between
/// two checks.
const MAX_ACK_POLLS: u32 = 2000;
const ACK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until all events of an object that were read are acknowledged, as libibverbs does before
/// it destroys the object.
pub(crate) fn wait_acknowledged<'a>(
    device: &'a FakeDevice,
    mut state: MutexGuard<'a, DeviceState>,
    source: EventSource,
) -> MutexGuard<'a, DeviceState> {
    for _ in 0..MAX_ACK_POLLS {
        if !state.has_unacked_events(source) {
            state.forget_events(source);
            return state;
        }
        drop(state);
        thread::sleep(ACK_POLL_INTERVAL);
        state = device.state();
    }
    state.violation(format!(
        "{source:?} was destroyed with an unacknowledged event, on which libibverbs blocks forever"
    ));
    state
}

/// `ibv_get_async_event(3)` with a nonblocking descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller passes a valid context.
    let (mut state, index) = unsafe {
        (
            FakeDevice::from_context(context).state(),
            crate::handle::context(context),
        )
    };
    let fault = state.faults.take(Verb::GetAsyncEvent);
    let taken = state
        .contexts
        .get_mut(index)
        .filter(|_| fault.is_none())
        .and_then(|context| {
            let event = context.events.pop_front()?;
            context.read();
            Some(event)
        });
    let Some(Event { event_type, source }) = taken else {
        set_errno(fault.unwrap_or(libc::EAGAIN));
        return -1;
    };
    if let Some(taken) = state.unacked_events(source) {
        *taken += 1;
    }
    let mut element = ibv_async_event__bindgen_ty_1 {
        cq: std::ptr::null_mut(),
    };
    // Events of destroyed objects were discarded, so the object exists.
    match source {
        EventSource::Cq(cq) => {
            element.cq = state
                .cqs
                .get(cq)
                .map_or(std::ptr::null_mut(), |cq| cq.handle.0);
        }
        EventSource::Qp(qp) => {
            element.qp = state
                .qps
                .get(qp)
                .map_or(std::ptr::null_mut(), |qp| qp.handle.0);
        }
        EventSource::Srq(srq) => {
            element.srq = state
                .srqs
                .get(srq)
                .map_or(std::ptr::null_mut(), |srq| srq.handle.0);
        }
        EventSource::Number(index) => element.port_num = index,
    }
    // SAFETY: the caller passes a pointer that is valid for writes.
    unsafe {
        event.write(ibv_async_event {
            element,
            event_type,
        });
    };
    0
}

/// `ibv_ack_async_event(3)`. It reads the object, so Miri detects one that was freed.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller passes an event that it read. Its object is valid until the event is
    // acknowledged.
    let (device, source) = unsafe {
        let ibv_async_event {
            element,
            event_type,
        } = *event;
        let to_source = source_of(event_type);
        match to_source(0) {
            EventSource::Cq(_) => (
                FakeDevice::from_context((*element.cq).context),
                to_source(crate::handle::cq(element.cq)),
            ),
            EventSource::Qp(_) => (
                FakeDevice::from_context((*element.qp).context),
                to_source(crate::handle::qp(element.qp)),
            ),
            EventSource::Srq(_) => (
                FakeDevice::from_context((*element.srq).context),
                to_source(crate::handle::srq(element.srq)),
            ),
            EventSource::Number(_) => return,
        }
    };
    let mut state = device.state();
    let left = state.unacked_events(source).and_then(|taken| {
        *taken = taken.checked_sub(1)?;
        Some(())
    });
    if left.is_none() {
        state.violation("more asynchronous events were acknowledged than taken");
    }
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_get_async_event as *const (),
    ibv_ack_async_event as *const (),
];
