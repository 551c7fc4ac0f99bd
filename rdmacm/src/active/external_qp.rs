//! Active connections for a queue pair that the application owns and moves through its states: of a
//! transport other than RC, of another library, or with other attributes.

use ibverbs::{DuplexTransport, QpState, QueuePair, Result, qp::QpChange};

use crate::active::VERB;
use crate::connection::ConnectedId;
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel, IdKey};
use crate::id::{Id, Path, QpIdentity, qp_change};
use crate::params::{ConnectParams, check_private_data};
use crate::progress::{InProgress, already_finished, in_progress};

/// Sends a connect request for a queue pair of the application.
pub(crate) fn request<T: DuplexTransport>(
    id: Id,
    path: Path,
    qp: &QueuePair<T>,
    params: &ConnectParams<'_>,
) -> Result<ConnectPending, ConnectError> {
    path.check_external(VERB, qp)?;
    params.check(VERB, path.private_data_limits().request)?;
    id.connect(params, QpIdentity::new(qp)?, &path)?;
    let (channel, key) = (id.channel().clone(), id.key());
    Ok(ConnectPending {
        id: Some(id),
        channel,
        key,
        path,
    })
}

/// A connect request sent by [`Route::request`](crate::Route::request) that the peer has not
/// answered yet.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Uc};
/// use rdmacm::active::{ConnectPending, ConnectResponse};
/// use rdmacm::{ConnectParams, InProgress, Route};
/// use std::time::Duration;
/// # fn f(route: Route, qp: &QueuePair<Uc>) -> Result<ConnectResponse, ibverbs::Error> {
/// let pending: ConnectPending = route.request(qp, &ConnectParams::default())?;
/// Ok(pending.wait(Some(Duration::from_secs(5)))?)
/// # }
/// ```
#[doc(alias = "rdma_connect")]
#[derive(Debug)]
pub struct ConnectPending {
    id: Option<Id>,
    channel: EventChannel,
    key: IdKey,
    path: Path,
}

in_progress!(ConnectPending: VERB, path);

impl InProgress for ConnectPending {
    type Output = ConnectResponse;
    type Error = ConnectError;

    fn try_finish(&mut self) -> Result<Option<ConnectResponse>, ConnectError> {
        let id = self
            .id
            .take()
            .ok_or_else(|| already_finished(VERB, &self.path))?;
        let Some(event) = id.try_event()? else {
            self.id = Some(id);
            return Ok(None);
        };
        match event.event_type() {
            CmEventType::CONNECT_RESPONSE => Ok(Some(ConnectResponse {
                id,
                path: self.path.clone(),
                private_data: event.private_data().to_vec(),
            })),
            _ => Err(ConnectError::from_event(VERB, &self.path, &event)),
        }
    }
}

/// The peer's acceptance of a [`Route::request`](crate::Route::request). Move the queue pair to RTR
/// and RTS and then call [`establish`](Self::establish); the peer waits for that. Dropping it ends
/// the connection.
///
/// # Example
/// ```no_run
/// use ibverbs::{QpState, QueuePair, Rc};
/// use rdmacm::active::ConnectResponse;
/// use rdmacm::connection::ConnectedId;
/// # fn f(response: ConnectResponse, qp: &mut QueuePair<Rc>) -> ibverbs::Result<ConnectedId> {
/// if response.private_data().first() != Some(&1) {
///     response.reject(b"only version 1 is supported")?;
///     return Err(ibverbs::Error::new(
///         ibverbs::ErrorKind::Disconnected,
///         "connect",
///         "unsupported version",
///     ));
/// }
/// qp.modify(&response.qp_change(QpState::RTR)?)?;
/// qp.modify(&response.qp_change(QpState::RTS)?)?;
/// response.establish()
/// # }
/// ```
#[doc(alias = "rdma_establish")]
#[derive(Debug)]
#[must_use = "the peer waits for `establish`"]
pub struct ConnectResponse {
    id: Id,
    path: Path,
    private_data: Vec<u8>,
}

impl ConnectResponse {
    /// Returns the private data sent by the peer, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns the change that the queue pair needs to enter RTR, and then RTS.
    ///
    /// # Errors
    /// Fails if the peer has disconnected.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn qp_change(&self, state: QpState) -> Result<QpChange> {
        qp_change::for_state(state, &self.id, &self.path)
    }

    /// Tells the peer that this side's queue pair is in RTS, which establishes the connection.
    ///
    /// # Errors
    /// Fails if the peer has disconnected.
    #[doc(alias = "rdma_establish")]
    pub fn establish(self) -> Result<ConnectedId> {
        self.id.establish(&self.path)?;
        Ok(ConnectedId::new(self.id, self.path, self.private_data))
    }

    /// Rejects the connection after all, which spares the peer its timeout.
    ///
    /// # Errors
    /// Same as [`ConnectRequest::reject`](crate::ConnectRequest::reject).
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, reason: &[u8]) -> Result<()> {
        check_private_data(
            "rdma_reject",
            reason,
            self.path.private_data_limits().reject,
        )?;
        self.id.reject(reason, &self.path)
    }
}
