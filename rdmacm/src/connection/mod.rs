//! Established connections. The active and the passive side use this module.

mod connected_id;
pub(crate) mod device_check;

use std::os::fd::{AsFd, BorrowedFd};
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::Duration;

use ibverbs::{QueuePair, Rc, Reclaimed, Result, device::TransportType, event::EventType};

pub use self::connected_id::ConnectedId;
use crate::event::{CmEvent, EventChannel, IdKey};
use crate::id::path::path_accessors;
use crate::id::{Id, Path};
use crate::params::Ece;

/// A connected queue pair with its identifier, which reports when the connection ends. Dropping it
/// disconnects.
///
/// A disconnect by the peer is reported by the event
/// [`CmEventType::DISCONNECTED`](crate::CmEventType::DISCONNECTED), but not always by completions.
/// Call [`try_event`](Self::try_event) when nothing completes, or wait on the
/// [descriptor](AsFd).
///
/// On Soft-iWARP, what the active side sends before the passive side has accepted can stay
/// unnoticed until more data arrives. Post empty WRITEs (`wr::write(wr::Empty, …)`) from time to
/// time until the peer answers, as the crate `rdma-messenger` does.
///
/// The library guide lists [common mistakes](https://github.com/rdma-rs/rdma-rs/blob/main/docs/library.md#connection).
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, wr};
/// use rdmacm::{CmEventType, Connection};
/// # fn f(connection: &mut Connection, cq: &mut CompletionQueue) -> ibverbs::Result<()> {
/// let buf = connection.qp().pd().buf(64)?;
/// connection.qp_mut().post_send(wr::send(buf))?;
/// while !connection.is_disconnected() {
///     for completion in cq.poll()? {
///         connection.qp_mut().retire(completion)?.check()?;
///     }
///     if let Some(event) = connection.try_event()? {
///         println!("{}: {}", connection.peer_addr(), event.event_type);
///     }
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_connect")]
#[doc(alias = "rdma_disconnect")]
#[derive(Debug)]
#[must_use = "dropping a connection disconnects it"]
pub struct Connection {
    // Drop order: the queue pair before its identifier. Destroying a connected identifier
    // disconnects.
    qp: QueuePair<Rc>,
    id: ConnectedId,
}

path_accessors!(
    Connection,
    id.path,
    "Returns the name of the connection's device.",
    "Returns the local address."
);

impl Connection {
    pub(crate) fn new(qp: QueuePair<Rc>, cm_id: Id, path: Path, private_data: Vec<u8>) -> Self {
        Self {
            qp,
            id: ConnectedId::new(cm_id, path, private_data),
        }
    }

    /// Returns the queue pair.
    #[inline]
    pub fn qp(&self) -> &QueuePair<Rc> {
        &self.qp
    }

    /// Returns the queue pair, to post requests and to retire completions.
    ///
    /// If a [scope](QueuePair::scope) has [destroyed](QueuePair::is_destroyed) the queue pair, drop
    /// or [close](Self::close) the connection, so that the peer learns that it has ended.
    ///
    /// # Example
    /// A slice is sent without a copy:
    /// ```no_run
    /// use std::time::Duration;
    /// use ibverbs::{CompletionQueue, wr};
    /// use rdmacm::Connection;
    /// # fn f(connection: &mut Connection, cq: &mut CompletionQueue) -> ibverbs::Result<()> {
    /// let message = vec![7; 1 << 20];
    /// connection.qp_mut().scope(|scope| {
    ///     let message = scope.lend(&message)?;
    ///     scope.post_send(wr::send(message))?;
    ///     scope.wait(cq, Duration::from_secs(5), |_| ())
    /// })
    /// # }
    /// ```
    #[inline]
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        &mut self.qp
    }

    /// Returns the private data that the peer sent with its request or acceptance. On InfiniBand
    /// and RoCE it is padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        self.id.private_data()
    }

    /// Returns `true` if this side has disconnected, or has received the event of the peer's
    /// disconnect.
    pub fn is_disconnected(&self) -> bool {
        self.id.is_disconnected()
    }

    /// Returns the options that the peer's driver sent in the handshake; all zeros if there were
    /// none.
    ///
    /// # Errors
    /// Fails if librdmacm does not support it.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Ece> {
        self.id.remote_ece()
    }

    /// Returns the key that an [`EventChannel`] returns for this connection.
    pub fn key(&self) -> IdKey {
        self.id.key()
    }

    /// Moves the connection to another [`EventChannel`], together with its unread events.
    ///
    /// # Errors
    /// Fails if the device was removed. The connection then stays on its channel.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        self.id.migrate(to)
    }

    /// Forwards an event of the queue pair to the connection manager: see [`ConnectedId::notify`].
    ///
    /// # Errors
    /// Same as [`ConnectedId::notify`].
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: EventType) -> Result<()> {
        self.id.notify(event)
    }

    /// Returns the next event, if there is one. After
    /// [`CmEventType::DISCONNECTED`](crate::CmEventType::DISCONNECTED) the queue pair flushes its
    /// requests as far as its driver supports that. [`close`](Self::close) returns the buffers of
    /// requests that never complete.
    ///
    /// # Errors
    /// Same as [`ConnectedId::try_event`].
    #[doc(alias = "rdma_get_cm_event")]
    pub fn try_event(&mut self) -> Result<Option<CmEvent>> {
        self.stop_if_disconnected(ConnectedId::try_event)
    }

    /// Reads events, and stops the queue pair if they end the connection.
    fn stop_if_disconnected<R>(&mut self, read: impl FnOnce(&mut ConnectedId) -> R) -> R {
        let was_disconnected = self.id.is_disconnected();
        let outcome = read(&mut self.id);
        if self.id.is_disconnected() && !was_disconnected {
            // Soft-RoCE does not stop the queue pair otherwise. If it fails, nothing else can be
            // done.
            let _ = self.stop();
        }
        outcome
    }

    /// Waits for an event, at most for `timeout` (forever if `None`). Returns `Ok(None)` on
    /// timeout.
    ///
    /// # Errors
    /// Same as [`try_event`](Self::try_event).
    ///
    /// # Example
    /// ```no_run
    /// use rdmacm::Connection;
    /// use std::time::Duration;
    /// # fn f(connection: &mut Connection) -> ibverbs::Result<()> {
    /// if let Some(event) = connection.wait_event(Some(Duration::from_secs(60)))? {
    ///     println!("{} from {}", event.event_type, connection.peer_addr());
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait_event(&mut self, timeout: Option<Duration>) -> Result<Option<CmEvent>> {
        let channel = self.id.channel().clone();
        channel.wait_for(timeout, || self.try_event())
    }

    /// Returns the channel that delivers the events of the connection.
    pub fn channel(&self) -> &EventChannel {
        self.id.channel()
    }

    /// Awaits an event. Needs a tokio runtime with I/O enabled.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no event.
    ///
    /// # Errors
    /// Same as [`ConnectedId::event`].
    #[doc(alias = "rdma_get_cm_event")]
    #[cfg(feature = "tokio")]
    pub async fn event(&mut self) -> Result<CmEvent> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Polls for an event, for types that are polled. Wakes the task of the last call when there
    /// may be one. The first call binds the connection to the current runtime.
    ///
    /// # Errors
    /// Same as [`ConnectedId::event`].
    ///
    /// # Example
    /// ```no_run
    /// use rdmacm::Connection;
    /// use std::pin::Pin;
    /// use std::task::{Context, Poll};
    /// struct Disconnected(Connection);
    /// impl Future for Disconnected {
    ///     type Output = ibverbs::Result<()>;
    ///     fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
    ///         while !self.0.is_disconnected() {
    ///             std::task::ready!(self.0.poll_event(cx))?;
    ///         }
    ///         Poll::Ready(Ok(()))
    ///     }
    /// }
    /// ```
    #[doc(alias = "rdma_get_cm_event")]
    #[cfg(feature = "tokio")]
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent>> {
        self.stop_if_disconnected(|id| id.poll_event(cx))
    }

    /// Ends the connection. Requests not yet acknowledged by the peer are lost: wait for their
    /// completions first.
    ///
    /// Both sides receive the event
    /// [`CmEventType::DISCONNECTED`](crate::CmEventType::DISCONNECTED). A second call has no
    /// effect.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&mut self) -> Result<()> {
        if self.is_disconnected() {
            return Ok(());
        }
        let stopped = self.stop();
        self.id.disconnect()?;
        stopped
    }

    /// Moves the queue pair to the error state, unless a scope has destroyed it. On iWARP the
    /// kernel does that.
    fn stop(&mut self) -> Result<()> {
        if self.transport() == TransportType::IWARP || self.qp.is_destroyed() {
            Ok(())
        } else {
            self.qp.to_error()
        }
    }

    /// Disconnects, destroys the queue pair, and returns the buffers of requests that never
    /// completed.
    ///
    /// # Errors
    /// Same as [`QueuePair::destroy`].
    #[doc(alias = "rdma_disconnect")]
    pub fn close(mut self) -> Result<Reclaimed> {
        // If disconnecting fails, destroying the queue pair and the identifier ends the connection.
        let _ = self.disconnect();
        let Self { qp, id } = self;
        let reclaimed = qp.destroy();
        drop(id);
        reclaimed
    }
}

impl AsFd for Connection {
    /// Readable if there is an event. On a shared channel: if there is an event of any identifier.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}
