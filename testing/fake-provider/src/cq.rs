//! Classic completion queues.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use rdma_sys::{IBV_WC_RECV, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};

use crate::destroyed::Destroyed;
use crate::device::FakeDevice;
use crate::event::wait_acknowledged;
use crate::fault::Verb;
use crate::null;
use crate::profile::{AfterDestroy, Transport};
use crate::state::{Cq, Cqe, DeviceState, EventSource, Handle, MAX_CQE};

/// C representation of a completion queue, with the current entry of an extended poll.
#[repr(C)]
pub(crate) struct FakeCq {
    pub(crate) ex: ibv_cq_ex,
    pub(crate) current: ibv_wc,
}

/// `ibv_create_cq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: the caller passes a valid context.
    let fault = unsafe { FakeDevice::from_context(context) }
        .state()
        .faults
        .take(Verb::CreateCq);
    if let Some(errno) = fault {
        return null(errno);
    }
    let empty = ibv_cq_ex {
        context,
        channel,
        cq_context,
        ..Default::default()
    };
    // SAFETY: the caller passes a valid context and a channel that is valid or NULL.
    unsafe { create(&empty, u32::try_from(cqe).unwrap_or(u32::MAX), comp_vector) }
}

/// Creates a completion queue with at least `requested` entries.
///
/// # Safety
/// The context is valid, and so is the channel if it is not NULL.
pub(crate) unsafe fn create(empty: &ibv_cq_ex, requested: u32, vector: c_int) -> *mut ibv_cq {
    if requested == 0 || requested > MAX_CQE || vector != 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (mut state, context) = unsafe {
        (
            FakeDevice::from_context(empty.context).state(),
            crate::handle::context(empty.context),
        )
    };
    let depth = round_up(&state, requested);
    let channel = DeviceState::channel_index(empty.channel);
    let handle = u32::try_from(state.cqs.next()).unwrap_or(u32::MAX);
    let cqe = c_int::try_from(depth).unwrap_or(c_int::MAX);
    let object = Box::into_raw(Box::new(FakeCq {
        ex: ibv_cq_ex {
            handle,
            cqe,
            ..*empty
        },
        current: ibv_wc::default(),
    }));
    let depth = depth as usize;
    state.cqs.insert(Cq {
        context,
        handle: Handle(object.cast()),
        depth,
        entries: VecDeque::with_capacity(depth),
        channel,
        armed: None,
        unacked_events: 0,
        unacked_async_events: 0,
        polling: None,
        parent: None,
    });
    object.cast()
}

/// Rounds a queue size up as the software drivers do: rxe to one less than a power of two, siw to a
/// power of two.
pub(crate) fn round_up(state: &DeviceState, requested: u32) -> u32 {
    match requested {
        0 => 0,
        _ if state.profile.transport == Transport::Iwarp => requested.next_power_of_two(),
        _ => (requested + 1).next_power_of_two() - 1,
    }
}

/// `ibv_destroy_cq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller passes a valid queue, and does not use it again if 0 is returned.
    unsafe {
        let device = FakeDevice::from_context((*cq).context);
        let (mut state, index) = (device.state(), crate::handle::cq(cq));
        if let Some(errno) = state.destroy_fault(Verb::DestroyCq) {
            return errno;
        }
        let users = state
            .qps
            .iter()
            .filter(|qp| qp.send_cq == index || qp.recv_cq == index)
            .count()
            + state
                .srqs
                .iter()
                .filter(|srq| srq.xrc.is_some_and(|(_, cq)| cq == index))
                .count();
        if users > 0 {
            state.violation(format!(
                "a completion queue was destroyed with {users} queues on it"
            ));
            return libc::EBUSY;
        }
        state = wait_acknowledged(device, state, EventSource::Cq(index));
        if (state.cqs.get(index)).is_some_and(|queue| queue.polling.is_some()) {
            state.violation("a completion queue was destroyed with an open poll");
        }
        let channel = state.cqs.remove(index).and_then(|queue| queue.channel);
        if let Some(channel) = channel.and_then(|channel| state.channels.get_mut(channel)) {
            channel.events.retain(|&event| event != index);
        }
        let kept = Destroyed::Cq(Handle(cq.cast()));
        state.keep_or_free(kept, || drop(Box::from_raw(cq.cast::<FakeCq>())));
    }
    0
}

/// `ibv_resize_cq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the caller passes a valid queue, which no other thread uses during the call.
    unsafe {
        let mut state = FakeDevice::from_context((*cq).context).state();
        if let Some(errno) = state.faults.take(Verb::ResizeCq) {
            return errno;
        }
        if state.profile.transport == Transport::Iwarp {
            return libc::EOPNOTSUPP;
        }
        let requested = u32::try_from(cqe).unwrap_or(0);
        let depth = round_up(&state, requested);
        let Some(queue) = state.cqs.get_mut(crate::handle::cq(cq)) else {
            return libc::EINVAL;
        };
        if requested == 0 || requested > MAX_CQE || queue.entries.len() > requested as usize {
            return libc::EINVAL;
        }
        queue.depth = depth as usize;
        // A post allocates no memory.
        let more = queue.depth.saturating_sub(queue.entries.len());
        queue.entries.reserve_exact(more);
        let is_open = queue.polling.is_some();
        (*cq).cqe = c_int::try_from(depth).unwrap_or(c_int::MAX);
        if is_open {
            state.violation("a completion queue was resized during a poll");
        }
    }
    0
}

impl DeviceState {
    /// Removes the oldest completion and frees the send queue slots that it reports as complete.
    /// Returns an error number if the provider finds no request for it.
    #[inline]
    pub(crate) fn take_completion(&mut self, cq: usize) -> Option<Result<ibv_wc, c_int>> {
        let cqe = self.cqs.get_mut(cq)?.entries.pop_front()?;
        let pair = self.qps.get_mut(cqe.qp);
        match pair.filter(|pair| pair.uid == cqe.uid) {
            Some(pair) => {
                pair.send_slots_used -= cqe.releases;
                Some(Ok(cqe.wc))
            }
            None => Some(self.find_request(&cqe)),
        }
    }

    /// Finds the request of a completion whose queue pair was destroyed, as the provider does.
    #[cold]
    fn find_request(&mut self, cqe: &Cqe) -> Result<ibv_wc, c_int> {
        match self.profile.after_destroy {
            AfterDestroy::FindByNumber => {}
            AfterDestroy::Poison => {
                self.violation("a completion was polled after its queue pair was destroyed");
                return Ok(cqe.wc);
            }
            _ => return Ok(cqe.wc),
        }
        let received = cqe.wc.opcode & IBV_WC_RECV != 0;
        let pair = self.qps.get(cqe.qp).ok_or(libc::EINVAL)?;
        let oldest = if received {
            pair.recvs.front().map(|recv| recv.wr_id)
        } else {
            pair.pending.front().map(|(send, _)| send.wr_id)
        };
        let wr_id = oldest.ok_or(libc::EINVAL)?;
        Ok(ibv_wc { wr_id, ..cqe.wc })
    }
}

/// `ibv_poll_cq(3)`.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, max: c_int, wcs: *mut ibv_wc) -> c_int {
    // SAFETY: the caller passes a valid queue.
    let (mut state, index) = unsafe {
        (
            FakeDevice::from_context((*cq).context).state(),
            crate::handle::cq(cq),
        )
    };
    state.finish_late_if_empty(index);
    state.write_late();
    for filled in 0..max {
        if let Some(errno) = state.faults.take_poll() {
            // No real provider fails after it has written entries: they would be lost.
            return if filled == 0 { -errno } else { filled };
        }
        let wc = match state.take_completion(index) {
            None => return filled,
            Some(Ok(wc)) => wc,
            // The completion is lost, as with libefa.
            Some(Err(errno)) => return if filled == 0 { -errno } else { filled },
        };
        // SAFETY: the caller passes an array of `max` entries.
        unsafe { wcs.add(filled.unsigned_abs() as usize).write(wc) };
    }
    max
}

/// `ibv_req_notify_cq(3)`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller passes a valid queue.
    let (mut state, index) = unsafe {
        (
            FakeDevice::from_context((*cq).context).state(),
            crate::handle::cq(cq),
        )
    };
    if let Some(errno) = state.faults.take(Verb::ReqNotifyCq) {
        return errno;
    }
    if let Some(queue) = state.cqs.get_mut(index) {
        queue.armed = Some(solicited_only != 0);
    }
    state.finish_late(index);
    0
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_create_cq as *const (),
    ibv_resize_cq as *const (),
    ibv_destroy_cq as *const (),
];
