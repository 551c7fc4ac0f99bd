//! Listeners of datagram services, and their requests.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibverbs::{Context, QueuePair, Result, Ud};

use crate::address::PortSpace;
use crate::datagram;
use crate::event::{Event, IdKey};
use crate::id::path::path_accessors;
use crate::id::{Id, Path, QpIdentity};
use crate::params::{ConnectParams, PrivateDataLimits, check_private_data};
use crate::passive::{ListenOptions, ListeningId};

impl ListenOptions {
    /// Listens for requests to a datagram service.
    ///
    /// # Errors
    /// Same as [`bind`](Self::bind); also
    /// [`ErrorKind::Unsupported`](ibverbs::ErrorKind::Unsupported) for an address of an iWARP
    /// device, which has no datagrams.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_datagram(&self, address: SocketAddr) -> Result<ServiceListener> {
        Ok(ServiceListener::new(
            self.listen(address.into(), PortSpace::UDP)?,
        ))
    }
}

/// A listening datagram service. It answers a request with the number and the Q_Key of a queue
/// pair.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, Device, QpOptions, Ud};
/// use rdmacm::ListenOptions;
///
/// let listener = ListenOptions::new()
///     .device("rxe0")
///     .bind_datagram("0.0.0.0:7174".parse()?)?;
/// let pd = Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let mut cq = pd.context().create_cq(CqOptions::default())?;
/// let mut qp = pd.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
/// let mut is_started = false;
/// while let Some(request) = listener.next_request(None)? {
///     if !is_started {
///         request.start_qp(&mut qp)?; // post receives next
///         is_started = true;
///     }
///     request.accept(&qp, b"welcome")?; // all clients use the same queue pair
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_listen")]
#[derive(Debug)]
pub struct ServiceListener(ListeningId);

impl ServiceListener {
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

    /// Waits for a request, at most for `timeout` (forever if `None`). Returns `Ok(None)` on
    /// timeout.
    ///
    /// # Errors
    /// Same as [`Listener::next_request`](crate::Listener::next_request).
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next_request(&self, timeout: Option<Duration>) -> Result<Option<ServiceRequest>> {
        self.0.next_request(timeout, ServiceRequest::new)
    }

    /// Returns a request that has already arrived, if there is one. For programs that wait on the
    /// [descriptor](AsFd) themselves.
    ///
    /// # Errors
    /// Same as [`next_request`](Self::next_request).
    #[doc(alias = "rdma_get_cm_event")]
    pub fn try_request(&self) -> Result<Option<ServiceRequest>> {
        self.0.try_request(ServiceRequest::new)
    }
}

impl AsFd for ServiceListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A request for the address of a datagram service. Dropping it rejects the request.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Ud};
/// use rdmacm::datagram::ServiceRequest;
/// # fn f(request: ServiceRequest, qp: &QueuePair<Ud>, is_full: bool) -> ibverbs::Result<()> {
/// if is_full {
///     request.reject(b"try again later")?;
/// } else {
///     request.accept(qp, b"welcome")?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_accept")]
#[doc(alias = "rdma_reject")]
#[derive(Debug)]
#[must_use = "dropping a request rejects it"]
pub struct ServiceRequest {
    id: Id,
    path: Path,
    private_data: Vec<u8>,
}

path_accessors!(
    ServiceRequest,
    "The device that the request came in by.",
    "The local address that the peer asked for."
);

impl ServiceRequest {
    fn new(id: Id, event: &Event) -> Result<Self> {
        let path = id.path("rdma_get_cm_event")?;
        path.check_datagram("rdma_get_cm_event")?;
        Ok(Self {
            id,
            path,
            private_data: event.private_data().to_vec(),
        })
    }

    /// Returns the private data sent by the peer, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Opens the device, to create the queue pair on it.
    ///
    /// # Errors
    /// Same as [`Device::open`](ibverbs::Device::open).
    #[doc(alias = "ibv_open_device")]
    pub fn context(&self) -> Result<Context> {
        self.path.open()
    }

    /// Moves a new queue pair of [this device](Self::device_name) from RESET to RTS: see
    /// [`DatagramRoute::start_qp`](crate::datagram::DatagramRoute::start_qp).
    ///
    /// # Errors
    /// Same as [`DatagramRoute::start_qp`](crate::datagram::DatagramRoute::start_qp).
    #[doc(alias = "ibv_modify_qp")]
    pub fn start_qp(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        datagram::start_qp(&self.id, &self.path, qp, None)
    }

    /// Answers with the number and the Q_Key of the queue pair, and with `private_data`. Post
    /// receives first, because the peer may send immediately.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput) if the private data is too
    /// long. [`ErrorKind::Mismatch`](ibverbs::ErrorKind::Mismatch) if the queue pair belongs to
    /// another device.
    #[doc(alias = "rdma_accept")]
    pub fn accept(self, qp: &QueuePair<Ud>, private_data: &[u8]) -> Result<()> {
        check_private_data(
            "rdma_accept",
            private_data,
            PrivateDataLimits::DATAGRAM.reply,
        )?;
        self.path.check("rdma_accept", qp)?;
        let params = ConnectParams::new().private_data(private_data);
        self.id.accept(&params, QpIdentity::new(qp)?, &self.path)
    }

    /// Rejects the request, with a reason of at most [`PrivateDataLimits::reject`] bytes as private
    /// data.
    ///
    /// # Errors
    /// Same as [`ConnectRequest::reject`](crate::ConnectRequest::reject).
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, reason: &[u8]) -> Result<()> {
        check_private_data("rdma_reject", reason, PrivateDataLimits::DATAGRAM.reject)?;
        self.id.reject(reason, &self.path)
    }
}
