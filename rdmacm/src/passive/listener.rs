//! ListeningId for connect requests.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibverbs::Result;

use crate::event::IdKey;
use crate::passive::{ConnectRequest, ListeningId};

/// A listening port. Several threads may accept from it; what they accept is independent of it and
/// of each other.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, QpOptions, Rc, wr};
/// use rdmacm::{ConnectParams, Listener};
/// use std::time::Duration;
///
/// let listener = Listener::bind("0.0.0.0:7471".parse()?, 64)?;
/// while let Some(request) = listener.accept(Some(Duration::from_secs(60)))? {
///     let pd = request.context()?.alloc_pd()?;
///     let mut cq = pd.context().create_cq(CqOptions::default())?;
///     let mut pending = request.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
///     pending.qp_mut().post_recv(wr::recv(pd.buf(4096)?))?;
///     let connection = pending.accept(&ConnectParams::default(), Duration::from_secs(5))?;
///     println!("{} is here", connection.peer_addr());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_listen(3)`](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)
#[derive(Debug)]
pub struct Listener(ListeningId);

impl Listener {
    pub(crate) fn new(listening: ListeningId) -> Self {
        Self(listening)
    }

    /// The address that it listens on, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// What an [`EventChannel`](crate::EventChannel) calls it.
    pub fn key(&self) -> IdKey {
        self.0.key()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn channel(&self) -> &crate::event::EventChannel {
        self.0.channel()
    }

    /// Waits for a request, at most for `timeout` (for ever when `None`); `Ok(None)` when the time
    /// is over.
    ///
    /// # Errors
    /// When the device is removed or the address moved
    /// ([`ErrorKind::NotFound`](ibverbs::ErrorKind::NotFound)), or when the process has no file
    /// descriptor left: the request is then rejected, and the listener goes on.
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<ConnectRequest>> {
        self.0.accept(timeout, ConnectRequest::new)
    }

    /// Takes a request that is there already, for programs that wait on the [descriptor](AsFd) by
    /// themselves.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn try_accept(&self) -> Result<Option<ConnectRequest>> {
        self.0.try_accept(ConnectRequest::new)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
