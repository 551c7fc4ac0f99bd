//! Event channels, which deliver the events of one or of many identifiers.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ibverbs::Result;
#[cfg(feature = "tokio")]
use ibverbs::{Error, ErrorKind};

use crate::event::{
    AnnouncingGuard, AnnouncingLock, Channel, Event, EventDispatcher, IdKey, Waker,
};
#[cfg(feature = "tokio")]
use crate::wait::Readable;
use crate::wait::{Descriptor, LazyDeadline, sleep};

/// Interval at which a thread waiting for one identifier of a shared channel checks whether another
/// thread has read its event.
const SHARED_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// An event channel shared by many connections, listeners and memberships, so that a program waits
/// for all of them on one descriptor.
///
/// Each of them starts on a channel of its own, unless
/// [`Resolver::channel`](crate::Resolver::channel),
/// [`ListenOptions::channel`](crate::ListenOptions::channel) or
/// [`ListenOptions::accept_on`](crate::ListenOptions::accept_on) name this one, which saves six
/// system calls for each connection. Move others here with
/// [`Connection::migrate`](crate::Connection::migrate) or the `migrate` method of their type. The
/// channel returns the key of an identifier that has an event; read the event with the
/// `try_event`, `try_request` or [`try_finish`](crate::InProgress::try_finish) of its owner. Every
/// identifier keeps its channel alive.
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
///     .accept_on(&channel)
///     .bind("0.0.0.0:7471".parse()?)?;
/// let mut clients = HashMap::new();
/// while let Some(key) = channel.wait(None)? {
///     if key == listener.key() {
///         let Some(request) = listener.try_request()? else {
///             continue;
///         };
///         let client = accept(request)?;
///         clients.insert(client.key(), client);
///     } else if let Some(client) = clients.get_mut(&key) {
///         while let Some(event) = client.try_event()? {
///             println!("{}: {}", client.peer_addr(), event.event_type);
///         }
///         if client.is_disconnected() {
///             clients.remove(&key);
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_create_event_channel")]
#[doc(alias = "rdma_migrate_id")]
#[derive(Clone, Debug)]
pub struct EventChannel(Arc<CreatedChannel>);

#[derive(Debug)]
struct CreatedChannel {
    raw: Arc<Channel>,
    /// Only shared channels have a waker.
    dispatcher: AnnouncingLock<EventDispatcher, Option<Waker>>,
}

impl EventChannel {
    /// Creates a channel that can be shared.
    ///
    /// # Errors
    /// `ENOENT` or `EACCES` if `/dev/infiniband/rdma_cm` is missing or not accessible to this user.
    /// `EMFILE` if the process has no free file descriptors; a channel uses three.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn create() -> Result<Self> {
        let raw = Arc::new(Channel::create()?);
        let waker = Some(Waker::new(&raw)?);
        Ok(Self::new(raw, waker))
    }

    /// Creates a channel for a single identifier.
    pub(crate) fn create_private() -> Result<Self> {
        Ok(Self::new(Arc::new(Channel::create()?), None))
    }

    fn new(raw: Arc<Channel>, waker: Option<Waker>) -> Self {
        let dispatcher = AnnouncingLock::new(EventDispatcher::default(), waker);
        Self(Arc::new(CreatedChannel { raw, dispatcher }))
    }

    /// Returns the key of an identifier that has an unread event, if there is one. Never blocks. A
    /// key is returned repeatedly, in turn with others, until all events of its identifier are
    /// read.
    ///
    /// # Errors
    /// Fails if reading the kernel's channel fails.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn try_next(&self) -> Result<Option<IdKey>> {
        let mut dispatcher = self.dispatcher();
        self.0.read_events(&mut dispatcher, |_| false)?;
        Ok(dispatcher.next())
    }

    /// Waits for an event, at most for `timeout` (forever if `None`), and returns the key of its
    /// identifier. Returns `Ok(None)` on timeout.
    ///
    /// # Errors
    /// Same as [`try_next`](Self::try_next).
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<IdKey>> {
        let mut deadline = LazyDeadline::after(timeout);
        loop {
            if let Some(key) = self.try_next()? {
                return Ok(Some(key));
            }
            if !deadline.sleep(|timeout| sleep(self.as_fd(), timeout))? {
                return Ok(None);
            }
        }
    }

    /// Awaits an event and returns the key of its identifier. Needs a tokio runtime with I/O
    /// enabled. Only one task can wait at a time.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no event.
    ///
    /// # Errors
    /// Same as [`try_next`](Self::try_next); also `EEXIST` if another task is waiting.
    #[doc(alias = "rdma_get_cm_event")]
    #[cfg(feature = "tokio")]
    pub async fn next(&self) -> Result<IdKey> {
        let readable = Readable::new(self.descriptor())?;
        readable.retry(|| self.try_next()).await
    }

    /// Returns `true` if the channel can have several identifiers: if [`create`](Self::create) has
    /// created it.
    pub fn is_shared(&self) -> bool {
        self.0.dispatcher.descriptor().is_some()
    }

    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the descriptor of the kernel's channel, for programs that wait for one identifier of
    /// a shared channel. It is readable while the kernel has events, but not if another thread has
    /// read them: look for events of the identifier again after some milliseconds.
    ///
    /// The [descriptor](AsFd) of a shared channel is also readable while events of any identifier
    /// are unread. For other channels both are the same.
    pub fn kernel_fd(&self) -> BorrowedFd<'_> {
        self.0.raw.as_fd()
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

    /// Hides an identifier while a thread makes a blocking call for it.
    pub(crate) fn hide(&self, id_addr: usize) {
        self.dispatcher().hide(id_addr);
    }

    /// Shows an identifier whose connect request was taken.
    pub(crate) fn show(&self, id_addr: usize) {
        self.dispatcher().show(id_addr);
    }

    /// Shows an identifier after its blocking call has returned. Its key is returned then even
    /// without an event.
    pub(crate) fn returned(&self, id_addr: usize, key: IdKey) {
        self.dispatcher().returned(id_addr, key);
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
        if self.is_shared() {
            self.0.read_events(&mut dispatcher, |_| false)
        } else {
            Ok(())
        }
    }

    /// Returns the next event of an identifier, if there is one.
    pub(crate) fn try_take(&self, id_addr: usize) -> Result<Option<Event>> {
        let mut dispatcher = self.dispatcher();
        let mut event = dispatcher.take(id_addr);
        if event.is_some() {
            return Ok(event);
        }
        // It stops at the first event of the identifier, and does not wake other threads for it.
        // The remaining events keep the descriptor readable.
        self.0.read_events(&mut dispatcher, |dispatcher| {
            event = dispatcher.take(id_addr);
            event.is_some()
        })?;
        Ok(event)
    }

    /// Calls a function while no thread reads events of a shared channel. On another channel no
    /// thread does, because the identifier has only one owner.
    pub(crate) fn without_readers<R>(&self, f: impl FnOnce() -> R) -> R {
        let _dispatcher = self.is_shared().then(|| self.dispatcher());
        f()
    }

    /// Calls `check` until it returns a value, at most for `timeout` (forever if `None`), sleeping
    /// until the identifier may have an event.
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut check: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut deadline = LazyDeadline::after(timeout);
        loop {
            if let Some(value) = check()? {
                return Ok(Some(value));
            }
            if !deadline.sleep(|timeout| self.sleep(timeout))? {
                return Ok(None);
            }
        }
    }

    /// Registers a channel that has a single identifier with tokio.
    #[cfg(feature = "tokio")]
    pub(crate) fn register_with_tokio(&self) -> Result<Readable> {
        self.check_private()?;
        Readable::new(self.descriptor())
    }

    /// Fails if the channel is shared: its descriptor can be registered with tokio only once.
    #[cfg(feature = "tokio")]
    pub(crate) fn check_private(&self) -> Result<()> {
        if self.is_shared() {
            let detail =
                "event channel: it is shared, so a single identifier on it cannot be awaited";
            return Err(
                Error::new(ErrorKind::InvalidInput, "epoll_ctl", detail).with_help(
                    "await `EventChannel::next`, which returns the key of the identifier that has an event",
                ),
            );
        }
        Ok(())
    }

    /// Sleeps until an identifier may have an event, at most for `timeout` (forever if `None`), or
    /// until a signal arrives.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> Result<()> {
        sleep(self.0.raw.as_fd(), self.sleep_timeout(timeout))
    }

    /// Returns after what time to look for events that another thread has read from a shared
    /// channel, at most `timeout`.
    fn sleep_timeout(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.is_shared() {
            let timeout = timeout.unwrap_or(SHARED_CHECK_INTERVAL);
            Some(timeout.min(SHARED_CHECK_INTERVAL))
        } else {
            timeout
        }
    }

    /// Locks the dispatcher. When it is unlocked, the threads that wait on a shared channel wake if
    /// there is an event.
    fn dispatcher(&self) -> AnnouncingGuard<'_, EventDispatcher, Option<Waker>> {
        self.0.dispatcher.lock()
    }
}

impl CreatedChannel {
    /// Reads events from the kernel until `is_done` returns `true` or no event is left.
    fn read_events(
        &self,
        dispatcher: &mut EventDispatcher,
        mut is_done: impl FnMut(&mut EventDispatcher) -> bool,
    ) -> Result<()> {
        while let Some(event) = Event::take_from(&self.raw)? {
            dispatcher.deliver(event);
            if is_done(dispatcher) {
                break;
            }
        }
        Ok(())
    }
}

impl AsFd for CreatedChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dispatcher
            .descriptor()
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
