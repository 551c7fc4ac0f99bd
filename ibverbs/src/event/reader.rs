//! Where a context's asynchronous events come out.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rdma_sys::{ibv_ack_async_event, ibv_async_event, ibv_get_async_event};

use super::types::AsyncEvent;
use crate::device::Context;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::raw::AsRaw;
use crate::readable;

/// The asynchronous events of an open device: ports going up and down, queues that broke, limits
/// that were reached.
///
/// There is one source of events for each opening of a device. Cloning this, or asking the context
/// again, gives another handle to the same source, and each event goes to one of those that take:
/// read them in one place. A second [opening](crate::Device::open) has events of its own: those of
/// ports come to both, those of a queue to the one that it was made on.
///
/// An event is copied and acknowledged as it is taken, so destroying an object never waits for a
/// program that has yet to handle its events; an event that was taken can be about an object that
/// is gone.
///
/// # Example
/// ```no_run
/// use ibverbs::event::{EventSource, EventType};
/// use std::time::Duration;
///
/// let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let events = context.async_events()?;
/// while let Some(event) = events.wait(Some(Duration::from_secs(1)))? {
///     match (event.event_type, event.source) {
///         (EventType::PORT_ERR, EventSource::Port(port)) => println!("port {port} is down"),
///         _ => println!("{event}"),
///     }
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_get_async_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    context: Context,
}

impl Context {
    /// The asynchronous events of this opening of the device, from now on taken without blocking.
    ///
    /// Events that happened since the device was opened wait there. The descriptor stays
    /// non-blocking: a raw `ibv_get_async_event` on the context returns EAGAIN when there is
    /// nothing.
    ///
    /// # Errors
    /// Fails when the context has no descriptor for events.
    ///
    /// # References
    /// [`ibv_get_async_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
    pub fn async_events(&self) -> Result<AsyncEvents> {
        let events = AsyncEvents {
            context: self.clone(),
        };
        readable::set_non_blocking(events.as_fd(), "asynchronous events")?;
        Ok(events)
    }
}

impl AsyncEvents {
    /// The open device that the events are of.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Takes an event that is there already.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`ibv_get_async_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
    pub fn try_get(&self) -> Result<Option<AsyncEvent>> {
        let mut raw = ibv_async_event::default();
        // SAFETY: the context is open and the structure is valid for writing. Any thread may take
        // events: each is read at once, by one of them.
        let returned = unsafe { ibv_get_async_event(self.context.as_raw(), &raw mut raw) };
        if returned != 0 {
            let errno = Errno::last();
            return match errno.0 {
                libc::EAGAIN | libc::EINTR => Ok(None),
                _ => Err(Error::of_verb(
                    "ibv_get_async_event",
                    errno,
                    self.context.device_name().to_owned(),
                )),
            };
        }
        // From here to the acknowledgement the object is alive: destroying it waits for the events
        // that were read, in another thread too, and takes those away that were not.
        // Nothing in between can fail or panic. SAFETY: just taken, and not yet
        // acknowledged.
        let event = unsafe { AsyncEvent::copy(&raw) };
        // SAFETY: taken once, acknowledged once; nothing of its object is touched after.
        unsafe { ibv_ack_async_event(&raw mut raw) };
        Ok(Some(event))
    }

    /// Sleeps until an event comes, at most for `timeout` (for ever when `None`); `Ok(None)` when
    /// the time is over.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`ibv_get_async_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        readable::wait(self.as_fd(), "asynchronous events", timeout, || {
            self.try_get()
        })
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open while the context is, which the borrow ensures. A context
        // without one (-1) does not come here: no AsyncEvents is made of it, as setting its
        // flags fails.
        unsafe { BorrowedFd::borrow_raw((*self.context.as_raw()).async_fd) }
    }
}
