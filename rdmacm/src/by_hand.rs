//! Connections whose queue pairs the application moves itself: of other transports than RC, of
//! another library, or with attributes of its own.

use std::os::fd::{AsFd, BorrowedFd};

use ibverbs::{Error, ErrorKind, EventType, QpChange, QpState, QueuePair, Result, Transport};

use crate::conn_param::QpIdentity;
use crate::error::ConnectError;
use crate::event::CmEventType;
use crate::event_channel::EventChannel;
use crate::id::Id;
use crate::link::Link;
use crate::params::{ConnectParams, check_private_data};
use crate::path::Path;
use crate::progress::{InProgress, is_over, sealed::Sealed};
use crate::qp_change;
use crate::wait::Descriptor;

const ASK: &str = "rdma_connect";
const ACCEPT: &str = "rdma_accept";

/// Sends a request for such a queue pair.
pub(crate) fn ask<T: Transport>(
    id: Id,
    path: Path,
    qp: &QueuePair<T>,
    params: &ConnectParams<'_>,
) -> std::result::Result<Asking, ConnectError> {
    check(ASK, &path, qp)?;
    params.check(ASK, path.private_data_limits().request)?;
    id.connect(params, QpIdentity::of(qp), &path)?;
    let channel = id.channel().clone();
    Ok(Asking {
        id: Some(id),
        channel,
        path,
    })
}

/// Accepts a request for such a queue pair.
pub(crate) fn accept<T: Transport>(
    mut id: Id,
    path: Path,
    qp: &QueuePair<T>,
    params: &ConnectParams<'_>,
    private_data: Vec<u8>,
) -> std::result::Result<Awaiting, ConnectError> {
    check(ACCEPT, &path, qp)?;
    params.check(ACCEPT, path.private_data_limits().reply)?;
    id.accept(params, QpIdentity::of(qp), &path)?;
    let channel = id.channel().clone();
    Ok(Awaiting {
        accepted: Some((id, private_data)),
        channel,
        path,
    })
}

fn check<T: Transport>(verb: &'static str, path: &Path, qp: &QueuePair<T>) -> Result<()> {
    path.check(verb, qp)?;
    if !path.is_iwarp() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        verb,
        format!("{path}: on iWARP the kernel moves the queue pair"),
    )
    .with_hint("give it to the connection with `with_qp`"))
}

/// A request sent by [`Route::ask`](crate::Route::ask), on its way to the peer's answer.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Uc};
/// use rdmacm::{Answer, Asking, ConnectParams, InProgress, Route};
/// use std::time::Duration;
/// # fn f(route: Route, qp: &QueuePair<Uc>) -> Result<Answer, ibverbs::Error> {
/// let asking: Asking = route.ask(qp, &ConnectParams::default())?;
/// Ok(asking.wait(Some(Duration::from_secs(5)))?)
/// # }
/// ```
///
/// # References
/// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)
#[derive(Debug)]
pub struct Asking {
    id: Option<Id>,
    channel: EventChannel,
    path: Path,
}

impl Sealed for Asking {
    const VERB: &'static str = ASK;

    fn what(&self) -> String {
        self.path.to_string()
    }

    fn descriptor(&self) -> Descriptor {
        self.channel.descriptor()
    }
}

impl InProgress for Asking {
    type Output = Answer;
    type Error = ConnectError;

    fn try_finish(&mut self) -> std::result::Result<Option<Answer>, ConnectError> {
        let id = self.id.take().ok_or_else(|| is_over(ASK, &self.path))?;
        let Some(event) = id.try_event()? else {
            self.id = Some(id);
            return Ok(None);
        };
        match event.event_type() {
            CmEventType::CONNECT_RESPONSE => Ok(Some(Answer {
                id,
                path: self.path.clone(),
                private_data: event.private_data().to_vec(),
            })),
            _ => Err(ConnectError::from_event(ASK, &self.path, &event)),
        }
    }
}

impl AsFd for Asking {
    /// Readable when there is something to do: call [`try_finish`](InProgress::try_finish).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// A peer's yes to [`Route::ask`](crate::Route::ask). It waits for this side's queue pair to follow
/// to RTR and RTS, and to be [told so](Self::establish). Dropping it ends the connection.
///
/// # Example
/// ```no_run
/// use ibverbs::{QpState, QueuePair, Rc};
/// use rdmacm::{Answer, Link};
/// # fn f(answer: Answer, qp: &mut QueuePair<Rc>) -> ibverbs::Result<Link> {
/// if answer.private_data().first() != Some(&1) {
///     answer.reject(b"only version 1 is spoken here")?;
///     return Err(ibverbs::Error::new(
///         ibverbs::ErrorKind::Disconnected,
///         "connect",
///         "of another version",
///     ));
/// }
/// qp.modify(&answer.qp_change(QpState::RTR)?)?;
/// qp.modify(&answer.qp_change(QpState::RTS)?)?;
/// answer.establish()
/// # }
/// ```
///
/// # References
/// [`rdma_establish(3)`](https://man7.org/linux/man-pages/man3/rdma_establish.3.html)
#[derive(Debug)]
#[must_use = "the peer waits until `establish`"]
pub struct Answer {
    id: Id,
    path: Path,
    private_data: Vec<u8>,
}

impl Answer {
    /// What the peer gave along, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// What the queue pair needs to enter RTR, and after that RTS.
    ///
    /// # Errors
    /// Fails when the peer has gone meanwhile.
    ///
    /// # References
    /// [`rdma_init_qp_attr(3)`](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    pub fn qp_change(&self, state: QpState) -> Result<QpChange> {
        qp_change::to(state, &self.id, &self.path)
    }

    /// Tells the peer that this side's queue pair is in RTS: the connection stands.
    ///
    /// # Errors
    /// Fails when the peer has gone meanwhile.
    ///
    /// # References
    /// [`rdma_establish(3)`](https://man7.org/linux/man-pages/man3/rdma_establish.3.html)
    pub fn establish(self) -> Result<Link> {
        self.id.establish(&self.path)?;
        Ok(Link::new(self.id, self.path, self.private_data))
    }

    /// Says no after all, so that the peer need not wait.
    ///
    /// # Errors
    /// As [`ConnectRequest::reject`](crate::ConnectRequest::reject).
    ///
    /// # References
    /// [`rdma_reject(3)`](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    pub fn reject(mut self, reason: &[u8]) -> Result<()> {
        check_private_data(
            "rdma_reject",
            reason,
            self.path.private_data_limits().reject,
        )?;
        self.id.reject(reason, &self.path)
    }
}

/// A request accepted by [`ConnectRequest::accept_by_hand`](crate::ConnectRequest::accept_by_hand),
/// until the peer's queue pair has followed. Dropping it disconnects.
///
/// # Example
/// ```no_run
/// use ibverbs::{QpState, QueuePair, Rc};
/// use rdmacm::{Awaiting, ConnectParams, ConnectRequest, InProgress, Link};
/// use std::time::Duration;
/// # fn f(request: ConnectRequest, qp: &mut QueuePair<Rc>) -> Result<Link, ibverbs::Error> {
/// for state in [QpState::INIT, QpState::RTR, QpState::RTS] {
///     qp.modify(&request.qp_change(state)?)?;
/// }
/// let awaiting: Awaiting = request.accept_by_hand(qp, &ConnectParams::default())?;
/// Ok(awaiting.wait(Some(Duration::from_secs(5)))?)
/// # }
/// ```
///
/// # References
/// [`rdma_accept(3)`](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
#[derive(Debug)]
pub struct Awaiting {
    accepted: Option<(Id, Vec<u8>)>,
    channel: EventChannel,
    path: Path,
}

impl Awaiting {
    /// Tells the connection manager that the device says of the queue pair that the peer has spoken
    /// ([`COMM_EST`](EventType::COMM_EST)), as a first message does too: the connection stands,
    /// even if the peer's word of it was lost.
    ///
    /// # Errors
    /// `EISCONN` when the connection stands already; `EINVAL` for other events.
    ///
    /// # References
    /// [`rdma_notify(3)`](https://man7.org/linux/man-pages/man3/rdma_notify.3.html)
    pub fn notify(&self, event: EventType) -> Result<()> {
        let (id, _) = self
            .accepted
            .as_ref()
            .ok_or_else(|| is_over(ACCEPT, &self.path))?;
        id.notify(event, &self.path)
    }
}

impl Sealed for Awaiting {
    const VERB: &'static str = ACCEPT;

    fn what(&self) -> String {
        self.path.to_string()
    }

    fn descriptor(&self) -> Descriptor {
        self.channel.descriptor()
    }
}

impl InProgress for Awaiting {
    type Output = Link;
    type Error = ConnectError;

    fn try_finish(&mut self) -> std::result::Result<Option<Link>, ConnectError> {
        let (id, private_data) = self
            .accepted
            .take()
            .ok_or_else(|| is_over(ACCEPT, &self.path))?;
        let Some(event) = id.try_event()? else {
            self.accepted = Some((id, private_data));
            return Ok(None);
        };
        match event.event_type() {
            CmEventType::ESTABLISHED => Ok(Some(Link::new(id, self.path.clone(), private_data))),
            _ => Err(ConnectError::from_event(ACCEPT, &self.path, &event)),
        }
    }
}

impl AsFd for Awaiting {
    /// Readable when there is something to do: call [`try_finish`](InProgress::try_finish).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
