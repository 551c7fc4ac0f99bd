//! Connections being established by the active side.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ibverbs::{Context, Errno, Error, ErrorKind, Result};

use super::handshake::{IwarpHandshake, Switch};
use super::{Attempt, VERB};
use crate::connection::Connection;
use crate::connection::device_check::name_cause;
use crate::convert::timed_out;
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel, IdKey};
use crate::id::{Id, Path, transition};
use crate::params::ConnectParams;
use crate::progress::{InProgress, already_finished, into_future, sealed::Sealed};
use crate::wait::Descriptor;

/// A connection being established by [`ReadyRoute::start`](crate::ReadyRoute::start).
///
/// On iWARP the kernel holds the queue pair until the peer answers. If this is dropped earlier, the
/// queue pair and its buffers are released only when the kernel releases them (see the [crate
/// documentation](crate#time-limits)).
///
/// # Example
/// ```no_run
/// use rdmacm::{ConnectParams, Connecting, InProgress, ReadyRoute};
/// use std::time::Duration;
/// # fn f(ready: ReadyRoute) -> Result<(), rdmacm::ConnectError> {
/// let connecting: Connecting = ready.start(&ConnectParams::default())?;
/// // Do other work here.
/// let connection = connecting.wait(Some(Duration::from_secs(5)))?;
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_connect")]
#[derive(Debug)]
pub struct Connecting {
    attempt: Option<Attempt>,
    /// Present from start to end on iWARP only.
    handshake: Option<IwarpHandshake>,
    channel: EventChannel,
    key: IdKey,
    path: Path,
    /// The device, for the cause of an error.
    context: Context,
    /// Parameters without the private data, which is already sent.
    params: ConnectParams<'static>,
    is_finished: bool,
}

impl Connecting {
    /// Sends the request. `has_descriptor` is `false` if the caller only waits for the result.
    pub(crate) fn start(
        attempt: Attempt,
        params: &ConnectParams<'_>,
        path: Path,
        has_descriptor: bool,
    ) -> Result<Self> {
        let (channel, key) = (attempt.id.channel().clone(), attempt.id.key());
        let context = attempt.qp.pd().context().clone();
        let params_without_data = ConnectParams {
            private_data: &[],
            ..*params
        };
        let (attempt, handshake) = if path.is_iwarp() {
            let handshake = IwarpHandshake::start(attempt, params, &path, has_descriptor)?;
            (None, Some(handshake))
        } else {
            attempt.send_request(params, &path)?;
            (Some(attempt), None)
        };
        Ok(Self {
            attempt,
            handshake,
            channel,
            key,
            path,
            context,
            params: params_without_data,
            is_finished: false,
        })
    }

    /// Returns the descriptor of a handshake that has one of its own.
    fn switch(&self) -> Option<&Arc<Switch>> {
        self.handshake.as_ref().and_then(IwarpHandshake::descriptor)
    }

    /// Names the cause in the error of a peer that has not answered.
    fn name_cause(&self, error: Error, is_reached: bool) -> Error {
        name_cause(error, &self.context, &self.path, is_reached)
    }

    fn advance(&mut self) -> Result<Option<Connection>, ConnectError> {
        if self.is_finished {
            return Err(already_finished(VERB, &self.path).into());
        }
        if let (None, Some(handshake)) = (&self.attempt, &self.handshake) {
            self.attempt = handshake.try_take(&self.path)?;
        }
        let Some(attempt) = &mut self.attempt else {
            return Ok(None);
        };
        let Some(acceptance) = Acceptance::take(&attempt.id, &self.path)? else {
            return Ok(None);
        };
        if acceptance.needs_rts {
            complete(attempt, &self.params, &self.path)?;
        }
        self.is_finished = true;
        Ok(self.attempt.take().map(|Attempt { qp, id }| {
            Connection::new(qp, id, self.path.clone(), acceptance.private_data)
        }))
    }
}

impl Sealed for Connecting {
    const VERB: &'static str = VERB;

    fn detail(&self) -> String {
        self.path.to_string()
    }

    fn timed_out(&self) -> Error {
        self.name_cause(timed_out(VERB, &self.path), self.attempt.is_some())
    }

    fn id_key(&self) -> IdKey {
        self.key
    }

    fn channel(&self) -> &EventChannel {
        &self.channel
    }

    fn descriptor(&self) -> Descriptor {
        match self.switch() {
            Some(switch) => Arc::clone(switch) as Descriptor,
            None => self.channel.descriptor(),
        }
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> Result<()> {
        if let (None, Some(handshake)) = (&self.attempt, &self.handshake) {
            handshake.sleep(timeout);
            return Ok(());
        }
        self.channel.sleep(timeout)
    }
}

into_future!(Connecting);

impl InProgress for Connecting {
    type Output = Connection;
    type Error = ConnectError;

    fn try_finish(&mut self) -> Result<Option<Connection>, ConnectError> {
        let result = self.advance();
        let is_reached = self.attempt.is_some();
        if result.is_err() {
            self.is_finished = true;
            // The handshake is over, so the kernel no longer holds the queue pair and dropping it
            // does not block.
            self.attempt = None;
        }
        result.map_err(|error| {
            if is_without_answer(error.error()) {
                self.name_cause(error.into(), is_reached).into()
            } else {
                error
            }
        })
    }
}

impl AsFd for Connecting {
    /// Readable when [`try_finish`](InProgress::try_finish) may make progress.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.switch()
            .map_or_else(|| self.channel.as_fd(), AsFd::as_fd)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let returned = self.handshake.take().and_then(IwarpHandshake::abandon);
        if let Some(attempt) = self.attempt.take().or(returned) {
            attempt.abandon(&self.path);
        }
    }
}

/// Returns `true` if the peer cannot be reached or has not answered.
fn is_without_answer(error: &Error) -> bool {
    error.kind() == ErrorKind::TimedOut
        || matches!(
            error.errno(),
            Some(Errno(
                libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN
            ))
        )
}

/// Acceptance by the peer.
struct Acceptance {
    private_data: Vec<u8>,
    /// `true` if this side must move its queue pair to RTS. On iWARP the kernel has done that.
    needs_rts: bool,
}

impl Acceptance {
    /// Returns `None` if the peer has not answered yet.
    fn take(id: &Id, path: &Path) -> Result<Option<Self>, ConnectError> {
        let Some(event) = id.try_event()? else {
            return Ok(None);
        };
        let needs_rts = match event.event_type() {
            CmEventType::CONNECT_RESPONSE => true,
            CmEventType::ESTABLISHED => false,
            _ => return Err(ConnectError::from_event(VERB, path, &event)),
        };
        Ok(Some(Self {
            private_data: event.private_data().to_vec(),
            needs_rts,
        }))
    }
}

/// Moves the queue pair to RTS after the peer has accepted, and then completes the handshake.
/// Needed on InfiniBand and RoCE.
fn complete(attempt: &mut Attempt, params: &ConnectParams<'_>, path: &Path) -> Result<()> {
    let Attempt { qp, id } = attempt;
    transition::to_rts(qp, id, params, path)?;
    id.establish(path)
}
