//! Safe wrapper of `rdma_event_channel`.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use ibverbs::{Errno, Result};
use rdma_sys::{
    rdma_cm_event, rdma_create_event_channel, rdma_destroy_event_channel, rdma_event_channel,
    rdma_get_cm_event,
};

use crate::convert::{failed, zero_or_last};
use crate::library;

/// An event channel of librdmacm with a non-blocking descriptor.
#[derive(Debug)]
pub(crate) struct Channel(NonNull<rdma_event_channel>);

// SAFETY: the channel is a heap object whose descriptor never changes, and librdmacm's functions on
// channels are thread-safe.
unsafe impl Send for Channel {}
// SAFETY: see `Send`.
unsafe impl Sync for Channel {}

impl Channel {
    pub(crate) fn create() -> Result<Self> {
        const CALL: &str = "rdma_create_event_channel";
        let detail = &"event channel";
        library::prepare(CALL)?;
        // SAFETY: the function has no preconditions.
        let Some(raw) = NonNull::new(unsafe { rdma_create_event_channel() }) else {
            return Err(failed(CALL, Errno::last(), detail));
        };
        let channel = Self(raw);
        let fd = channel.as_fd().as_raw_fd();
        // librdmacm has just opened it, without any other flag that this could clear.
        // SAFETY: `fcntl` with this command has no memory effects. The channel owns the descriptor.
        let returned = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
        zero_or_last("fcntl", detail, returned)?;
        Ok(channel)
    }

    pub(crate) fn as_ptr(&self) -> *mut rdma_event_channel {
        self.0.as_ptr()
    }

    /// Reads an event, if there is one. The caller must acknowledge it.
    pub(crate) fn try_next(&self) -> Result<Option<NonNull<rdma_cm_event>>> {
        let mut event = ptr::null_mut();
        // SAFETY: `self` keeps the channel alive, and the pointer is valid for writing.
        let returned = unsafe { rdma_get_cm_event(self.as_ptr(), &raw mut event) };
        if returned == 0 {
            return Ok(NonNull::new(event));
        }
        let errno = Errno::last();
        match errno.0 {
            libc::EAGAIN | libc::EINTR => Ok(None),
            _ => Err(failed("rdma_get_cm_event", errno, &"event channel")),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor stays open while the channel lives, and the result borrows the
        // channel.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: this is the last owner. Every identifier on the channel holds an `Arc` of it, so
        // none is left.
        unsafe { rdma_destroy_event_channel(self.as_ptr()) }
    }
}
