//! An established connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, QueuePair, Rc, Reclaimed, Result, Scope, ScopeEnd, TransportType};

use crate::deadline::Deadline;
use crate::ece::Ece;
use crate::event::{CmEvent, CmEventType};
use crate::id::Id;
use crate::path::Path;
#[cfg(feature = "tokio")]
use crate::wait::Descriptor;

const VERB: &str = "rdma_get_cm_event";

/// A connected queue pair, and the identifier that tells when the connection ends. Dropping it disconnects.
///
/// A peer that leaves shows as the event [`CmEventType::DISCONNECTED`], and not always as completions: look at
/// [`check_event`](Self::check_event) when nothing completes, or wait on the [descriptor](AsFd).
#[derive(Debug)]
#[must_use = "dropping a connection disconnects it"]
pub struct Connection {
    // Dropped in this order: the queue pair before its identifier. Destroying a connected identifier disconnects.
    qp: QueuePair<Rc>,
    id: Id,
    path: Path,
    private_data: Vec<u8>,
    is_over: bool,
}

impl Connection {
    pub(crate) fn new(qp: QueuePair<Rc>, id: Id, path: Path, private_data: Vec<u8>) -> Self {
        Self { qp, id, path, private_data, is_over: false }
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

    /// Lends borrowed memory to the connection's requests while a closure runs: see [`QueuePair::scope`]. The connection comes back if its
    /// queue pair lived; otherwise it has ended, and the buffers of requests that never completed come back.
    pub fn scope<'env, R>(
        self,
        run: impl for<'scope> FnOnce(&mut Scope<'scope, 'env, Rc>) -> R,
    ) -> (R, std::result::Result<Self, Reclaimed>) {
        let Self { qp, id, path, private_data, is_over } = self;
        let ScopeEnd { value, qp, reclaimed } = qp.scope(run);
        let connection = qp.map(|qp| Self { qp, id, path, private_data, is_over });
        (value, connection.ok_or(reclaimed))
    }

    /// What the peer gave along with its request or its acceptance. On InfiniBand and RoCE padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The device that the connection runs over.
    pub fn device_name(&self) -> &str {
        &self.path.device
    }

    /// The port of the device, from 1.
    pub fn port_num(&self) -> u8 {
        self.path.port_num
    }

    /// The transport of the device.
    pub fn transport(&self) -> TransportType {
        self.path.transport
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.path.local
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.path.peer
    }

    /// Whether this side has disconnected, or has seen that the peer did.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What the peer's driver offered in the handshake; all zeros when nothing.
    ///
    /// # Errors
    /// Fails when librdmacm is too old to know.
    pub fn remote_ece(&self) -> Result<Ece> {
        self.id.remote_ece(&self.path)
    }

    /// Takes an event that is there already. After [`CmEventType::DISCONNECTED`] the queue pair flushes what is in flight, as far as
    /// its driver does that; what never completes comes back from [`close`](Self::close).
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: the device is being removed, and the connection is over; drop it, so that the removal can go on;
    /// - [`ErrorKind::PortDown`]: the local address moved to another interface (as in a failover of bonded ones). The connection may go
    ///   on, over the old way; connect anew to follow the address;
    /// - otherwise when the system fails. It does not fail when the peer ends the connection.
    pub fn check_event(&mut self) -> Result<Option<CmEvent>> {
        let Some(event) = self.id.try_event()?.map(|event| event.to_public()) else { return Ok(None) };
        match event.event_type {
            CmEventType::DISCONNECTED => {
                // The peer waits for the answer, and on Soft-RoCE nothing else would stop the queue pair. Nothing can be done if it fails.
                let _ = self.disconnect();
            }
            CmEventType::DEVICE_REMOVAL => {
                let _ = self.disconnect();
                return Err(Error::new(
                    ErrorKind::NotFound,
                    VERB,
                    format!("{}: the device is being removed", self.path),
                )
                .with_hint("drop the connection, so that the removal can go on"));
            }
            CmEventType::ADDR_CHANGE => {
                let what = format!("{}: the local address moved to another interface", self.path);
                return Err(Error::new(ErrorKind::PortDown, VERB, what).with_hint("connect anew to follow it"));
            }
            _ => {}
        }
        Ok(Some(event))
    }

    /// Waits for an event, at most for `timeout` (for ever when `None`); `Ok(None)` when the time is over.
    ///
    /// # Errors
    /// As [`check_event`](Self::check_event).
    pub fn wait_event(&mut self, timeout: Option<Duration>) -> Result<Option<CmEvent>> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(event) = self.check_event()? {
                return Ok(Some(event));
            }
            if deadline.is_over() {
                return Ok(None);
            }
            self.id.channel().wait_readable(deadline)?;
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn channel(&self) -> &std::sync::Arc<crate::channel::EventChannel> {
        self.id.channel()
    }

    /// Awaits an event on a tokio runtime with I/O enabled; a dropped future loses none.
    ///
    /// # Errors
    /// As [`check_event`](Self::check_event).
    #[cfg(feature = "tokio")]
    pub async fn event(&mut self) -> Result<CmEvent> {
        let readable = crate::readable::Readable::new(std::sync::Arc::clone(self.id.channel()) as Descriptor)?;
        readable.take(|| self.check_event()).await
    }

    /// Ends the connection. Requests that the peer has not acknowledged yet are lost: wait for their completions first.
    ///
    /// The peer, and this side too, get the event [`CmEventType::DISCONNECTED`]. A second call does nothing.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`rdma_disconnect(3)`](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
    pub fn disconnect(&mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        self.is_over = true;
        let stopped = if self.path.is_iwarp() { Ok(()) } else { self.qp.to_error() };
        match self.id.disconnect(&self.path) {
            // The peer was faster, and the kernel has forgotten the connection.
            Err(error) if error.errno().is_some_and(|errno| matches!(errno.0, libc::EINVAL | libc::ENOTCONN)) => {}
            other => other?,
        }
        stopped
    }

    /// Disconnects, destroys the queue pair, and gives back the buffers of requests that never completed.
    ///
    /// # Errors
    /// As [`QueuePair::destroy`].
    pub fn close(mut self) -> Result<Reclaimed> {
        // A connection that cannot be ended politely ends with its queue pair and identifier.
        let _ = self.disconnect();
        let Self { qp, id, .. } = self;
        let reclaimed = qp.destroy();
        drop(id);
        reclaimed
    }
}

impl AsFd for Connection {
    /// Readable when there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}
