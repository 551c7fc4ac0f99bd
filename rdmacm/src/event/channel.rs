//! Event channels: where events arrive, and whose they are.

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
use crate::wait::{Deadline, Descriptor, sleep, sleep_any};

/// How often who waits for one identifier of a shared channel looks whether somebody else has taken
/// its event off the channel.
const LOOK: Duration = Duration::from_millis(10);

/// A place where the events of many connections, listeners and memberships arrive: one descriptor,
/// one wait.
///
/// Each of these has a channel of its own to begin with.
/// [`Connection::migrate`](crate::Connection::migrate) and its like move it here;
/// [`ListenOptions::channel`](crate::ListenOptions::channel) has a listener begin here. The channel
/// says whose events are there; the one concerned gives them, as before, by its `check_event` or
/// `try_accept`. An identifier keeps its channel alive, wherever that was made.
///
/// # Example
/// A server of any number of clients that sleeps in one place:
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
    /// Of channels that can be shared.
    waker: Option<Waker>,
    raw: Arc<Channel>,
    desk: Mutex<EventDispatcher>,
}

impl EventChannel {
    /// A channel for many.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`: `/dev/infiniband/rdma_cm` is not there, or not for this user; `EMFILE`:
    /// no file descriptor left (it takes three).
    ///
    /// # References
    /// [`rdma_create_event_channel(3)`](https://man7.org/linux/man-pages/man3/rdma_create_event_channel.3.html)
    pub fn create() -> Result<Self> {
        let raw = Arc::new(Channel::create()?);
        let waker = Some(Waker::new(&raw)?);
        Ok(Self(Arc::new(Inner {
            waker,
            raw,
            desk: Mutex::default(),
        })))
    }

    /// A channel for one.
    pub(crate) fn private() -> Result<Self> {
        Ok(Self(Arc::new(Inner {
            waker: None,
            raw: Arc::new(Channel::create()?),
            desk: Mutex::default(),
        })))
    }

    /// Whose event is there, if one is; never blocks. The same one is told again as long as it has
    /// events that it was not asked for, the others in between.
    ///
    /// # Errors
    /// Fails when the system fails.
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn try_next(&self) -> Result<Option<IdKey>> {
        let mut desk = self.desk();
        self.0.collect(&mut desk, 0)?;
        let next = desk.next();
        if next.is_none() {
            self.0.waker.iter().for_each(Waker::silence);
        }
        Ok(next)
    }

    /// Waits until an event is there, at most for `timeout` (for ever when `None`), and says whose
    /// it is; `Ok(None)` when the time is over.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
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

    /// Awaits an event on a tokio runtime with I/O enabled, and says whose it is: one task at a
    /// time. A dropped future loses none.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next); `EEXIST` when another task awaits it.
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    #[cfg(feature = "tokio")]
    pub async fn next(&self) -> Result<IdKey> {
        let readable = Readable::new(self.descriptor())?;
        readable.take(|| self.try_next()).await
    }

    /// Whether it can have several identifiers.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.waker.is_some()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn raw(&self) -> &Arc<Channel> {
        &self.0.raw
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        Arc::clone(&self.0) as Descriptor
    }

    /// Makes a box for the identifier at this address.
    pub(crate) fn register(&self, subject: usize, key: IdKey) {
        self.desk().register(subject, key);
    }

    /// The key of the box that the identifier at this address has.
    pub(crate) fn key(&self, subject: usize) -> Option<IdKey> {
        self.desk().key(subject)
    }

    /// Takes the box away, and gives what was in it.
    pub(crate) fn unregister(&self, subject: usize) -> VecDeque<Event> {
        self.desk().unregister(subject)
    }

    /// Puts events into a box that came from elsewhere, before those that are in it; and looks for
    /// what the kernel has moved with them, for which it wakes nobody who sleeps on the channel
    /// already.
    pub(crate) fn forward(&self, subject: usize, earlier: VecDeque<Event>) -> Result<()> {
        let mut desk = self.desk();
        desk.forward(subject, earlier);
        match &self.0.waker {
            Some(waker) => {
                waker.ring();
                self.0.collect(&mut desk, subject)
            }
            None => Ok(()),
        }
    }

    /// Takes an event of this identifier that is there already.
    pub(crate) fn try_take(&self, subject: usize) -> Result<Option<Event>> {
        let mut desk = self.desk();
        if let Some(event) = desk.take(subject) {
            return Ok(Some(event));
        }
        self.0.collect(&mut desk, subject)?;
        Ok(desk.take(subject))
    }

    /// Waits for what one identifier looks for, at most for `timeout` (for ever when `None`).
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if deadline.has_passed() {
                return Ok(None);
            }
            self.rest(deadline)?;
        }
    }

    /// Watches it on tokio, for one identifier.
    #[cfg(feature = "tokio")]
    pub(crate) fn watch(&self) -> Result<Readable> {
        if self.is_shared() {
            let what =
                "event channel: it is for many identifiers, and one of them was to be awaited";
            return Err(
                Error::new(ErrorKind::InvalidInput, "epoll_ctl", what).with_hint(
                    "await the channel itself, `EventChannel::next`, which says whose event it is",
                ),
            );
        }
        Readable::new(self.descriptor())
    }

    /// Sleeps until there may be something for one identifier, or until the deadline; a signal ends
    /// it early.
    pub(crate) fn rest(&self, deadline: Deadline) -> Result<()> {
        sleep(self.0.raw.as_fd(), self.one_sleep(deadline))
    }

    /// The same, or until something else is readable.
    pub(crate) fn rest_or(&self, other: BorrowedFd<'_>, deadline: Deadline) -> Result<()> {
        sleep_any([other, self.0.raw.as_fd()], self.one_sleep(deadline))
    }

    fn one_sleep(&self, deadline: Deadline) -> Deadline {
        if self.is_shared() {
            deadline.capped(LOOK)
        } else {
            deadline
        }
    }

    fn desk(&self) -> MutexGuard<'_, EventDispatcher> {
        self.0.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes off the channel what is there. Without a waker only up to the first event of
    /// `subject`: the others stay, so that the descriptor tells of them.
    fn collect(&self, desk: &mut EventDispatcher, subject: usize) -> Result<()> {
        while let Some(event) = Event::take_from(&self.raw)? {
            let whose = event.subject();
            desk.deliver(event);
            match &self.waker {
                Some(waker) => waker.ring(),
                None if whose == subject => break,
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
    /// Readable when [`try_next`](Self::try_next) has something to say; ask it until it has not.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
