//! Connect requests awaited on tokio.

use std::os::fd::{AsFd, BorrowedFd};

use ibverbs::Result;

use super::{ConnectRequest, Listener};
use crate::event::EventChannel;
use crate::wait::Readable;

/// A [`Listener`] or [`ServiceListener`](crate::datagram::ServiceListener) that awaits requests on
/// tokio. Several tasks may await at the same time.
///
/// # Example
/// ```no_run
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// use ibverbs::{CqOptions, QpOptions, Rc, wr};
/// use rdmacm::{AsyncListener, ConnectParams, InProgress, Listener};
///
/// let listener = AsyncListener::new(Listener::bind("0.0.0.0:7471".parse()?, 64)?)?;
/// loop {
///     let request = listener.next_request().await?;
///     tokio::spawn(async move {
///         let pd = request.context()?.alloc_pd()?;
///         let cq = pd.context().create_cq(CqOptions::default())?;
///         let mut ready =
///             request.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
///         ready
///             .qp_mut()
///             .post_recv(wr::recv(pd.buf(4096)?))
///             .map_err(ibverbs::Error::from)?;
///         let mut connection = ready.start(&ConnectParams::default())?.await?;
///         connection.event().await?; // until the peer disconnects
///         Ok::<(), ibverbs::Error>(())
///     });
/// }
/// # }
/// ```
#[doc(alias = "rdma_listen")]
#[derive(Debug)]
pub struct AsyncListener<L = Listener> {
    // Drop order: tokio stops watching the descriptor before the listener is dropped.
    readable: Readable,
    listener: L,
}

impl AsyncListener<Listener> {
    /// Registers a listener with the current tokio runtime, which must have I/O enabled.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput) outside a runtime, and for a
    /// listener on a shared [`EventChannel`](crate::EventChannel); await the channel instead. Also
    /// fails if the process has no free file descriptors.
    ///
    /// # Panics
    /// Panics if the runtime does not have I/O enabled.
    pub fn new(listener: Listener) -> Result<Self> {
        let channel = listener.channel().clone();
        Self::with_channel(listener, &channel)
    }

    /// Awaits a connect request.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no request.
    ///
    /// # Errors
    /// Same as [`Listener::next_request`].
    #[doc(alias = "rdma_get_cm_event")]
    pub async fn next_request(&self) -> Result<ConnectRequest> {
        self.readable.retry(|| self.listener.try_request()).await
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

    /// Returns the listener.
    pub fn get_ref(&self) -> &L {
        &self.listener
    }

    /// Returns the listener after deregistering it from the runtime.
    pub fn into_inner(self) -> L {
        self.listener
    }
}

impl<L: AsFd> AsFd for AsyncListener<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
