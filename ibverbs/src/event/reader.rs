//! Reading the asynchronous events of a context.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use rdma_sys::{ibv_ack_async_event, ibv_async_event, ibv_get_async_event};

use super::types::{AsyncEvent, EventType};
use crate::device::{Avoided, Context};
use crate::error::{Errno, Result, call_failed};
use crate::fd;
use crate::raw::AsRaw;

/// The asynchronous events of an open device: port state changes, failed queues, limits reached.
///
/// Each open device has one event queue. Clones, and further calls of [`Context::async_events`],
/// are handles to the same queue, and each event is returned to only one reader. If the device is
/// [opened](crate::Device::open) twice, port events go to both contexts, and queue events to the
/// context of the queue.
///
/// An event is copied and acknowledged when it is read, so destroying an object never waits for an
/// unhandled event. An event can be about an object that was destroyed after the event was read.
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
#[doc(alias = "ibv_get_async_event")]
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    context: Context,
}

impl Context {
    /// Returns the asynchronous events of this open device and makes reading them non-blocking.
    ///
    /// Events since the device was opened are queued. After this call, a raw `ibv_get_async_event`
    /// on the context returns `EAGAIN` if there is no event.
    ///
    /// # Errors
    /// Fails if the context has no descriptor for events.
    #[doc(alias = "ibv_get_async_event")]
    pub fn async_events(&self) -> Result<AsyncEvents> {
        let events = AsyncEvents {
            context: self.clone(),
        };
        fd::set_non_blocking(events.as_fd(), "asynchronous events")?;
        Ok(events)
    }
}

impl AsyncEvents {
    /// Returns the open device of the events.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Reads an event without waiting. Returns `None` if there is none.
    ///
    /// # Errors
    /// Fails if the device has been removed.
    #[doc(alias = "ibv_get_async_event")]
    pub fn try_next(&self) -> Result<Option<AsyncEvent>> {
        let mut raw = ibv_async_event::default();
        let returned = if self.context.avoids(Avoided::EVENTS) {
            read_event(self.as_fd(), &mut raw)
        } else {
            // SAFETY: the context is open and the structure is writable. Several threads may read
            // events; each event is returned to one of them.
            unsafe { ibv_get_async_event(self.context.as_raw(), &raw mut raw) }
        };
        if returned != 0 {
            let errno = Errno::last();
            return match errno.0 {
                libc::EAGAIN | libc::EINTR => Ok(None),
                _ => Err(call_failed(
                    "ibv_get_async_event",
                    errno,
                    self.context.device_name().to_owned(),
                )),
            };
        }
        // ibv_destroy_* waits until events that were read, on any thread, are acknowledged, and
        // removes unread ones. So the object is alive until the acknowledgement below. Nothing
        // before it can fail or panic.
        // SAFETY: the event was just read and is not acknowledged yet.
        let event = unsafe { AsyncEvent::from_raw(&raw) };
        // SAFETY: each event is acknowledged once, and its object is not accessed afterwards.
        unsafe { ibv_ack_async_event(&raw mut raw) };
        Ok(Some(event))
    }

    /// Waits for an event, for at most `timeout` (without limit if `None`). Returns `Ok(None)` if
    /// the timeout expires.
    ///
    /// # Errors
    /// Fails if the device has been removed.
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        fd::wait_readable(self.as_fd(), "asynchronous events", timeout, || {
            self.try_next()
        })
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context, which the borrow ensures. It is
        // never -1: creating an AsyncEvents sets flags on it, which would have failed.
        unsafe { BorrowedFd::borrow_raw((*self.context.as_raw()).async_fd) }
    }
}

/// An event, as the kernel writes it (`struct ib_uverbs_async_event_desc`).
#[repr(C)]
#[derive(Default)]
struct Record {
    element: u64,
    event_type: u32,
    reserved: u32,
}

/// Reads an event as `ibv_get_async_event` does (libibverbs/device.c), except that the provider
/// does not see it. Returns -1 and sets `errno` on failure.
fn read_event(fd: BorrowedFd<'_>, event: &mut ibv_async_event) -> i32 {
    let mut record = Record::default();
    let size = size_of_val(&record);
    // SAFETY: the structure is writable, and any bytes are a value of it.
    let len = unsafe { libc::read(fd.as_raw_fd(), (&raw mut record).cast(), size) };
    if usize::try_from(len) != Ok(size) {
        return -1;
    }
    event.event_type = record.event_type;
    if EventType(record.event_type).has_object() {
        // The address that libibverbs gave the kernel when it created the object. All members of
        // the union but the port number are addresses.
        let object = usize::try_from(record.element).unwrap_or(0);
        event.element.qp = ptr::with_exposed_provenance_mut(object);
    } else {
        event.element.port_num = i32::try_from(record.element).unwrap_or(i32::MAX);
    }
    0
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::FromRawFd;

    use super::*;
    use crate::event::EventType;

    #[test]
    fn records_of_the_kernel_are_read_like_libibverbs_does() {
        let mut ends = [0; 2];
        // SAFETY: the array has two descriptors, and each has one owner.
        let (from, mut to) = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK), 0);
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        let mut read = |event_type: EventType, element: u64| {
            let mut bytes = element.to_ne_bytes().to_vec();
            bytes.extend([event_type.0.to_ne_bytes(), [0; 4]].concat());
            to.write_all(&bytes).expect("room in the pipe");
            let mut event = ibv_async_event::default();
            assert_eq!(read_event(from.as_fd(), &mut event), 0);
            assert_eq!(event.event_type, event_type.0);
            event.element
        };
        // SAFETY: the member is the one that was written.
        unsafe {
            for number in 0..=20 {
                let event_type = EventType(number);
                let element = read(event_type, 2);
                if event_type.has_object() {
                    assert_eq!(element.srq.addr(), 2, "{event_type}");
                } else {
                    assert_eq!(element.port_num, 2, "{event_type}");
                }
            }
            assert_eq!(read(EventType(4711), 77).port_num, 77);
        }
        assert!(EventType::SRQ_ERR.has_object() && !EventType::PORT_ERR.has_object());
        assert_eq!(
            read_event(from.as_fd(), &mut ibv_async_event::default()),
            -1
        );
        assert_eq!(Errno::last().0, libc::EAGAIN);
    }
}
