//! Wakeups between threads that wait on one shared channel.

use std::os::fd::{AsFd, BorrowedFd};

use ibverbs::{Errno, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::convert::failed;
use crate::event::{Announce, Channel};

/// An epoll instance with the kernel's descriptor and an eventfd. The eventfd is readable while any
/// event queue has events, so that a thread also wakes for events that another thread has read.
#[derive(Debug)]
pub(crate) struct Waker {
    epoll: Epoll,
    eventfd: EventFd,
}

impl Waker {
    pub(crate) fn new(channel: &Channel) -> Result<Self> {
        let explain = |verb| {
            move |errno: nix::errno::Errno| failed(verb, Errno(errno as i32), &"event channel")
        };
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(explain("epoll_create1"))?;
        let eventfd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(explain("eventfd"))?;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        epoll
            .add(channel, readable)
            .and_then(|()| epoll.add(&eventfd, readable))
            .map_err(explain("epoll_ctl"))?;
        Ok(Self { epoll, eventfd })
    }
}

impl Announce for Option<Waker> {
    fn announce(&self, has_next: bool) {
        // The counter is 0 or 1, so neither call fails.
        if let Some(Waker { eventfd, .. }) = self {
            let _ = if has_next {
                eventfd.write(1).map(drop)
            } else {
                eventfd.read().map(drop)
            };
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}
