//! Shared receive queues.

use std::collections::VecDeque;
use std::ffi::c_int;

use rdma_sys::{
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};

use crate::cq::rounded;
use crate::device::FakeDevice;
use crate::event::settled;
use crate::event_kind::Of;
use crate::fault::{Queue, Verb};
use crate::null;
use crate::post::post_list;
use crate::request::{MAX_SGE, RecvWr, Sges};
use crate::world::{Handle, MAX_WR, Srq, World};

/// `ibv_create_srq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller gives a live domain, and attributes that can be read and written.
    let (context, number, init) = unsafe { ((*pd).context, crate::handle::pd(pd), &mut *init) };
    // SAFETY: as above.
    let mut world = unsafe { FakeDevice::of_context(context) }.world();
    if let Some(errno) = world.faults.take(Verb::CreateSrq) {
        return null(errno);
    }
    let Some(number) = world.insert_srq(number, &mut init.attr, None) else {
        return null(libc::EINVAL);
    };
    let handle = u32::try_from(number).unwrap_or(u32::MAX);
    let made = Box::into_raw(Box::new(ibv_srq {
        context,
        srq_context: init.srq_context,
        pd,
        handle,
        ..Default::default()
    }));
    if let Some(queue) = world.srqs.get_mut(number) {
        queue.handle = Handle(made);
    }
    made
}

/// `ibv_modify_srq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller gives a live queue and readable attributes.
    let (number, attr, mut world) = unsafe {
        (
            crate::handle::srq(srq),
            &*attr,
            FakeDevice::of_context((*srq).context).world(),
        )
    };
    let Some(queue) = world.srqs.get_mut(number) else {
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
    // SAFETY: the caller gives a live queue and a place for the answer.
    unsafe {
        let world = FakeDevice::of_context((*srq).context).world();
        let Some(queue) = world.srqs.get(crate::handle::srq(srq)) else {
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
    // SAFETY: the caller gives a live queue, and gives it up if the answer is 0.
    unsafe {
        let device = FakeDevice::of_context((*srq).context);
        let (number, mut world) = (crate::handle::srq(srq), device.world());
        if let Some(errno) = world.faults.take(Verb::DestroySrq) {
            return errno;
        }
        let users = world.qps.iter().filter(|qp| qp.srq == Some(number)).count();
        if users > 0 {
            world.violation(format!(
                "a shared receive queue was destroyed with {users} queue pairs on it"
            ));
            return libc::EBUSY;
        }
        if let Some((_, cq)) = world.srqs.get(number).and_then(|srq| srq.xrc) {
            world.locks(&[cq], "a shared receive queue was destroyed");
        }
        world = settled(device, world, Of::Srq(number));
        world.srqs.remove(number);
        drop(world);
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
    // SAFETY: the caller gives a live queue, a list of valid requests and a place for the answer.
    unsafe {
        let (place, mut world) = (
            crate::handle::srq(srq),
            FakeDevice::of_context((*srq).context).world(),
        );
        let fault = world.faults.take_post(Queue::SharedRecv);
        let check = |world: &World, sges: &Sges| world.check_srq_recv(place, sges);
        post_list(&mut world, fault, wr, bad_wr, check, |world, recv| {
            world.take_srq_recv(place, recv);
        })
    }
}

impl World {
    /// Makes a queue and says how large it is; `None` for more than the device has.
    pub(crate) fn insert_srq(
        &mut self,
        pd: usize,
        attr: &mut ibv_srq_attr,
        xrc: Option<(usize, usize)>,
    ) -> Option<usize> {
        if attr.max_wr > MAX_WR || attr.max_sge as usize > MAX_SGE {
            return None;
        }
        attr.max_wr = rounded(self, attr.max_wr);
        let (depth, max_sge) = (attr.max_wr as usize, attr.max_sge as usize);
        let (recvs, handle) = (VecDeque::with_capacity(depth), Handle(std::ptr::null_mut()));
        Some(self.srqs.insert(Srq {
            pd,
            recvs,
            depth,
            max_sge,
            limit: 0,
            handle,
            events_taken: 0,
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

    fn take_srq_recv(&mut self, srq: usize, recv: RecvWr) {
        let Some(queue) = self.srqs.get_mut(srq) else {
            return;
        };
        queue.recvs.push_back(recv);
        // Who waits for a receive of one of its queue pairs.
        for number in 0..self.qps.end() {
            let waits = self
                .qps
                .get(number)
                .and_then(|qp| Some((qp.peer?, qp.waiting.front()?.0.srqn)));
            let Some((peer, srqn)) = waits else { continue };
            if self
                .target(peer, srqn)
                .is_some_and(|target| target.srq == Some(srq))
            {
                self.progress(number);
            }
        }
    }
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![
        ibv_create_srq as *const (),
        ibv_modify_srq as *const (),
        ibv_query_srq as *const (),
        ibv_destroy_srq as *const (),
    ]
}
