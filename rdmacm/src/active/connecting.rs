//! A connection on its way, at the active side.

use std::os::fd::{AsFd, BorrowedFd};

use ibverbs::Result;

use super::{Attempt, Handshake, VERB};
use crate::connection::Connection;
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel};
use crate::id::{Id, Path, transition};
use crate::params::ConnectParams;
use crate::progress::sealed::Sealed;
use crate::progress::{InProgress, already_finished};
use crate::wait::Descriptor;

/// A connection being made by [`ReadyRoute::start`](crate::ReadyRoute::start).
///
/// Dropped on iWARP before the peer has answered, the queue pair and its buffers go when the kernel
/// lets go of them (see the [crate documentation](crate)).
///
/// # Example
/// ```no_run
/// use rdmacm::{ConnectParams, Connecting, InProgress, ReadyRoute};
/// use std::time::Duration;
/// # fn f(ready: ReadyRoute) -> Result<(), rdmacm::ConnectError> {
/// let connecting: Connecting = ready.start(&ConnectParams::default())?;
/// // other work, and then
/// let connection = connecting.wait(Some(Duration::from_secs(5)))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)
#[derive(Debug)]
pub struct Connecting {
    attempt: Option<Attempt>,
    /// On iWARP, from the start to the end.
    handshake: Option<Handshake>,
    channel: EventChannel,
    path: Path,
    /// Without the private data, which is sent.
    params: ConnectParams<'static>,
    is_finished: bool,
}

impl Connecting {
    pub(crate) fn start(attempt: Attempt, params: &ConnectParams<'_>, path: Path) -> Result<Self> {
        let channel = attempt.id.channel().clone();
        let numbers = ConnectParams {
            private_data: &[],
            ..*params
        };
        let (attempt, handshake) = if path.is_iwarp() {
            (None, Some(Handshake::start(attempt, params, &path)?))
        } else {
            attempt.request(params, &path)?;
            (Some(attempt), None)
        };
        Ok(Self {
            attempt,
            handshake,
            channel,
            path,
            params: numbers,
            is_finished: false,
        })
    }

    fn advance(&mut self) -> std::result::Result<Option<Connection>, ConnectError> {
        if self.is_finished {
            return Err(already_finished(VERB, &self.path).into());
        }
        if let (None, Some(handshake)) = (&self.attempt, &self.handshake) {
            self.attempt = handshake.try_take(&self.path)?;
        }
        let Some(attempt) = &mut self.attempt else {
            return Ok(None);
        };
        let Some(answer) = PeerResponse::take(&attempt.id, &self.path)? else {
            return Ok(None);
        };
        if answer.to_follow {
            follow(attempt, &self.params, &self.path)?;
        }
        self.is_finished = true;
        Ok(self.attempt.take().map(|Attempt { qp, id }| {
            Connection::new(qp, id, self.path.clone(), answer.private_data)
        }))
    }
}

impl Sealed for Connecting {
    const VERB: &'static str = VERB;

    fn what(&self) -> String {
        self.path.to_string()
    }

    fn descriptor(&self) -> Descriptor {
        match &self.handshake {
            Some(handshake) => handshake.descriptor(),
            None => self.channel.descriptor(),
        }
    }
}

impl InProgress for Connecting {
    type Output = Connection;
    type Error = ConnectError;

    fn try_finish(&mut self) -> std::result::Result<Option<Connection>, ConnectError> {
        let outcome = self.advance();
        if outcome.is_err() {
            self.is_finished = true;
            // The peer has answered, or never will: nothing holds the queue pair.
            self.attempt = None;
        }
        outcome
    }
}

impl AsFd for Connecting {
    /// Readable when there is something to do: call [`try_finish`](InProgress::try_finish).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handshake
            .as_ref()
            .map_or_else(|| self.channel.as_fd(), AsFd::as_fd)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.give_up(&self.path);
        }
    }
}

/// A peer's yes.
struct PeerResponse {
    private_data: Vec<u8>,
    /// Whether this side's queue pair has to follow. On iWARP the kernel has moved it.
    to_follow: bool,
}

impl PeerResponse {
    /// `None` while there is no answer.
    fn take(id: &Id, path: &Path) -> std::result::Result<Option<Self>, ConnectError> {
        let Some(event) = id.try_event()? else {
            return Ok(None);
        };
        let to_follow = match event.event_type() {
            CmEventType::CONNECT_RESPONSE => true,
            CmEventType::ESTABLISHED => false,
            _ => return Err(ConnectError::from_event(VERB, path, &event)),
        };
        Ok(Some(Self {
            private_data: event.private_data().to_vec(),
            to_follow,
        }))
    }
}

/// InfiniBand and RoCE: the peer has accepted and waits for this side's queue pair to follow.
fn follow(attempt: &mut Attempt, params: &ConnectParams<'_>, path: &Path) -> Result<()> {
    let Attempt { qp, id } = attempt;
    let moved = transition::to_rts(qp, id, params, path);
    if moved.is_err() {
        // So that the peer need not wait for its timeout; the first error is the one that counts.
        let _ = id.reject(&[], path);
    }
    moved?;
    id.establish(path)
}
