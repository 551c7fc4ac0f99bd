//! The listening identifier shared by both kinds of listeners.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use crate::address::Address;
use crate::event::{CmEventType, Event, EventChannel, IdKey};
use crate::id::Id;

/// A listening identifier, from which several threads can take requests.
#[derive(Debug)]
pub(crate) struct ListeningId {
    id: Mutex<Id>,
    channel: EventChannel,
    /// The channel of the identifiers of requests. `None`: each has a channel of its own.
    accept_on: Option<EventChannel>,
    key: IdKey,
    local: SocketAddr,
}

impl ListeningId {
    pub(crate) fn new(id: Id, bound: Address, accept_on: Option<EventChannel>) -> Self {
        let bound = match bound {
            Address::Ip(address) => address,
            Address::Ib(address) => SocketAddr::new(address.gid.as_ipv6().into(), address.port()),
        };
        let local = id.local_addr().unwrap_or(bound);
        let (channel, key) = (id.channel().clone(), id.key());
        Self {
            id: Mutex::new(id),
            channel,
            accept_on,
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

    pub(crate) fn next_request<R>(
        &self,
        timeout: Option<Duration>,
        create: impl Fn(Id, &Event) -> Result<R>,
    ) -> Result<Option<R>> {
        self.channel.wait_for(timeout, || self.try_request(&create))
    }

    pub(crate) fn try_request<R>(
        &self,
        create: impl Fn(Id, &Event) -> Result<R>,
    ) -> Result<Option<R>> {
        let id = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(mut event) = id.try_event()? {
            if let Some(new) = id.take_request_id(&mut event, self.accept_on.as_ref())? {
                return create(new, &event).map(Some);
            }
            check_event(self.local, event.event_type())?;
        }
        Ok(None)
    }
}

/// Returns the error that an event of a listener stands for, if it is one.
fn check_event(local: SocketAddr, event_type: CmEventType) -> Result<()> {
    let (cause, remedy) = match event_type {
        CmEventType::DEVICE_REMOVAL => (
            "the device was removed",
            "drop the listener so that the removal can complete",
        ),
        CmEventType::ADDR_CHANGE => ("the address moved to another interface", "listen again"),
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::NotFound,
        "rdma_listen",
        format!("{local}: {cause}"),
    )
    .with_help(remedy))
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
    fn device_removal_and_address_change_are_errors() {
        let local: SocketAddr = "10.99.0.1:7471".parse().expect("an address");
        for event_type in [CmEventType::DEVICE_REMOVAL, CmEventType::ADDR_CHANGE] {
            let error = check_event(local, event_type).expect_err("an error");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(
                error.to_string().contains("10.99.0.1:7471") && error.help().is_some(),
                "{error}"
            );
        }
        check_event(local, CmEventType::ESTABLISHED).expect("no error");
    }
}
