//! Listening for connect requests.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use crate::channel::EventChannel;
use crate::deadline::Deadline;
use crate::event::CmEventType;
use crate::id::Id;
use crate::request::ConnectRequest;

/// A listening port. Several threads may accept from it; what they accept is independent of it and of each other.
///
/// # Example
/// ```no_run
/// use std::time::Duration;
/// use ibverbs::{CqOptions, QpOptions, Rc, wr};
/// use rdmacm::{ConnectParams, Listener};
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
pub struct Listener {
    id: Mutex<Id>,
    channel: Arc<EventChannel>,
    local: SocketAddr,
}

impl Listener {
    /// Listens on an address: that of one device, or an unspecified one (`0.0.0.0`, `::`) for all. Port 0 lets the system choose.
    ///
    /// `backlog` is how many requests may wait to be accepted; more are rejected by the kernel.
    ///
    /// # Errors
    /// `EADDRINUSE` (the port is taken), `EADDRNOTAVAIL` (not an address of this host), `ENODEV` (no RDMA device has it); the text says
    /// what to do.
    pub fn bind(address: SocketAddr, backlog: u16) -> Result<Self> {
        let id = Id::create()?;
        id.bind(address)?;
        id.listen(backlog.into(), &address)?;
        let local = id.local_addr().unwrap_or(address);
        let channel = Arc::clone(id.channel());
        Ok(Self { id: Mutex::new(id), channel, local })
    }

    /// The address that it listens on, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a request, at most for `timeout` (for ever when `None`); `Ok(None)` when the time is over.
    ///
    /// # Errors
    /// When the device is removed ([`ErrorKind::NotFound`]), or when the process has no file descriptor left: the request is then
    /// rejected, and the listener goes on.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<ConnectRequest>> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(request) = self.try_accept()? {
                return Ok(Some(request));
            }
            if deadline.is_over() {
                return Ok(None);
            }
            self.channel.wait_readable(deadline)?;
        }
    }

    /// Takes a request that is there already, for programs that wait on the [descriptor](AsFd) by themselves.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<ConnectRequest>> {
        // One thread at a time, so that nobody takes an event of the new identifier before it is on a channel of its own.
        let id = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = id.try_event()? {
            if let Some(mut new) = id.adopt(&event) {
                new.migrate()?;
                return ConnectRequest::new(new, &event).map(Some);
            }
            if event.event_type() == CmEventType::DEVICE_REMOVAL {
                let what = format!("{}: the device was removed", self.local);
                return Err(Error::new(ErrorKind::NotFound, "rdma_listen", what));
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
