//! Connect requests accepted for a queue pair that the application owns and moves through its
//! states.

use ibverbs::{DuplexTransport, QueuePair, Result, event::EventType};

use crate::connection::ConnectedId;
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel, IdKey};
use crate::id::{Id, Path, QpIdentity};
use crate::params::ConnectParams;
use crate::passive::VERB;
use crate::progress::{InProgress, already_finished, in_progress};

/// Accepts a connect request for a queue pair of the application.
pub(crate) fn accept<T: DuplexTransport>(
    id: Id,
    path: Path,
    qp: &QueuePair<T>,
    params: &ConnectParams<'_>,
    private_data: Vec<u8>,
) -> Result<EstablishPending, ConnectError> {
    path.check_external(VERB, qp)?;
    params.check(VERB, path.private_data_limits().reply)?;
    id.accept(params, QpIdentity::new(qp)?, &path)?;
    let (channel, key) = (id.channel().clone(), id.key());
    Ok(EstablishPending {
        accepted: Some((id, private_data)),
        channel,
        key,
        path,
    })
}

/// A connect request accepted by
/// [`ConnectRequest::accept_external`](crate::ConnectRequest::accept_external) that the peer has
/// not confirmed yet. Dropping it disconnects.
///
/// # Example
/// ```no_run
/// use ibverbs::{QpState, QueuePair, Rc};
/// use rdmacm::{ConnectParams, ConnectRequest, InProgress};
/// use rdmacm::connection::ConnectedId;
/// use rdmacm::passive::EstablishPending;
/// use std::time::Duration;
/// # fn f(request: ConnectRequest, qp: &mut QueuePair<Rc>) -> Result<ConnectedId, ibverbs::Error> {
/// for state in [QpState::INIT, QpState::RTR, QpState::RTS] {
///     qp.modify(&request.qp_change(state)?)?;
/// }
/// let pending: EstablishPending = request.accept_external(qp, &ConnectParams::default())?;
/// Ok(pending.wait(Some(Duration::from_secs(5)))?)
/// # }
/// ```
#[doc(alias = "rdma_accept")]
#[derive(Debug)]
pub struct EstablishPending {
    accepted: Option<(Id, Vec<u8>)>,
    channel: EventChannel,
    key: IdKey,
    path: Path,
}

impl EstablishPending {
    /// Forwards the event [`COMM_EST`](EventType::COMM_EST) of the queue pair to the connection
    /// manager. It means that the peer's first message has arrived, which establishes the
    /// connection even if the peer's last handshake message was lost.
    ///
    /// # Errors
    /// `EISCONN` if the connection is already established. `EINVAL` for other events.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: EventType) -> Result<()> {
        let (id, _) = self
            .accepted
            .as_ref()
            .ok_or_else(|| already_finished(VERB, &self.path))?;
        id.notify(event, &self.path)
    }
}

in_progress!(EstablishPending: VERB, path);

impl InProgress for EstablishPending {
    type Output = ConnectedId;
    type Error = ConnectError;

    fn try_finish(&mut self) -> Result<Option<ConnectedId>, ConnectError> {
        let (id, private_data) = self
            .accepted
            .take()
            .ok_or_else(|| already_finished(VERB, &self.path))?;
        let Some(event) = id.try_event()? else {
            self.accepted = Some((id, private_data));
            return Ok(None);
        };
        match event.event_type() {
            CmEventType::ESTABLISHED => {
                Ok(Some(ConnectedId::new(id, self.path.clone(), private_data)))
            }
            _ => Err(ConnectError::from_event(VERB, &self.path, &event)),
        }
    }
}
