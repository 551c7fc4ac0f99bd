//! An established connection without its queue pair.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result, event::EventType};

use crate::event::{CmEvent, CmEventType, Event, EventChannel, IdKey};
use crate::id::path::path_accessors;
use crate::id::{Id, Path};
use crate::params::Ece;

const VERB: &str = "rdma_get_cm_event";

/// What the connection manager knows of an established connection: addresses, events, the end. The
/// queue pair is elsewhere: in a [`Connection`](crate::Connection) with it, or with an application
/// that [moves it by hand](crate::Route::request). Dropping it disconnects.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Uc};
/// use rdmacm::connection::ConnectedId;
/// # fn f(mut link: ConnectedId, qp: QueuePair<Uc>) -> ibverbs::Result<()> {
/// while !link.is_disconnected() {
///     if let Some(event) = link.wait_event(None)? {
///         println!("{}", event.event_type);
///     }
/// }
/// qp.destroy()?; // first the queue pair, then the link
/// drop(link);
/// # Ok(()) }
/// ```
///
/// # References
/// [`rdma_disconnect(3)`](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
#[derive(Debug)]
#[must_use = "dropping a link disconnects it"]
pub struct ConnectedId {
    id: Id,
    path: Path,
    private_data: Vec<u8>,
    is_disconnected: bool,
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
        }
    }

    /// What the peer gave along with its request or its acceptance. On InfiniBand and RoCE padded
    /// with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Whether this side has disconnected, or has seen that the peer did.
    pub fn is_disconnected(&self) -> bool {
        self.is_disconnected
    }

    /// What the peer's driver offered in the handshake; all zeros when nothing.
    ///
    /// # Errors
    /// Fails when librdmacm is too old to know.
    ///
    /// # References
    /// [`rdma_get_remote_ece(3)`](https://man7.org/linux/man-pages/man3/rdma_get_remote_ece.3.html)
    pub fn remote_ece(&self) -> Result<Ece> {
        self.id.remote_ece(&self.path)
    }

    /// What an [`EventChannel`] calls it.
    pub fn key(&self) -> IdKey {
        self.id.key()
    }

    /// Has the events arrive at another channel, those too that nobody has taken yet.
    ///
    /// # Errors
    /// Fails when the device is gone; the connection stays where it was.
    ///
    /// # References
    /// [`rdma_migrate_id(3)`](https://man7.org/linux/man-pages/man3/rdma_migrate_id.3.html)
    pub fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        self.id.migrate(to)
    }

    /// Tells the connection manager what the device said of the queue pair: that the peer has
    /// spoken ([`COMM_EST`](EventType::COMM_EST)), or that the alternate path is in use
    /// ([`PATH_MIG`](EventType::PATH_MIG)). On iWARP it does nothing.
    ///
    /// # Errors
    /// `EISCONN` for `COMM_EST` once the connection stands; `EINVAL` for other events.
    ///
    /// # References
    /// [`rdma_notify(3)`](https://man7.org/linux/man-pages/man3/rdma_notify.3.html)
    pub fn notify(&self, event: EventType) -> Result<()> {
        self.id.notify(event, &self.path)
    }

    /// Takes an event that is there already. After [`CmEventType::DISCONNECTED`] the connection is
    /// over.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: the device is being removed, and the connection is over; drop it,
    ///   so that the removal can go on;
    /// - [`ErrorKind::PortDown`]: the local address moved to another interface (as in a failover of
    ///   bonded ones). The connection may go on, over the old way; connect anew to follow the
    ///   address;
    /// - otherwise when the system fails. It does not fail when the peer ends the connection.
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn check_event(&mut self) -> Result<Option<CmEvent>> {
        let Some(event) = self.id.try_event()?.map(Event::into_public) else {
            return Ok(None);
        };
        if matches!(
            event.event_type,
            CmEventType::DISCONNECTED | CmEventType::DEVICE_REMOVAL
        ) {
            // The peer waits for the answer. Nothing can be done if it fails.
            let _ = self.disconnect();
        }
        meaning(&self.path, event).map(Some)
    }

    /// Waits for an event, at most for `timeout` (for ever when `None`); `Ok(None)` when the time
    /// is over.
    ///
    /// # Errors
    /// As [`check_event`](Self::check_event).
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn wait_event(&mut self, timeout: Option<Duration>) -> Result<Option<CmEvent>> {
        let channel = self.id.channel().clone();
        channel.wait_for(timeout, || self.check_event())
    }

    /// Awaits an event on a tokio runtime with I/O enabled; a dropped future loses none.
    ///
    /// # Errors
    /// As [`check_event`](Self::check_event); [`ErrorKind::InvalidInput`] on a channel for many,
    /// which is itself awaited.
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    #[cfg(feature = "tokio")]
    pub async fn event(&mut self) -> Result<CmEvent> {
        let readable = self.id.channel().watch()?;
        readable.take(|| self.check_event()).await
    }

    /// Ends the connection.
    ///
    /// The peer, and this side too, get the event [`CmEventType::DISCONNECTED`]. A second call does
    /// nothing.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`rdma_disconnect(3)`](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
    pub fn disconnect(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_disconnected, true) {
            return Ok(());
        }
        match self.id.disconnect(&self.path) {
            // The peer was faster, and the kernel has forgotten the connection.
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

/// Which events of a connection are errors.
fn meaning(path: &Path, event: CmEvent) -> Result<CmEvent> {
    match event.event_type {
        CmEventType::DEVICE_REMOVAL => Err(Error::new(
            ErrorKind::NotFound,
            VERB,
            format!("{path}: the device is being removed"),
        )
        .with_hint("drop the connection, so that the removal can go on")),
        CmEventType::ADDR_CHANGE => {
            let what = format!("{path}: the local address moved to another interface");
            Err(Error::new(ErrorKind::PortDown, VERB, what).with_hint("connect anew to follow it"))
        }
        _ => Ok(event),
    }
}

impl AsFd for ConnectedId {
    /// Readable when there is an event. On a channel for many: when there is one of any of them.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ibverbs::device::TransportType;

    use super::*;

    #[test]
    fn a_removed_device_and_a_moved_address_are_errors_and_a_peer_that_leaves_is_none() {
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
        let of = |event_type| {
            meaning(
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
            let error = of(event_type).expect_err("an error");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(
                error.to_string().contains("rxe0") && error.hint().is_some(),
                "{error}"
            );
        }
        for event_type in [CmEventType::DISCONNECTED, CmEventType::TIMEWAIT_EXIT] {
            assert_eq!(of(event_type).expect("no error").event_type, event_type);
        }
    }
}
