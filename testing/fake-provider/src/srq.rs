//! Shared receive queues.

use std::collections::VecDeque;
use std::ffi::c_int;

use rdma_sys::{
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};

use crate::cq::round_up;
use crate::device::FakeDevice;
use crate::event::wait_acknowledged;
use crate::fault::{Queue, Verb};
use crate::null;
use crate::post::post_list;
use crate::request::{MAX_SGE, RecvWr, Sges};
use crate::state::{DeviceState, EventSource, Handle, MAX_WR, Srq};

/// `ibv_create_srq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller passes a valid domain and attributes that are valid for reads and writes.
    let (context, index, init) = unsafe { ((*pd).context, crate::handle::pd(pd), &mut *init) };
    // SAFETY: as above.
    let mut state = unsafe { FakeDevice::from_context(context) }.state();
    if let Some(errno) = state.faults.take(Verb::CreateSrq) {
        return null(errno);
    }
    let Some(index) = state.insert_srq(index, &mut init.attr, None) else {
        return null(libc::EINVAL);
    };
    let handle = u32::try_from(index).unwrap_or(u32::MAX);
    let object = Box::into_raw(Box::new(ibv_srq {
        context,
        srq_context: init.srq_context,
        pd,
        handle,
        ..Default::default()
    }));
    if let Some(queue) = state.srqs.get_mut(index) {
        queue.handle = Handle(object);
    }
    object
}

/// `ibv_modify_srq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller passes a valid queue and readable attributes.
    let (index, attr, mut state) = unsafe {
        (
            crate::handle::srq(srq),
            &*attr,
            FakeDevice::from_context((*srq).context).state(),
        )
    };
    let Some(queue) = state.srqs.get_mut(index) else {
        return libc::EINVAL;
    };
    let has = |flag: u32| u32::try_from(mask).unwrap_or(0) & flag != 0;
    if has(IBV_SRQ_MAX_WR) && (attr.max_wr > MAX_WR || (attr.max_wr as usize) < queue.recvs.len()) {
        return libc::EINVAL;
    }
    if has(IBV_SRQ_MAX_WR) {
        queue.depth = attr.max_wr as usize;
    }
    if has(IBV_SRQ_LIMIT) {
        queue.limit = attr.srq_limit;
    }
    0
}

/// `ibv_query_srq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the caller passes a valid queue and a pointer that is valid for writes.
    unsafe {
        let state = FakeDevice::from_context((*srq).context).state();
        let Some(queue) = state.srqs.get(crate::handle::srq(srq)) else {
            return libc::EINVAL;
        };
        let size = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        attr.write(ibv_srq_attr {
            max_wr: size(queue.depth),
            max_sge: size(queue.max_sge),
            srq_limit: queue.limit,
        });
    }
    0
}

/// `ibv_destroy_srq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller passes a valid queue, and does not use it again if 0 is returned.
    unsafe {
        let device = FakeDevice::from_context((*srq).context);
        let (index, mut state) = (crate::handle::srq(srq), device.state());
        if let Some(errno) = state.faults.take(Verb::DestroySrq) {
            return errno;
        }
        let users = state.qps.iter().filter(|qp| qp.srq == Some(index)).count();
        if users > 0 {
            state.violation(format!(
                "a shared receive queue was destroyed with {users} queue pairs on it"
            ));
            return libc::EBUSY;
        }
        if let Some((_, cq)) = state.srqs.get(index).and_then(|srq| srq.xrc) {
            state.check_poll_lock(&[cq], "a shared receive queue was destroyed");
        }
        state = wait_acknowledged(device, state, EventSource::Srq(index));
        state.srqs.remove(index);
        drop(state);
        drop(Box::from_raw(srq));
    }
    0
}

/// `ibv_post_srq_recv(3)`.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller passes a valid queue and a list of valid requests, and `bad_wr` is valid
    // for writes.
    unsafe {
        let (slot, mut state) = (
            crate::handle::srq(srq),
            FakeDevice::from_context((*srq).context).state(),
        );
        let fault = state.faults.take_post(Queue::SharedRecv);
        let check = |state: &DeviceState, sges: &Sges| state.check_srq_recv(slot, sges);
        post_list(&mut state, fault, wr, bad_wr, check, |state, recv| {
            state.enqueue_srq_recv(slot, recv);
        })
    }
}

impl DeviceState {
    /// Creates a queue and writes its actual capacities to `attr`. Returns `None` if they exceed
    /// the limits.
    pub(crate) fn insert_srq(
        &mut self,
        pd: usize,
        attr: &mut ibv_srq_attr,
        xrc: Option<(usize, usize)>,
    ) -> Option<usize> {
        if attr.max_wr > MAX_WR || attr.max_sge as usize > MAX_SGE {
            return None;
        }
        attr.max_wr = round_up(self, attr.max_wr);
        let (depth, max_sge) = (attr.max_wr as usize, attr.max_sge as usize);
        let (recvs, handle) = (VecDeque::with_capacity(depth), Handle(std::ptr::null_mut()));
        Some(self.srqs.insert(Srq {
            pd,
            recvs,
            depth,
            max_sge,
            limit: 0,
            handle,
            unacked_async_events: 0,
            xrc,
        }))
    }

    fn check_srq_recv(&self, srq: usize, sges: &Sges) -> Result<(), i32> {
        let queue = self.srqs.get(srq).ok_or(libc::EINVAL)?;
        if sges.count > queue.max_sge {
            return Err(libc::EINVAL);
        }
        if queue.recvs.len() >= queue.depth {
            Err(libc::ENOMEM)
        } else {
            Ok(())
        }
    }

    fn enqueue_srq_recv(&mut self, srq: usize, recv: RecvWr) {
        let Some(queue) = self.srqs.get_mut(srq) else {
            return;
        };
        queue.recvs.push_back(recv);
        // Continue the peers whose sends wait for a receive of this queue.
        for index in 0..self.qps.end() {
            let waits = self
                .qps
                .get(index)
                .and_then(|qp| Some((qp.peer?, qp.pending.front()?.0.srqn)));
            let Some((peer, srqn)) = waits else { continue };
            if self
                .target(peer, srqn)
                .is_some_and(|target| target.srq == Some(srq))
            {
                self.progress(index);
            }
        }
    }
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_create_srq as *const (),
    ibv_modify_srq as *const (),
    ibv_query_srq as *const (),
    ibv_destroy_srq as *const (),
];
