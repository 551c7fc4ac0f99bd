//! Established connections.

mod connected_id;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibverbs::{
    QueuePair, Rc, Reclaimed, Result,
    device::TransportType,
    event::EventType,
    scope::{Scope, ScopeResult},
};

pub use self::connected_id::ConnectedId;
use crate::event::{CmEvent, EventChannel, IdKey};
use crate::id::{Id, Path};
use crate::params::Ece;

/// A connected queue pair, and the identifier that tells when the connection ends. Dropping it
/// disconnects.
///
/// A peer that leaves shows as the event
/// [`CmEventType::DISCONNECTED`](crate::CmEventType::DISCONNECTED), and not always as completions:
/// look at [`check_event`](Self::check_event) when nothing completes, or wait on the
/// [descriptor](AsFd).
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
///         connection.qp_mut().retire(completion)?.ok()?;
///     }
///     if let Some(event) = connection.check_event()? {
///         println!("{}: {}", connection.peer_addr(), event.event_type);
///     }
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html),
/// [`rdma_disconnect(3)`](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
#[derive(Debug)]
#[must_use = "dropping a connection disconnects it"]
pub struct Connection {
    // Dropped in this order: the queue pair before its identifier. Destroying a connected
    // identifier disconnects.
    qp: QueuePair<Rc>,
    link: ConnectedId,
}

impl Connection {
    pub(crate) fn new(qp: QueuePair<Rc>, id: Id, path: Path, private_data: Vec<u8>) -> Self {
        Self {
            qp,
            link: ConnectedId::new(id, path, private_data),
        }
    }

    /// The queue pair.
    #[inline]
    pub fn qp(&self) -> &QueuePair<Rc> {
        &self.qp
    }

    /// The queue pair, to post to and to retire from.
    #[inline]
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        &mut self.qp
    }

    /// Lends borrowed memory to the connection's requests while a closure runs: see
    /// [`QueuePair::scope`]. The connection comes back if its queue pair lived; otherwise it
    /// has ended, and the buffers of requests that never completed come back.
    pub fn scope<'env, R>(
        self,
        run: impl for<'scope> FnOnce(&mut Scope<'scope, 'env, Rc>) -> R,
    ) -> (R, std::result::Result<Self, Reclaimed>) {
        let Self { qp, link } = self;
        let ScopeResult {
            value,
            qp,
            reclaimed,
        } = qp.scope(run);
        let connection = qp.map(|qp| Self { qp, link });
        (value, connection.ok_or(reclaimed))
    }

    /// What the peer gave along with its request or its acceptance. On InfiniBand and RoCE padded
    /// with zeros.
    pub fn private_data(&self) -> &[u8] {
        self.link.private_data()
    }

    /// The device that the connection runs over.
    pub fn device_name(&self) -> &str {
        self.link.device_name()
    }

    /// The port of the device, from 1.
    pub fn port_num(&self) -> u8 {
        self.link.port_num()
    }

    /// The transport of the device.
    pub fn transport(&self) -> TransportType {
        self.link.transport()
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.link.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.link.peer_addr()
    }

    /// Whether this side has disconnected, or has seen that the peer did.
    pub fn is_disconnected(&self) -> bool {
        self.link.is_disconnected()
    }

    /// What the peer's driver offered in the handshake; all zeros when nothing.
    ///
    /// # Errors
    /// Fails when librdmacm is too old to know.
    ///
    /// # References
    /// [`rdma_get_remote_ece(3)`](https://man7.org/linux/man-pages/man3/rdma_get_remote_ece.3.html)
    pub fn remote_ece(&self) -> Result<Ece> {
        self.link.remote_ece()
    }

    /// What an [`EventChannel`] calls it.
    pub fn key(&self) -> IdKey {
        self.link.key()
    }

    /// Has the events arrive at another channel, those too that nobody has taken yet: see
    /// [`EventChannel`].
    ///
    /// # Errors
    /// Fails when the device is gone; the connection stays where it was.
    ///
    /// # References
    /// [`rdma_migrate_id(3)`](https://man7.org/linux/man-pages/man3/rdma_migrate_id.3.html)
    pub fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        self.link.migrate(to)
    }

    /// Tells the connection manager what the device said of the queue pair: see
    /// [`ConnectedId::notify`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`rdma_notify(3)`](https://man7.org/linux/man-pages/man3/rdma_notify.3.html)
    pub fn notify(&self, event: EventType) -> Result<()> {
        self.link.notify(event)
    }

    /// Takes an event that is there already. After
    /// [`CmEventType::DISCONNECTED`](crate::CmEventType::DISCONNECTED) the queue pair flushes what
    /// is in flight, as far as its driver does that; what never completes comes back from
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// As [`ConnectedId::check_event`].
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn check_event(&mut self) -> Result<Option<CmEvent>> {
        let was_over = self.link.is_disconnected();
        let outcome = self.link.check_event();
        if self.link.is_disconnected() && !was_over {
            // On Soft-RoCE nothing else would stop it. Nothing can be done if it fails.
            let _ = self.stop();
        }
        outcome
    }

    /// Waits for an event, at most for `timeout` (for ever when `None`); `Ok(None)` when the time
    /// is over.
    ///
    /// # Errors
    /// As [`check_event`](Self::check_event).
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
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn wait_event(&mut self, timeout: Option<Duration>) -> Result<Option<CmEvent>> {
        let channel = self.link.channel().clone();
        channel.wait_for(timeout, || self.check_event())
    }

    pub(crate) fn channel(&self) -> &EventChannel {
        self.link.channel()
    }

    /// Awaits an event on a tokio runtime with I/O enabled; a dropped future loses none.
    ///
    /// # Errors
    /// As [`ConnectedId::event`].
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    #[cfg(feature = "tokio")]
    pub async fn event(&mut self) -> Result<CmEvent> {
        let readable = self.link.channel().watch()?;
        readable.take(|| self.check_event()).await
    }

    /// Ends the connection. Requests that the peer has not acknowledged yet are lost: wait for
    /// their completions first.
    ///
    /// The peer, and this side too, get the event
    /// [`CmEventType::DISCONNECTED`](crate::CmEventType::DISCONNECTED). A second call does nothing.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`rdma_disconnect(3)`](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
    pub fn disconnect(&mut self) -> Result<()> {
        if self.is_disconnected() {
            return Ok(());
        }
        let stopped = self.stop();
        self.link.disconnect()?;
        stopped
    }

    /// Has the queue pair take no more; on iWARP the kernel does it.
    fn stop(&mut self) -> Result<()> {
        if self.link.transport() == TransportType::IWARP {
            Ok(())
        } else {
            self.qp.to_error()
        }
    }

    /// Disconnects, destroys the queue pair, and gives back the buffers of requests that never
    /// completed.
    ///
    /// # Errors
    /// As [`QueuePair::destroy`].
    ///
    /// # References
    /// [`rdma_disconnect(3)`](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
    pub fn close(mut self) -> Result<Reclaimed> {
        // A connection that cannot be ended politely ends with its queue pair and identifier.
        let _ = self.disconnect();
        let Self { qp, link } = self;
        let reclaimed = qp.destroy();
        drop(link);
        reclaimed
    }
}

impl AsFd for Connection {
    /// Readable when there is an event. On a channel for many: when there is one of any of them.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
