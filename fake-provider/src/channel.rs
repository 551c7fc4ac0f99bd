//! Completion channels: a pipe with a byte for each event.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};

use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::world::{Channel, World};

/// `ibv_create_comp_channel(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the caller gives an open context.
    let (mut world, number) = unsafe {
        (
            FakeDevice::of_context(context).world(),
            crate::handle::context(context),
        )
    };
    if let Some(errno) = world.faults.take(Verb::CreateCompChannel) {
        return null(errno);
    }
    let mut ends = [-1; 2];
    // SAFETY: the array has room for both descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return std::ptr::null_mut();
    }
    let [fd, writer] = ends;
    let number = world.channels.insert(Channel {
        context: number,
        writer,
        events: VecDeque::new(),
    });
    // The place of the count holds the channel's number.
    Box::into_raw(Box::new(ibv_comp_channel {
        context,
        fd,
        refcnt: c_int::try_from(number).unwrap_or(-1),
    }))
}

/// `ibv_destroy_comp_channel(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller gives a live channel, and gives it up if the answer is 0.
    unsafe {
        let mut world = FakeDevice::of_context((*channel).context).world();
        if let Some(errno) = world.faults.take(Verb::DestroyCompChannel) {
            return errno;
        }
        let number = World::channel_number(channel);
        let children = world.cqs.iter().filter(|cq| cq.channel == number).count();
        if children > 0 {
            world.violation(format!(
                "a channel was destroyed with {children} completion queues alive"
            ));
            return libc::EBUSY;
        }
        if let Some(gone) = number.and_then(|number| world.channels.remove(number)) {
            libc::close(gone.writer);
        }
        libc::close((*channel).fd);
        drop(world);
        drop(Box::from_raw(channel));
    }
    0
}

impl World {
    /// Reports on the channel of a queue that was armed.
    pub(crate) fn notify(&mut self, cq: usize) {
        let Some(channel) = self.cqs.get(cq).and_then(|queue| queue.channel) else {
            return;
        };
        let Some(channel) = self.channels.get_mut(channel) else {
            return;
        };
        channel.events.push_back(cq);
        // SAFETY: one byte into a pipe of this crate's own.
        let written = unsafe { libc::write(channel.writer, [1_u8].as_ptr().cast(), 1) };
        if written != 1 {
            self.violation("the pipe of a completion channel is full");
        }
    }
}

/// `ibv_get_cq_event(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let mut byte = 0_u8;
    // SAFETY: the caller gives a live channel; one byte from its pipe. The lock is not held: the
    // pipe may be a blocking one.
    if unsafe { libc::read((*channel).fd, (&raw mut byte).cast(), 1) } != 1 {
        return -1;
    }
    // SAFETY: as above; a queue with an event is alive until the event is acknowledged, and the
    // caller gives places for the answers.
    unsafe {
        let mut world = FakeDevice::of_context((*channel).context).world();
        let number =
            World::channel_number(channel).and_then(|number| world.channels.get_mut(number));
        let Some(queue) = number.and_then(|channel| channel.events.pop_front()) else {
            return -1;
        };
        let Some(queue) = world.cqs.get_mut(queue) else {
            return -1;
        };
        queue.unacknowledged += 1;
        *cq = queue.handle.0;
        *cq_context = (*queue.handle.0).cq_context;
    }
    0
}

/// `ibv_ack_cq_events(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    // SAFETY: the caller gives a live queue.
    let (mut world, number) = unsafe {
        (
            FakeDevice::of_context((*cq).context).world(),
            crate::handle::cq(cq),
        )
    };
    let left = world.cqs.get_mut(number).and_then(|queue| {
        queue.unacknowledged = queue.unacknowledged.checked_sub(count)?;
        Some(queue.unacknowledged)
    });
    if left.is_none() {
        world.violation("more events were acknowledged than taken");
    }
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![
        ibv_create_comp_channel as *const (),
        ibv_destroy_comp_channel as *const (),
        ibv_get_cq_event as *const (),
        ibv_ack_cq_events as *const (),
    ]
}
