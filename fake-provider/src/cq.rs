//! Completion queues by the classic verbs.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};

use crate::device::FakeDevice;
use crate::event::settled;
use crate::event_kind::Of;
use crate::fault::Verb;
use crate::null;
use crate::world::{Cq, Cqe, Handle, MAX_CQE, World};

/// A completion queue as C sees it, and the entry that a poll of the extended verbs stands on.
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
    // SAFETY: the caller gives an open context.
    let fault = unsafe { FakeDevice::of_context(context) }
        .world()
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
    // SAFETY: the caller gives an open context and a live channel, or NULL.
    unsafe { create(&empty, u32::try_from(cqe).unwrap_or(u32::MAX), comp_vector) }
}

/// Makes a queue, as deep as asked or deeper.
///
/// # Safety
/// Context and channel are alive.
pub(crate) unsafe fn create(empty: &ibv_cq_ex, asked: u32, vector: c_int) -> *mut ibv_cq {
    if asked == 0 || asked > MAX_CQE || vector != 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (mut world, context) = unsafe {
        (
            FakeDevice::of_context(empty.context).world(),
            crate::handle::context(empty.context),
        )
    };
    let depth = rounded(&world, asked);
    let channel = World::channel_number(empty.channel);
    let handle = u32::try_from(world.cqs.next()).unwrap_or(u32::MAX);
    let cqe = c_int::try_from(depth).unwrap_or(c_int::MAX);
    let made = Box::into_raw(Box::new(FakeCq {
        ex: ibv_cq_ex {
            handle,
            cqe,
            ..*empty
        },
        current: ibv_wc::default(),
    }));
    let depth = depth as usize;
    world.cqs.insert(Cq {
        context,
        handle: Handle(made.cast()),
        depth,
        entries: VecDeque::with_capacity(depth),
        channel,
        armed: None,
        unacknowledged: 0,
        events_taken: 0,
        polling: None,
    });
    made.cast()
}

/// Sizes as the software drivers round them: rxe to one less than a power of two, siw to a power of
/// two.
pub(crate) fn rounded(world: &World, asked: u32) -> u32 {
    match asked {
        0 => 0,
        _ if world.profile.iwarp => asked.next_power_of_two(),
        _ => (asked + 1).next_power_of_two() - 1,
    }
}

/// `ibv_destroy_cq(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller gives a live queue, and gives it up if the answer is 0.
    unsafe {
        let device = FakeDevice::of_context((*cq).context);
        let (mut world, number) = (device.world(), crate::handle::cq(cq));
        if let Some(errno) = world.faults.take(Verb::DestroyCq) {
            return errno;
        }
        let users = world
            .qps
            .iter()
            .filter(|qp| qp.send_cq == number || qp.recv_cq == number)
            .count()
            + world
                .srqs
                .iter()
                .filter(|srq| srq.xrc.is_some_and(|(_, cq)| cq == number))
                .count();
        if users > 0 {
            world.violation(format!(
                "a completion queue was destroyed with {users} queues on it"
            ));
            return libc::EBUSY;
        }
        world = settled(device, world, Of::Cq(number));
        if world
            .cqs
            .get(number)
            .is_some_and(|queue| queue.unacknowledged > 0 || queue.polling.is_some())
        {
            world.violation("a completion queue was destroyed with events not acknowledged, or a poll not ended");
        }
        let channel = world.cqs.remove(number).and_then(|queue| queue.channel);
        if let Some(channel) = channel.and_then(|channel| world.channels.get_mut(channel)) {
            channel.events.retain(|&event| event != number);
        }
        drop(world);
        drop(Box::from_raw(cq.cast::<FakeCq>()));
    }
    0
}

impl World {
    /// Takes the oldest completion, and frees the places of the send queue that it reports on.
    #[inline]
    pub(crate) fn take_completion(&mut self, cq: usize) -> Option<ibv_wc> {
        let Cqe {
            wc,
            qp,
            uid,
            releases,
        } = self.cqs.get_mut(cq)?.entries.pop_front()?;
        if let Some(pair) = self.qps.get_mut(qp).filter(|pair| pair.uid == uid) {
            pair.sends_used -= releases;
        }
        Some(wc)
    }
}

/// `ibv_poll_cq(3)`.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, max: c_int, wcs: *mut ibv_wc) -> c_int {
    // SAFETY: the caller gives a live queue.
    let (mut world, number) = unsafe {
        (
            FakeDevice::of_context((*cq).context).world(),
            crate::handle::cq(cq),
        )
    };
    for filled in 0..max {
        if let Some(errno) = world.faults.take_poll() {
            // A provider that fails after entries would lose them: none does.
            return if filled == 0 { -errno } else { filled };
        }
        let Some(wc) = world.take_completion(number) else {
            return filled;
        };
        // SAFETY: the caller gives room for `max` entries.
        unsafe { wcs.add(filled.unsigned_abs() as usize).write(wc) };
    }
    max
}

/// `ibv_req_notify_cq(3)`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller gives a live queue.
    let (mut world, number) = unsafe {
        (
            FakeDevice::of_context((*cq).context).world(),
            crate::handle::cq(cq),
        )
    };
    if let Some(errno) = world.faults.take(Verb::ReqNotifyCq) {
        return errno;
    }
    if let Some(queue) = world.cqs.get_mut(number) {
        queue.armed = Some(solicited_only != 0);
    }
    0
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![ibv_create_cq as *const (), ibv_destroy_cq as *const ()]
}
