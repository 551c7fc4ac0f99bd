//! What listens: an identifier from whose channel several threads take requests.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use crate::address::Address;
use crate::channel::EventChannel;
use crate::deadline::Deadline;
use crate::event::{CmEventType, Event};
use crate::id::Id;

/// A listening identifier.
#[derive(Debug)]
pub(crate) struct Listening {
    id: Mutex<Id>,
    channel: Arc<EventChannel>,
    local: SocketAddr,
}

impl Listening {
    pub(crate) fn new(id: Id, bound: Address) -> Self {
        let unknown = match bound {
            Address::Ip(address) => address,
            Address::Ib(address) => SocketAddr::new(address.gid.as_ipv6().into(), address.port()),
        };
        let local = id.local_addr().unwrap_or(unknown);
        let channel = Arc::clone(id.channel());
        Self { id: Mutex::new(id), channel, local }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn channel(&self) -> &Arc<EventChannel> {
        &self.channel
    }

    pub(crate) fn accept<R>(
        &self,
        timeout: Option<Duration>,
        make: impl Fn(Id, &Event<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(request) = self.try_accept(&make)? {
                return Ok(Some(request));
            }
            if deadline.is_over() {
                return Ok(None);
            }
            self.channel.wait_readable(deadline)?;
        }
    }

    pub(crate) fn try_accept<R>(&self, make: impl Fn(Id, &Event<'_>) -> Result<R>) -> Result<Option<R>> {
        // One thread at a time, so that nobody takes an event of the new identifier before it is on a channel of its own.
        let id = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = id.try_event()? {
            if let Some(mut new) = id.adopt(&event) {
                new.migrate()?;
                return make(new, &event).map(Some);
            }
            match event.event_type() {
                CmEventType::DEVICE_REMOVAL => {
                    let what = format!("{}: the device was removed", self.local);
                    return Err(Error::new(ErrorKind::NotFound, "rdma_listen", what)
                        .with_hint("drop the listener, so that the removal can go on"));
                }
                CmEventType::ADDR_CHANGE => {
                    let what = format!("{}: the address moved to another interface", self.local);
                    return Err(Error::new(ErrorKind::NotFound, "rdma_listen", what).with_hint("listen anew"));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
