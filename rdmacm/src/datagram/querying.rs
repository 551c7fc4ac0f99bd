//! Queries of datagram services in progress.

use crate::address::UdAddress;
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel, IdKey};
use crate::id::{Id, Path};
use crate::progress::{InProgress, already_finished, in_progress};

pub(crate) const VERB: &str = "rdma_connect";

/// Address and private data of a datagram service. A plain value that keeps nothing open.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Ud, wr};
/// use rdmacm::datagram::Service;
/// # fn f(service: Service, qp: &mut QueuePair<Ud>) -> ibverbs::Result<()> {
/// println!("private data {:?}", service.private_data);
/// let destination = service.address.destination(qp)?;
/// qp.post_send(wr::send(wr::Inline(b"hello")).to(destination))?;
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_connect")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Service {
    /// Destination of datagrams to the service.
    pub address: UdAddress,
    /// Private data sent by the service, padded with zeros.
    pub private_data: Vec<u8>,
}

/// A query of a datagram service started by
/// [`DatagramRoute::start_query`](crate::datagram::DatagramRoute::start_query).
///
/// # Example
/// ```no_run
/// use rdmacm::InProgress;
/// use rdmacm::datagram::{DatagramRoute, Querying};
/// use std::time::Duration;
/// # fn f(route: DatagramRoute) -> Result<(), rdmacm::ConnectError> {
/// let querying: Querying = route.start_query(b"")?;
/// // Do other work here.
/// let service = querying.wait(Some(Duration::from_secs(5)))?;
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_connect")]
#[derive(Debug)]
pub struct Querying {
    id: Option<Id>,
    channel: EventChannel,
    key: IdKey,
    path: Path,
}

impl Querying {
    pub(crate) fn new(id: Id, path: Path) -> Self {
        let (channel, key) = (id.channel().clone(), id.key());
        Self {
            id: Some(id),
            channel,
            key,
            path,
        }
    }
}

in_progress!(Querying: VERB, path);

impl InProgress for Querying {
    type Output = Service;
    type Error = ConnectError;

    fn try_finish(&mut self) -> Result<Option<Service>, ConnectError> {
        let id = self
            .id
            .take()
            .ok_or_else(|| already_finished(VERB, &self.path))?;
        if let Some(event) = id.try_event()? {
            return match (event.event_type(), event.datagram()) {
                (CmEventType::ESTABLISHED, Some(address)) => Ok(Some(Service {
                    address,
                    private_data: event.private_data().to_vec(),
                })),
                _ => Err(ConnectError::from_event(VERB, &self.path, &event)),
            };
        }
        self.id = Some(id);
        Ok(None)
    }
}
