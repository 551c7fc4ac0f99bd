//! What listens: an identifier from whose channel several threads take requests.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use crate::address::Address;
use crate::event::{CmEventType, Event, EventChannel, IdKey};
use crate::id::Id;

/// A listening identifier.
#[derive(Debug)]
pub(crate) struct ListeningId {
    id: Mutex<Id>,
    channel: EventChannel,
    key: IdKey,
    local: SocketAddr,
}

impl ListeningId {
    pub(crate) fn new(id: Id, bound: Address) -> Self {
        let unknown = match bound {
            Address::Ip(address) => address,
            Address::Ib(address) => SocketAddr::new(address.gid.as_ipv6().into(), address.port()),
        };
        let local = id.local_addr().unwrap_or(unknown);
        let (channel, key) = (id.channel().clone(), id.key());
        Self {
            id: Mutex::new(id),
            channel,
            key,
            local,
        }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn key(&self) -> IdKey {
        self.key
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn channel(&self) -> &EventChannel {
        &self.channel
    }

    pub(crate) fn accept<R>(
        &self,
        timeout: Option<Duration>,
        make: impl Fn(Id, &Event) -> Result<R>,
    ) -> Result<Option<R>> {
        self.channel.wait_for(timeout, || self.try_accept(&make))
    }

    pub(crate) fn try_accept<R>(
        &self,
        make: impl Fn(Id, &Event) -> Result<R>,
    ) -> Result<Option<R>> {
        let id = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(mut event) = id.try_event()? {
            if let Some(new) = id.take_request_id(&mut event)? {
                return make(new, &event).map(Some);
            }
            fault(self.local, event.event_type())?;
        }
        Ok(None)
    }
}

/// Which events of a listener are errors.
fn fault(local: SocketAddr, event_type: CmEventType) -> Result<()> {
    let (what, remedy) = match event_type {
        CmEventType::DEVICE_REMOVAL => (
            "the device was removed",
            "drop the listener, so that the removal can go on",
        ),
        CmEventType::ADDR_CHANGE => ("the address moved to another interface", "listen anew"),
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::NotFound,
        "rdma_listen",
        format!("{local}: {what}"),
    )
    .with_hint(remedy))
}

impl AsFd for ListeningId {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_device_and_a_moved_address_are_errors_of_the_listener() {
        let local: SocketAddr = "10.99.0.1:7471".parse().expect("an address");
        for event_type in [CmEventType::DEVICE_REMOVAL, CmEventType::ADDR_CHANGE] {
            let error = fault(local, event_type).expect_err("an error");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(
                error.to_string().contains("10.99.0.1:7471") && error.hint().is_some(),
                "{error}"
            );
        }
        fault(local, CmEventType::ESTABLISHED).expect("of somebody else");
    }
}
