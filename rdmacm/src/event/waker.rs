//! What wakes those who sleep on a shared channel.

use std::os::fd::{AsFd, BorrowedFd};

use ibverbs::{Errno, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::convert::failed;
use crate::event::Channel;

/// What sleeps on a shared channel watches the kernel's descriptor, and a counter that is above 0
/// while there is something in a box: what one thread took off the channel for another wakes that
/// one too.
#[derive(Debug)]
pub(crate) struct Waker {
    either: Epoll,
    counter: EventFd,
}

impl Waker {
    pub(crate) fn new(channel: &Channel) -> Result<Self> {
        let explain = |verb| {
            move |errno: nix::errno::Errno| failed(verb, Errno(errno as i32), &"event channel")
        };
        let either =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(explain("epoll_create1"))?;
        let counter = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(explain("eventfd"))?;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        either
            .add(channel, readable)
            .and_then(|()| either.add(&counter, readable))
            .map_err(explain("epoll_ctl"))?;
        Ok(Self { either, counter })
    }

    /// Something is in a box.
    pub(crate) fn ring(&self) {
        // It fails only when the counter is full, and then it rings already.
        let _ = self.counter.write(1);
    }

    /// Nothing is in any box.
    pub(crate) fn silence(&self) {
        // It fails only when it does not ring.
        let _ = self.counter.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.0.as_fd()
    }
}
