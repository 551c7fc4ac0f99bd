//! Completion channels: sleeping until a completion queue has entries.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event,
};

use super::id::CqId;
use crate::context::Context;
use crate::convert::{non_null, not_negative};
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::raw::AsRaw;

/// A channel on which completion queues report, once each time they were armed, that they have new entries.
///
/// Cloning it is cheap. Arm the queue, poll it once more, and only then wait: an entry that came before arming gives no event.
///
/// # References
/// [`ibv_get_cq_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
#[derive(Clone)]
pub struct CompletionChannel(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_comp_channel>,
    context: Context,
}

// SAFETY: a channel is a handle around a file descriptor; libibverbs' functions on it are thread safe.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner goes; every completion queue on the channel held an Arc of this.
        let returned = unsafe { ibv_destroy_comp_channel(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with(&self.context);
        }
    }
}

impl Context {
    /// Creates a completion channel, on which completion queues report that they have entries.
    ///
    /// # Errors
    /// Fails when the process has no file descriptor left.
    ///
    /// # References
    /// [`ibv_create_comp_channel(3)`](https://man7.org/linux/man-pages/man3/ibv_create_comp_channel.3.html)
    pub fn create_comp_channel(&self) -> Result<CompletionChannel> {
        CompletionChannel::create(self.clone())
    }
}

impl CompletionChannel {
    fn create(context: Context) -> Result<Self> {
        let raw = non_null(
            "ibv_create_comp_channel",
            || context.device_name().into(),
            || {
                // SAFETY: the context is open.
                unsafe { ibv_create_comp_channel(context.as_raw()) }
            },
        )?;
        let channel = Self(Arc::new(Inner { raw, context }));
        channel.set_non_blocking()?;
        Ok(channel)
    }

    fn set_non_blocking(&self) -> Result<()> {
        let fd = self.as_fd().as_raw_fd();
        let what = || "completion channel".to_owned();
        // SAFETY: plain system calls on a descriptor that the channel owns.
        let flags = not_negative("fcntl", what, unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
        // SAFETY: as above.
        not_negative("fcntl", what, unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
        Ok(())
    }

    /// The open device that the channel belongs to.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Takes an event that is there already: which completion queue has entries.
    ///
    /// # Errors
    /// Fails when the device is gone.
    pub fn try_get(&self) -> Result<Option<CqId>> {
        let mut cq = ptr::null_mut();
        let mut cq_context = ptr::null_mut();
        // SAFETY: the channel is alive and both pointers are valid for writing.
        let returned = unsafe { ibv_get_cq_event(self.0.raw.as_ptr(), &raw mut cq, &raw mut cq_context) };
        if returned != 0 {
            let errno = Errno::last();
            return match errno.0 {
                libc::EAGAIN | libc::EINTR => Ok(None),
                _ => Err(Error::of_verb("ibv_get_cq_event", errno, self.0.context.device_name().to_owned())),
            };
        }
        // The library waits with the destruction of a queue until its events are acknowledged, so `cq` is alive here.
        // SAFETY: the event was just taken from this queue and is acknowledged once.
        unsafe { ibv_ack_cq_events(cq, 1) };
        Ok(Some(CqId::from_context(cq_context)))
    }

    /// Sleeps until a completion queue reports, at most for `timeout` (for ever when `None`); `Ok(None)` when the time is over.
    ///
    /// # Errors
    /// Fails when the device is gone.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqId>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.wait_readable(left)?;
            if let Some(id) = self.try_get()? {
                return Ok(Some(id));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
        }
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<()> {
        let mut fd = libc::pollfd { fd: self.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: one valid pollfd, a valid or null time, no signal mask.
        let returned = unsafe { libc::ppoll(&raw mut fd, 1, time, ptr::null()) };
        match not_negative("poll", || "completion channel".into(), returned) {
            Err(error) if error.errno() != Some(Errno(libc::EINTR)) => Err(error),
            _ => Ok(()),
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open while the channel lives, which the borrow ensures.
        unsafe { BorrowedFd::borrow_raw((*self.0.raw.as_ptr()).fd) }
    }
}

impl AsRaw for CompletionChannel {
    type Raw = ibv_comp_channel;

    fn as_raw(&self) -> *mut ibv_comp_channel {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("device", &self.0.context.device_name()).finish()
    }
}
