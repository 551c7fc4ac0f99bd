//! Completion channels: waiting until a completion queue has new entries.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::raw::{AsRaw, as_raw};

/// Detail in the errors of calls on the descriptor.
const DETAIL: &str = "completion channel";

/// A channel for the events of completion queues. An armed queue adds one event to its channel when
/// it gets a new entry.
///
/// Any number of completion queues can share a channel: [`wait`](Self::wait) returns the
/// [`CqId`] of the queue. Clones are handles to the same channel, and each event is returned to
/// only one reader.
///
/// **Arm a queue before the first post**, and again after each event *before* polling. An entry
/// that was added before the queue was armed causes no event, and waiting for one can then block
/// forever.
///
/// # Example
/// This example retires completions as they arrive:
/// ```no_run
/// # use ibverbs::{CqOptions, Error, QueuePair, Rc};
/// # fn f(qp: &mut QueuePair<Rc>, context: &ibverbs::Context) -> Result<(), Error> {
/// let channel = context.create_comp_channel()?;
/// let mut cq = context.create_cq(CqOptions::new().channel(&channel))?;
/// cq.arm(false)?; // before posting
/// while channel.wait(None)? == Some(cq.id()) {
///     cq.arm(false)?;
///     loop {
///         let completions = cq.poll()?;
///         if completions.is_empty() {
///             break;
///         }
///         for completion in completions {
///             qp.retire(completion)?.check()?;
///         }
///     }
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_get_cq_event")]
#[derive(Clone)]
pub struct CompletionChannel(Arc<CreatedChannel>);

struct CreatedChannel {
    raw: NonNull<ibv_comp_channel>,
    context: Context,
    /// Providers count the events of a queue in it when they are read, and read the number when it
    /// is armed (`mlx5_cq_event` and `mlx5_arm_cq` in `providers/mlx5`), without a lock.
    events: Mutex<()>,
}

// SAFETY: a channel is a handle to a file descriptor and not bound to a thread. The functions of
// libibverbs on it are thread safe.
unsafe impl Send for CreatedChannel {}
// SAFETY: see `Send`.
unsafe impl Sync for CreatedChannel {}

impl Drop for CreatedChannel {
    fn drop(&mut self) {
        // SAFETY: this is the last owner: each completion queue on the channel holds an `Arc` of
        // this.
        let returned = unsafe { ibv_destroy_comp_channel(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with_parent(&self.context);
        }
    }
}

impl Context {
    /// Creates a completion channel.
    ///
    /// # Errors
    /// Fails if the process has too many open files.
    #[doc(alias = "ibv_create_comp_channel")]
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
        let channel = Self(Arc::new(CreatedChannel {
            raw,
            context,
            events: Mutex::default(),
        }));
        fd::set_non_blocking(channel.as_fd(), DETAIL)?;
        Ok(channel)
    }

    /// Returns the open device of the channel.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Excludes reading an event and arming a queue of the channel from each other.
    pub(crate) fn lock_events(&self) -> MutexGuard<'_, ()> {
        let locked = self.0.events.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads an event without waiting and returns the identity of its completion queue. Returns
    /// `None` if there is no event.
    ///
    /// # Errors
    /// Fails if the device has been removed.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn try_next(&self) -> Result<Option<CqId>> {
        let mut cq = ptr::null_mut();
        let mut cq_context = ptr::null_mut();
        let events = self.lock_events();
        // SAFETY: the channel is alive and both pointers are valid for writing. No thread arms the
        // queue of the event meanwhile.
        let returned =
            unsafe { ibv_get_cq_event(self.0.raw.as_ptr(), &raw mut cq, &raw mut cq_context) };
        let errno = Errno::last();
        drop(events);
        if returned != 0 {
            return match errno.0 {
                libc::EAGAIN | libc::EINTR => Ok(None),
                _ => Err(call_failed(
                    "ibv_get_cq_event",
                    errno,
                    self.0.context.device_name().to_owned(),
                )),
            };
        }
        // SAFETY: `ibv_destroy_cq` waits until the events that were read are acknowledged, so the
        // queue is alive. This event was just read and is acknowledged once.
        unsafe { ibv_ack_cq_events(cq, 1) };
        Ok(Some(CqId::from_context(cq_context)))
    }

    /// Waits for an event, for at most `timeout` (without limit if `None`), and returns the
    /// identity of its completion queue. Returns `Ok(None)` if the timeout expires.
    ///
    /// # Errors
    /// Fails if the device has been removed.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqId>> {
        fd::wait_readable(self.as_fd(), DETAIL, timeout, || self.try_next())
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which the borrow keeps alive.
        unsafe { BorrowedFd::borrow_raw((*self.0.raw.as_ptr()).fd) }
    }
}

as_raw!(CompletionChannel: ibv_comp_channel, 0.raw);

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel")
            .field("device", &self.0.context.device_name())
            .finish()
    }
}
