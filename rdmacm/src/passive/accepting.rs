//! Connections being established by the passive side.

use std::fmt;

use ibverbs::{Error, QueuePair, Rc, Result, event::EventType};

use super::VERB;
use crate::connection::Connection;
use crate::convert::timed_out;
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel, IdKey};
use crate::id::{Id, Path};
use crate::progress::{InProgress, already_finished, in_progress};

/// A connection being accepted by [`ReadyRequest::start`](crate::ReadyRequest::start). Dropping it
/// disconnects.
///
/// # Example
/// ```no_run
/// use rdmacm::{Accepting, ConnectParams, InProgress, ReadyRequest};
/// use std::time::Duration;
/// # fn f(ready: ReadyRequest) -> Result<(), rdmacm::ConnectError> {
/// let accepting: Accepting = ready.start(&ConnectParams::default())?;
/// // Do other work here.
/// let connection = accepting.wait(Some(Duration::from_secs(5)))?;
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_accept")]
#[derive(Debug)]
pub struct Accepting {
    accepted: Option<Accepted>,
    channel: EventChannel,
    key: IdKey,
    path: Path,
}

#[derive(Debug)]
struct Accepted {
    // Drop order: the queue pair before its identifier.
    qp: QueuePair<Rc>,
    id: Id,
    private_data: Vec<u8>,
    cleanup: Option<Cleanup>,
}

impl Accepted {
    /// Prepares the queue pair for its destruction, because the connection was not established.
    fn abandon(mut self) {
        if let Some(Cleanup(cleanup)) = self.cleanup.take() {
            cleanup(&mut self.qp);
        }
    }
}

type CleanupFn = dyn FnOnce(&mut QueuePair<Rc>) + Send + Sync;

/// A function that is called before a queue pair is destroyed that has accepted a request, but was
/// never connected. The peer may have sent messages to it.
pub(crate) struct Cleanup(pub(crate) Box<CleanupFn>);

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup").finish_non_exhaustive()
    }
}

impl Accepting {
    pub(crate) fn new(
        qp: QueuePair<Rc>,
        id: Id,
        path: Path,
        private_data: Vec<u8>,
        cleanup: Option<Cleanup>,
    ) -> Self {
        let (channel, key) = (id.channel().clone(), id.key());
        Self {
            accepted: Some(Accepted {
                qp,
                id,
                private_data,
                cleanup,
            }),
            channel,
            key,
            path,
        }
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        if let Some(accepted) = self.accepted.take() {
            accepted.abandon();
        }
    }
}

impl Accepting {
    /// Forwards the event [`COMM_EST`](EventType::COMM_EST) of the queue pair to the connection
    /// manager. It means that the peer's first message has arrived, which establishes the
    /// connection even if the peer's last handshake message was lost.
    ///
    /// # Errors
    /// `EISCONN` if the connection is already established. `EINVAL` for other events. On iWARP the
    /// call has no effect.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: EventType) -> Result<()> {
        let accepted = self
            .accepted
            .as_ref()
            .ok_or_else(|| already_finished(VERB, &self.path))?;
        accepted.id.notify(event, &self.path)
    }
}

in_progress!(Accepting: VERB, path,
    fn timed_out(&self) -> Error {
        let error = timed_out(VERB, &self.path);
        if self.path.is_iwarp() {
            // The request came by the TCP connection that the peer's answer needs.
            return error.with_help("check that the peer's application is still running");
        }
        error
    }
);

impl InProgress for Accepting {
    type Output = Connection;
    type Error = ConnectError;

    fn try_finish(&mut self) -> Result<Option<Connection>, ConnectError> {
        let accepted = self
            .accepted
            .take()
            .ok_or_else(|| already_finished(VERB, &self.path))?;
        let outcome = match accepted.id.try_event() {
            Ok(None) => {
                self.accepted = Some(accepted);
                return Ok(None);
            }
            Ok(Some(event)) if event.event_type() == CmEventType::ESTABLISHED => Ok(()),
            Ok(Some(event)) => Err(ConnectError::from_event(VERB, &self.path, &event)),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = outcome {
            accepted.abandon();
            return Err(error);
        }
        let Accepted {
            qp,
            id,
            private_data,
            ..
        } = accepted;
        Ok(Some(Connection::new(
            qp,
            id,
            self.path.clone(),
            private_data,
        )))
    }
}
