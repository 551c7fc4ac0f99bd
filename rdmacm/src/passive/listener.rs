//! Listeners for connect requests.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibverbs::Result;

use crate::event::IdKey;
use crate::passive::{ConnectRequest, ListeningId};

/// A listening port. Several threads may accept from it. Accepted connections are independent of
/// the listener and of each other.
///
/// Soft-iWARP closes a listener without an event if a peer ends its TCP connection before the
/// driver has accepted it. Later connections are then refused until the application listens again.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, QpOptions, Rc, wr};
/// use rdmacm::{ConnectParams, Listener};
/// use std::time::Duration;
///
/// let listener = Listener::bind("0.0.0.0:7471".parse()?, 64)?;
/// while let Some(request) = listener.next_request(Some(Duration::from_secs(60)))? {
///     let pd = request.context()?.alloc_pd()?;
///     let mut cq = pd.context().create_cq(CqOptions::default())?;
///     let mut ready = request.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
///     ready.qp_mut().post_recv(wr::recv(pd.buf(4096)?))?;
///     let connection = ready.accept(&ConnectParams::default(), Duration::from_secs(5))?;
///     println!("{} connected", connection.peer_addr());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_listen")]
#[derive(Debug)]
pub struct Listener(ListeningId);

impl Listener {
    pub(crate) fn new(listening: ListeningId) -> Self {
        Self(listening)
    }

    /// Returns the local address, with the port selected by the system.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Returns the key that an [`EventChannel`](crate::EventChannel) returns for this listener.
    pub fn key(&self) -> IdKey {
        self.0.key()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn channel(&self) -> &crate::event::EventChannel {
        self.0.channel()
    }

    /// Waits for a connect request, at most for `timeout` (forever if `None`). Returns `Ok(None)`
    /// on timeout.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ibverbs::ErrorKind::NotFound) if the device was removed or the
    /// address moved to another interface. Also fails if the process has no free file descriptors;
    /// the request is then rejected, and the listener can still be used.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next_request(&self, timeout: Option<Duration>) -> Result<Option<ConnectRequest>> {
        self.0.next_request(timeout, ConnectRequest::new)
    }

    /// Returns a connect request that has already arrived, if there is one. For programs that wait
    /// on the [descriptor](AsFd) themselves.
    ///
    /// # Errors
    /// Same as [`next_request`](Self::next_request).
    #[doc(alias = "rdma_get_cm_event")]
    pub fn try_request(&self) -> Result<Option<ConnectRequest>> {
        self.0.try_request(ConnectRequest::new)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
