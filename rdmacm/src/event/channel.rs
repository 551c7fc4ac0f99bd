//! Event channels, which deliver the events of one or of many identifiers.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ibverbs::Result;
#[cfg(feature = "tokio")]
use ibverbs::{Error, ErrorKind};

use crate::event::{Channel, Event, EventDispatcher, IdKey, Waker};
#[cfg(feature = "tokio")]
use crate::wait::Readable;
use crate::wait::{Deadline, Descriptor, sleep};

/// Interval at which a thread waiting for one identifier of a shared channel checks whether another
/// thread has read its event.
const SHARED_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// An event channel shared by many connections, listeners and memberships, so that a program waits
/// for all of them on one descriptor.
///
/// Each of them starts on a channel of its own. Move it here with
/// [`Connection::migrate`](crate::Connection::migrate) or the `migrate` method of its type. A
/// listener can start here with [`ListenOptions::channel`](crate::ListenOptions::channel). The
/// channel returns the key of an identifier that has an event; read the event with the
/// `check_event` or `try_accept` of its owner. Every identifier keeps its channel alive.
///
/// # Example
/// A server that waits for any number of clients in one place:
/// ```no_run
/// use rdmacm::{ConnectRequest, Connection, EventChannel, ListenOptions};
/// use std::collections::HashMap;
/// # fn accept(_: ConnectRequest) -> Result<Connection, ibverbs::Error> { unimplemented!() }
///
/// let channel = EventChannel::create()?;
/// let listener = ListenOptions::new()
///     .channel(&channel)
///     .bind("0.0.0.0:7471".parse()?)?;
/// let mut clients = HashMap::new();
/// while let Some(key) = channel.wait(None)? {
///     if key == listener.key() {
///         let Some(request) = listener.try_accept()? else {
///             continue;
///         };
///         let mut client = accept(request)?;
///         client.migrate(&channel)?;
///         clients.insert(client.key(), client);
///     } else if let Some(client) = clients.get_mut(&key) {
///         while let Some(event) = client.check_event()? {
///             println!("{}: {}", client.peer_addr(), event.event_type);
///         }
///         if client.is_disconnected() {
///             clients.remove(&key);
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_create_event_channel(3)`](https://man7.org/linux/man-pages/man3/rdma_create_event_channel.3.html),
/// [`rdma_migrate_id(3)`](https://man7.org/linux/man-pages/man3/rdma_migrate_id.3.html)
#[derive(Clone, Debug)]
pub struct EventChannel(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Present on shared channels only.
    waker: Option<Waker>,
    raw: Arc<Channel>,
    dispatcher: Mutex<EventDispatcher>,
}

impl EventChannel {
    /// Creates a channel that can be shared.
    ///
    /// # Errors
    /// `ENOENT` or `EACCES` if `/dev/infiniband/rdma_cm` is missing or not accessible to this user.
    /// `EMFILE` if the process has no free file descriptors; a channel uses three.
    ///
    /// # References
    /// [`rdma_create_event_channel(3)`](https://man7.org/linux/man-pages/man3/rdma_create_event_channel.3.html)
    pub fn create() -> Result<Self> {
        let raw = Arc::new(Channel::create()?);
        let waker = Some(Waker::new(&raw)?);
        Ok(Self(Arc::new(Inner {
            waker,
            raw,
            dispatcher: Mutex::default(),
        })))
    }

    /// Creates a channel for a single identifier.
    pub(crate) fn create_private() -> Result<Self> {
        Ok(Self(Arc::new(Inner {
            waker: None,
            raw: Arc::new(Channel::create()?),
            dispatcher: Mutex::default(),
        })))
    }

    /// Returns the key of an identifier that has an unread event, if there is one. Never blocks. A
    /// key is returned repeatedly, in turn with others, until all events of its identifier are
    /// read.
    ///
    /// # Errors
    /// Fails if reading the kernel's channel fails.
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn try_next(&self) -> Result<Option<IdKey>> {
        let mut dispatcher = self.dispatcher();
        self.0.read_events(&mut dispatcher, 0)?;
        let next = dispatcher.next();
        if next.is_none() {
            self.0.waker.iter().for_each(Waker::clear);
        }
        Ok(next)
    }

    /// Waits for an event, at most for `timeout` (forever if `None`), and returns the key of its
    /// identifier. Returns `Ok(None)` on timeout.
    ///
    /// # Errors
    /// Same as [`try_next`](Self::try_next).
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<IdKey>> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(key) = self.try_next()? {
                return Ok(Some(key));
            }
            if deadline.has_passed() {
                return Ok(None);
            }
            sleep(self.as_fd(), deadline)?;
        }
    }

    /// Awaits an event and returns the key of its identifier. Needs a tokio runtime with I/O
    /// enabled. Only one task can wait at a time. Dropping the future loses no event.
    ///
    /// # Errors
    /// Same as [`try_next`](Self::try_next); also `EEXIST` if another task is waiting.
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    #[cfg(feature = "tokio")]
    pub async fn next(&self) -> Result<IdKey> {
        let readable = Readable::new(self.descriptor())?;
        readable.retry(|| self.try_next()).await
    }

    /// Returns `true` if the channel can have several identifiers.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.waker.is_some()
    }

    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn raw(&self) -> &Arc<Channel> {
        &self.0.raw
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        Arc::clone(&self.0) as Descriptor
    }

    /// Creates an event queue for the identifier at this address.
    pub(crate) fn register(&self, id_addr: usize, key: IdKey) {
        self.dispatcher().register(id_addr, key);
    }

    /// Limits the number of connect requests of a listener that were read from the kernel but not
    /// accepted. Further requests are rejected.
    pub(crate) fn limit_requests(&self, id_addr: usize, max_requests: usize) {
        self.dispatcher().limit_requests(id_addr, max_requests);
    }

    /// Returns the key of the identifier at this address.
    pub(crate) fn key(&self, id_addr: usize) -> Option<IdKey> {
        self.dispatcher().key(id_addr)
    }

    /// Removes the queue of an identifier and returns its unread events.
    pub(crate) fn unregister(&self, id_addr: usize) -> VecDeque<Event> {
        self.dispatcher().unregister(id_addr)
    }

    /// Inserts events read from the identifier's previous channel before those already queued. Then
    /// reads the kernel's channel, because the kernel moves unread events without waking threads
    /// that already poll the new channel.
    pub(crate) fn prepend(&self, id_addr: usize, earlier: VecDeque<Event>) -> Result<()> {
        let mut dispatcher = self.dispatcher();
        dispatcher.prepend(id_addr, earlier);
        match &self.0.waker {
            Some(waker) => {
                waker.signal();
                self.0.read_events(&mut dispatcher, id_addr)
            }
            None => Ok(()),
        }
    }

    /// Returns the next event of an identifier, if there is one.
    pub(crate) fn try_take(&self, id_addr: usize) -> Result<Option<Event>> {
        let mut dispatcher = self.dispatcher();
        if let Some(event) = dispatcher.take(id_addr) {
            return Ok(Some(event));
        }
        self.0.read_events(&mut dispatcher, id_addr)?;
        Ok(dispatcher.take(id_addr))
    }

    /// Calls `check` until it returns a value, at most for `timeout` (forever if `None`), sleeping
    /// until the identifier may have an event.
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut check: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(value) = check()? {
                return Ok(Some(value));
            }
            if deadline.has_passed() {
                return Ok(None);
            }
            self.sleep(deadline)?;
        }
    }

    /// Registers a channel that has a single identifier with tokio.
    #[cfg(feature = "tokio")]
    pub(crate) fn register_with_tokio(&self) -> Result<Readable> {
        if self.is_shared() {
            let detail =
                "event channel: it is shared, so a single identifier on it cannot be awaited";
            return Err(
                Error::new(ErrorKind::InvalidInput, "epoll_ctl", detail).with_help(
                    "await `EventChannel::next`, which returns the key of the identifier that has an event",
                ),
            );
        }
        Readable::new(self.descriptor())
    }

    /// Sleeps until an identifier may have an event, until the deadline, or until a signal arrives.
    pub(crate) fn sleep(&self, deadline: Deadline) -> Result<()> {
        sleep(self.0.raw.as_fd(), self.sleep_deadline(deadline))
    }

    /// Returns when to look for events that another thread has read from a shared channel.
    pub(crate) fn sleep_deadline(&self, deadline: Deadline) -> Deadline {
        if self.is_shared() {
            deadline.capped(SHARED_CHECK_INTERVAL)
        } else {
            deadline
        }
    }

    fn dispatcher(&self) -> MutexGuard<'_, EventDispatcher> {
        self.0
            .dispatcher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Reads events from the kernel. On a channel that is not shared it stops at the first event of
    /// `id_addr`: the remaining events keep the descriptor readable.
    fn read_events(&self, dispatcher: &mut EventDispatcher, id_addr: usize) -> Result<()> {
        while let Some(event) = Event::take_from(&self.raw)? {
            let owner = event.id_addr();
            dispatcher.deliver(event);
            match &self.waker {
                Some(waker) => waker.signal(),
                None if owner == id_addr => break,
                None => {}
            }
        }
        Ok(())
    }
}

impl AsFd for Inner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker
            .as_ref()
            .map_or_else(|| self.raw.as_fd(), AsFd::as_fd)
    }
}

impl AsFd for EventChannel {
    /// Becomes readable if [`try_next`](Self::try_next) may return a key. Call it until it returns
    /// `None`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
