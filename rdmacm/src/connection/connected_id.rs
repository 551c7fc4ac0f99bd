//! An established connection without its queue pair.

use std::os::fd::{AsFd, BorrowedFd};
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result, event::EventType};

use crate::event::{CmEvent, CmEventType, Event, EventChannel, IdKey};
use crate::id::path::path_accessors;
use crate::id::{Id, Path};
use crate::params::Ece;
#[cfg(feature = "tokio")]
use crate::wait::Readable;

const VERB: &str = "rdma_get_cm_event";

/// Connection manager state of an established connection: its addresses and events. The queue pair
/// is either in the [`Connection`](crate::Connection) that contains this, or owned by the
/// application (see [`Route::request`](crate::Route::request)). Dropping it disconnects.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Uc};
/// use rdmacm::connection::ConnectedId;
/// # fn f(mut id: ConnectedId, qp: QueuePair<Uc>) -> ibverbs::Result<()> {
/// while !id.is_disconnected() {
///     if let Some(event) = id.wait_event(None)? {
///         println!("{}", event.event_type);
///     }
/// }
/// qp.destroy()?; // destroy the queue pair before the identifier
/// drop(id);
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_disconnect")]
#[derive(Debug)]
#[must_use = "dropping it disconnects"]
pub struct ConnectedId {
    id: Id,
    pub(super) path: Path,
    private_data: Vec<u8>,
    is_disconnected: bool,
    /// Registration of the channel with the runtime of the first call that awaits an event.
    #[cfg(feature = "tokio")]
    readable: Option<Readable>,
}

path_accessors!(
    ConnectedId,
    "The device that the connection runs over.",
    "The local address."
);

impl ConnectedId {
    pub(crate) fn new(id: Id, path: Path, private_data: Vec<u8>) -> Self {
        Self {
            id,
            path,
            private_data,
            is_disconnected: false,
            #[cfg(feature = "tokio")]
            readable: None,
        }
    }

    /// Returns the private data that the peer sent with its request or acceptance. On InfiniBand
    /// and RoCE it is padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns `true` if this side has disconnected, or has received the event of the peer's
    /// disconnect.
    pub fn is_disconnected(&self) -> bool {
        self.is_disconnected
    }

    /// Returns the options that the peer's driver sent in the handshake; all zeros if there were
    /// none.
    ///
    /// # Errors
    /// Fails if librdmacm does not support it.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Ece> {
        self.id.remote_ece(&self.path)
    }

    /// Returns the key that an [`EventChannel`] returns for this connection.
    pub fn key(&self) -> IdKey {
        self.id.key()
    }

    /// Moves the connection to another event channel, together with its unread events.
    ///
    /// # Errors
    /// Fails if the device was removed. The connection then stays on its channel.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        #[cfg(feature = "tokio")]
        {
            self.readable = None;
        }
        self.id.migrate(to)
    }

    /// Forwards an event of the queue pair to the connection manager:
    /// [`COMM_EST`](EventType::COMM_EST), the peer's first message has arrived, or
    /// [`PATH_MIG`](EventType::PATH_MIG), the alternate path is in use. Has no effect on iWARP.
    ///
    /// # Errors
    /// `EISCONN` for `COMM_EST` if the connection is already established. `EINVAL` for other
    /// events.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: EventType) -> Result<()> {
        self.id.notify(event, &self.path)
    }

    /// Returns the next event, if there is one. After [`CmEventType::DISCONNECTED`] the connection
    /// has ended. A peer that accepts and then drops the connection before it has received the last
    /// message of the handshake causes this event as well, with the status `-ECONNRESET`. The
    /// kernel reports [`CmEventType::REJECTED`] then.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: the device is being removed and the connection has ended. Drop it
    ///   so that the removal can complete.
    /// - [`ErrorKind::PortDown`]: the local address moved to another network interface, for example
    ///   by a bonding failover. The connection may continue on the old path. Connect again to
    ///   follow the address.
    /// - Other kinds if reading the event fails. A disconnect by the peer is an event, not an
    ///   error.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn try_event(&mut self) -> Result<Option<CmEvent>> {
        let Some(event) = self.id.try_event()?.map(Event::into_public) else {
            return Ok(None);
        };
        let event = rejected_to_disconnected(event);
        if matches!(
            event.event_type,
            CmEventType::DISCONNECTED | CmEventType::DEVICE_REMOVAL
        ) {
            // The peer waits for the disconnect reply. If sending it fails, nothing else can be
            // done.
            let _ = self.disconnect();
        }
        event_or_error(&self.path, event).map(Some)
    }

    /// Waits for an event, at most for `timeout` (forever if `None`). Returns `Ok(None)` on
    /// timeout.
    ///
    /// # Errors
    /// Same as [`try_event`](Self::try_event).
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait_event(&mut self, timeout: Option<Duration>) -> Result<Option<CmEvent>> {
        let channel = self.id.channel().clone();
        channel.wait_for(timeout, || self.try_event())
    }

    /// Awaits an event. Needs a tokio runtime with I/O enabled.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no event.
    ///
    /// # Errors
    /// Same as [`try_event`](Self::try_event); also [`ErrorKind::InvalidInput`] if the
    /// connection is on a shared channel. Await [`EventChannel::next`] instead.
    #[doc(alias = "rdma_get_cm_event")]
    #[cfg(feature = "tokio")]
    pub async fn event(&mut self) -> Result<CmEvent> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Polls for an event, for types that are polled. Wakes the task of the last call when there
    /// may be one. The first call binds the connection to the current runtime.
    ///
    /// # Errors
    /// Same as [`event`](Self::event).
    #[doc(alias = "rdma_get_cm_event")]
    #[cfg(feature = "tokio")]
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent>> {
        loop {
            if let Some(event) = self.try_event()? {
                return Poll::Ready(Ok(event));
            }
            let readable = match &mut self.readable {
                Some(readable) => readable,
                none => none.insert(self.id.channel().register_with_tokio()?),
            };
            if !readable.poll_clear(cx)? {
                return Poll::Pending;
            }
        }
    }

    /// Ends the connection.
    ///
    /// Both sides receive the event [`CmEventType::DISCONNECTED`]. A second call has no effect.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_disconnected, true) {
            return Ok(());
        }
        match self.id.disconnect(&self.path) {
            // The peer has disconnected first, and the kernel has already released the connection.
            Err(error)
                if error
                    .errno()
                    .is_some_and(|errno| matches!(errno.0, libc::EINVAL | libc::ENOTCONN)) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    pub(crate) fn channel(&self) -> &EventChannel {
        self.id.channel()
    }
}

/// Returns the event, or the error that it stands for.
fn event_or_error(path: &Path, event: CmEvent) -> Result<CmEvent> {
    match event.event_type {
        CmEventType::DEVICE_REMOVAL => Err(Error::new(
            ErrorKind::NotFound,
            VERB,
            format!("{path}: the device is being removed"),
        )
        .with_help("drop the connection so that the removal can complete")),
        CmEventType::ADDR_CHANGE => {
            let detail = format!("{path}: the local address moved to another interface");
            Err(Error::new(ErrorKind::PortDown, VERB, detail)
                .with_help("connect again to follow the address"))
        }
        _ => Ok(event),
    }
}

impl AsFd for ConnectedId {
    /// Readable if there is an event. On a shared channel: if there is an event of any identifier.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

/// Replaces the event of a peer that has withdrawn its acceptance (docs/drivers.md, fact 62).
fn rejected_to_disconnected(event: CmEvent) -> CmEvent {
    if event.event_type != CmEventType::REJECTED {
        return event;
    }
    CmEvent {
        event_type: CmEventType::DISCONNECTED,
        status: -libc::ECONNRESET,
        ..event
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ibverbs::device::TransportType;

    use super::*;

    #[test]
    fn device_removal_and_address_change_are_errors() {
        let address: SocketAddr = "10.99.0.1:7".parse().expect("an address");
        let (device, transport) = ("rxe0".to_owned(), TransportType::IB);
        let path = Path {
            device,
            transport,
            is_ip: true,
            port_num: 1,
            local: address,
            peer: address,
        };
        let check = |event_type| {
            event_or_error(
                &path,
                CmEvent {
                    event_type,
                    status: 0,
                    private_data: Vec::new(),
                },
            )
        };
        for (event_type, kind) in [
            (CmEventType::DEVICE_REMOVAL, ErrorKind::NotFound),
            (CmEventType::ADDR_CHANGE, ErrorKind::PortDown),
        ] {
            let error = check(event_type).expect_err("an error");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(
                error.to_string().contains("rxe0") && error.help().is_some(),
                "{error}"
            );
        }
        for event_type in [CmEventType::DISCONNECTED, CmEventType::TIMEWAIT_EXIT] {
            assert_eq!(check(event_type).expect("no error").event_type, event_type);
        }
    }

    #[test]
    fn a_withdrawn_acceptance_ends_the_connection() {
        let event = |event_type, status| CmEvent {
            event_type,
            status,
            private_data: vec![7],
        };
        assert_eq!(
            rejected_to_disconnected(event(CmEventType::REJECTED, 28)),
            event(CmEventType::DISCONNECTED, -libc::ECONNRESET)
        );
        let other = event(CmEventType::TIMEWAIT_EXIT, 0);
        assert_eq!(rejected_to_disconnected(other.clone()), other);
    }
}
