//! EstablishPending requests.

use std::os::fd::{AsFd, BorrowedFd};

use ibverbs::Result;

use super::{ConnectRequest, Listener};
use crate::event::EventChannel;
use crate::wait::Readable;

/// A [`Listener`] (or [`ServiceListener`](crate::datagram::ServiceListener)) whose requests are
/// awaited on tokio. Several tasks may await at once.
///
/// # Example
/// ```no_run
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// use ibverbs::{CqOptions, QpOptions, Rc, wr};
/// use rdmacm::{AsyncListener, ConnectParams, InProgress, Listener};
///
/// let listener = AsyncListener::new(Listener::bind("0.0.0.0:7471".parse()?, 64)?)?;
/// loop {
///     let request = listener.accept().await?;
///     tokio::spawn(async move {
///         let pd = request.context()?.alloc_pd()?;
///         let cq = pd.context().create_cq(CqOptions::default())?;
///         let mut pending =
///             request.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
///         pending
///             .qp_mut()
///             .post_recv(wr::recv(pd.buf(4096)?))
///             .map_err(ibverbs::Error::from)?;
///         let mut connection = pending.start(&ConnectParams::default())?.finish().await?;
///         connection.event().await?; // until the peer goes
///         Ok::<(), ibverbs::Error>(())
///     });
/// }
/// # }
/// ```
///
/// # References
/// [`rdma_listen(3)`](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)
#[derive(Debug)]
pub struct AsyncListener<L = Listener> {
    // Dropped in this order: what tokio watches holds the channel, and no event of it.
    readable: Readable,
    listener: L,
}

impl AsyncListener<Listener> {
    /// For a task of a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput) outside of a runtime, and for
    /// a listener on an [`EventChannel`](crate::EventChannel) for many, which is itself
    /// awaited; or when the process has no file descriptor left.
    ///
    /// # Panics
    /// On a runtime whose I/O is not enabled.
    pub fn new(listener: Listener) -> Result<Self> {
        let channel = listener.channel().clone();
        Self::with_channel(listener, &channel)
    }

    /// Awaits a request. A dropped future loses none.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub async fn accept(&self) -> Result<ConnectRequest> {
        self.readable.retry(|| self.listener.try_accept()).await
    }
}

impl<L> AsyncListener<L> {
    pub(crate) fn with_channel(listener: L, channel: &EventChannel) -> Result<Self> {
        let readable = channel.register_with_tokio()?;
        Ok(Self { readable, listener })
    }

    pub(crate) fn readable(&self) -> &Readable {
        &self.readable
    }

    /// The listener.
    pub fn get_ref(&self) -> &L {
        &self.listener
    }

    /// The listener, watched no more.
    pub fn into_inner(self) -> L {
        self.listener
    }
}

impl<L: AsFd> AsFd for AsyncListener<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
