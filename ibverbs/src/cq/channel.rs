//! Completion channels: sleeping until a completion queue has entries.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_create_comp_channel, ibv_destroy_comp_channel,
    ibv_get_cq_event,
};

use super::id::CqId;
use crate::convert::non_null;
use crate::device::Context;
use crate::error::{Errno, Result, call_failed};
use crate::fd;
use crate::raw::AsRaw;

/// What errors of waiting are about.
const WHAT: &str = "completion channel";

/// A channel on which completion queues report, once each time they were armed, that they have new
/// entries.
///
/// Cloning it is cheap, and any number of completion queues can report on it: [`wait`](Self::wait)
/// says which one did.
///
/// **Arm before the first post**, and again after each event *before* polling what it announced: an
/// entry that came before the queue was armed gives no event, and who then waits, waits for ever.
///
/// # Example
/// ```no_run
/// # use ibverbs::{CqOptions, Error, QueuePair, Rc};
/// # fn f(qp: &mut QueuePair<Rc>, context: &ibverbs::Context) -> Result<(), Error> {
/// let channel = context.create_comp_channel()?;
/// let mut cq = context.create_cq(CqOptions {
///     channel: Some(&channel),
///     ..CqOptions::default()
/// })?;
/// cq.arm(false)?; // and now post
/// while channel.wait(None)? == Some(cq.id()) {
///     cq.arm(false)?;
///     loop {
///         let completions = cq.poll()?;
///         if completions.is_empty() {
///             break;
///         }
///         for completion in completions {
///             qp.retire(completion)?.ok()?;
///         }
///     }
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_get_cq_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
#[derive(Clone)]
pub struct CompletionChannel(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_comp_channel>,
    context: Context,
}

// SAFETY: a channel is a handle around a file descriptor; libibverbs' functions on it are thread
// safe.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner goes; every completion queue on the channel held an Arc of this.
        let returned = unsafe { ibv_destroy_comp_channel(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with_parent(&self.context);
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
        fd::set_non_blocking(channel.as_fd(), WHAT)?;
        Ok(channel)
    }

    /// The open device that the channel belongs to.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Takes an event that is there already: which completion queue has entries.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`ibv_get_cq_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
    pub fn try_get(&self) -> Result<Option<CqId>> {
        let mut cq = ptr::null_mut();
        let mut cq_context = ptr::null_mut();
        // SAFETY: the channel is alive and both pointers are valid for writing.
        let returned =
            unsafe { ibv_get_cq_event(self.0.raw.as_ptr(), &raw mut cq, &raw mut cq_context) };
        if returned != 0 {
            let errno = Errno::last();
            return match errno.0 {
                libc::EAGAIN | libc::EINTR => Ok(None),
                _ => Err(call_failed(
                    "ibv_get_cq_event",
                    errno,
                    self.0.context.device_name().to_owned(),
                )),
            };
        }
        // The library waits with the destruction of a queue until its events are acknowledged, so
        // `cq` is alive here. SAFETY: the event was just taken from this queue and is
        // acknowledged once.
        unsafe { ibv_ack_cq_events(cq, 1) };
        Ok(Some(CqId::from_context(cq_context)))
    }

    /// Sleeps until a completion queue reports, at most for `timeout` (for ever when `None`);
    /// `Ok(None)` when the time is over.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`ibv_get_cq_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqId>> {
        fd::wait_readable(self.as_fd(), WHAT, timeout, || self.try_get())
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
        f.debug_struct("CompletionChannel")
            .field("device", &self.0.context.device_name())
            .finish()
    }
}
