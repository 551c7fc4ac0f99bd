//! Completion channels. A channel is a pipe that holds one byte per event.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};

use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::state::{Channel, DeviceState};
use crate::{null, set_errno};

/// `ibv_create_comp_channel(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the caller passes a valid context.
    let (mut state, index) = unsafe {
        (
            FakeDevice::from_context(context).state(),
            crate::handle::context(context),
        )
    };
    if let Some(errno) = state.faults.take(Verb::CreateCompChannel) {
        return null(errno);
    }
    let mut ends = [-1; 2];
    // SAFETY: `pipe` writes two descriptors, and the array has two elements.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return std::ptr::null_mut();
    }
    let [fd, writer] = ends;
    let index = state.channels.insert(Channel {
        context: index,
        writer,
        events: VecDeque::new(),
    });
    // `refcnt` belongs to the provider. It stores the index of the channel.
    Box::into_raw(Box::new(ibv_comp_channel {
        context,
        fd,
        refcnt: c_int::try_from(index).unwrap_or(-1),
    }))
}

/// `ibv_destroy_comp_channel(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller passes a valid channel, and does not use it again if 0 is returned.
    unsafe {
        let mut state = FakeDevice::from_context((*channel).context).state();
        if let Some(errno) = state.faults.take(Verb::DestroyCompChannel) {
            return errno;
        }
        let index = DeviceState::channel_index(channel);
        let children = state.cqs.iter().filter(|cq| cq.channel == index).count();
        if children > 0 {
            state.violation(format!(
                "a channel was destroyed with {children} completion queues alive"
            ));
            return libc::EBUSY;
        }
        if let Some(gone) = index.and_then(|index| state.channels.remove(index)) {
            libc::close(gone.writer);
        }
        libc::close((*channel).fd);
        drop(state);
        drop(Box::from_raw(channel));
    }
    0
}

impl DeviceState {
    /// Adds an event of a completion queue to its channel, if it has one.
    pub(crate) fn notify(&mut self, cq: usize) {
        let Some(channel) = self.cqs.get(cq).and_then(|queue| queue.channel) else {
            return;
        };
        let Some(channel) = self.channels.get_mut(channel) else {
            return;
        };
        channel.events.push_back(cq);
        // SAFETY: `writer` is the open write end of the channel's pipe, and the buffer has one
        // byte.
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
    // SAFETY: the caller passes a valid channel, and the buffer has one byte. The lock is not held
    // because the read may block.
    if unsafe { libc::read((*channel).fd, (&raw mut byte).cast(), 1) } != 1 {
        return -1;
    }
    // SAFETY: as above. The program must not destroy a completion queue before it acknowledges the
    // event, and both result pointers are valid for writes.
    unsafe {
        let mut state = FakeDevice::from_context((*channel).context).state();
        let index =
            DeviceState::channel_index(channel).and_then(|index| state.channels.get_mut(index));
        let queue = index.and_then(|channel| channel.events.pop_front());
        let Some(queue) = queue.and_then(|queue| state.cqs.get_mut(queue)) else {
            // Another thread has destroyed the queue.
            set_errno(libc::EAGAIN);
            return -1;
        };
        queue.unacked_events += 1;
        *cq = queue.handle.0;
        *cq_context = (*queue.handle.0).cq_context;
    }
    0
}

/// `ibv_ack_cq_events(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    // SAFETY: the caller passes a valid queue.
    let (mut state, index) = unsafe {
        (
            FakeDevice::from_context((*cq).context).state(),
            crate::handle::cq(cq),
        )
    };
    let left = state.cqs.get_mut(index).and_then(|queue| {
        queue.unacked_events = queue.unacked_events.checked_sub(count)?;
        Some(queue.unacked_events)
    });
    if left.is_none() {
        state.violation("more events were acknowledged than taken");
    }
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_create_comp_channel as *const (),
    ibv_destroy_comp_channel as *const (),
    ibv_get_cq_event as *const (),
    ibv_ack_cq_events as *const (),
];
