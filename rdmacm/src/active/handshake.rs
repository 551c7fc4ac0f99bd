//! The TCP handshake of `rdma_connect` on iWARP, in a thread of its own.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use ibverbs::{Errno, Error, ErrorKind, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Attempt, VERB};
use crate::error::{ConnectError, Rejection};
use crate::event::EventChannel;
use crate::id::Path;
use crate::params::ConnectParams;
use crate::reject::RejectReason;
use crate::wait::Descriptor;

/// A request on its way over iWARP. That is a TCP handshake, which the kernel does within the call
/// and without a time limit: so a thread calls, and keeps everything if nobody waits any more.
#[derive(Debug)]
pub(crate) struct Handshake {
    answered: Receiver<(Attempt, Result<()>)>,
    /// Readable when the thread is done, and after that when the channel is.
    either: Arc<Either>,
    done: Arc<EventFd>,
    channel: EventChannel,
}

impl Handshake {
    pub(crate) fn start(attempt: Attempt, params: &ConnectParams<'_>, path: &Path) -> Result<Self> {
        let channel = attempt.id.channel().clone();
        let either = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| failed("epoll_create1", errno, path))?;
        let either = Arc::new(Either(either));
        let done = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| failed("eventfd", errno, path))?;
        let done = Arc::new(done);
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        either
            .0
            .add(&*done, readable)
            .map_err(|errno| failed("epoll_ctl", errno, path))?;

        let (answer, answered) = mpsc::sync_channel(1);
        let private_data = params.private_data.to_vec();
        let numbers = ConnectParams {
            private_data: &[],
            ..*params
        };
        let (of_thread, tell) = (path.clone(), Tell(Arc::clone(&done)));
        in_thread(path, move || {
            let requested = attempt.request(
                &ConnectParams {
                    private_data: &private_data,
                    ..numbers
                },
                &of_thread,
            );
            // If nobody waits any more, the attempt comes back in the error and is dropped here.
            drop(answer.send((attempt, requested)));
            drop(tell);
        })?;
        Ok(Self {
            answered,
            either,
            done,
            channel,
        })
    }

    /// What the thread gives back, once it is done.
    pub(crate) fn try_take(
        &self,
        path: &Path,
    ) -> std::result::Result<Option<Attempt>, ConnectError> {
        let (attempt, requested) = match self.answered.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return Ok(None),
            Err(TryRecvError::Disconnected) => {
                return Err(Error::new(
                    ErrorKind::Os,
                    VERB,
                    format!("{path}: the thread of the handshake is gone"),
                )
                .into());
            }
        };
        match requested {
            Ok(()) => {
                let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
                let moved = self
                    .either
                    .0
                    .delete(&*self.done)
                    .and_then(|()| self.either.0.add(&self.channel, readable));
                moved.map_err(|errno| failed("epoll_ctl", errno, path))?;
                Ok(Some(attempt))
            }
            Err(error)
                if error
                    .errno()
                    .is_some_and(|errno| errno.0 == libc::ECONNREFUSED) =>
            {
                let rejection = Rejection {
                    reason: RejectReason::IWARP_REFUSED,
                    private_data: Vec::new(),
                };
                Err(ConnectError::rejected(VERB, path, rejection))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Handshake {
    pub(crate) fn descriptor(&self) -> Descriptor {
        Arc::clone(&self.either) as Descriptor
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}

#[derive(Debug)]
struct Either(Epoll);

impl AsFd for Either {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

/// Says that the thread is done, however it ends.
struct Tell(Arc<EventFd>);

impl Drop for Tell {
    fn drop(&mut self) {
        // A counter that nobody has read cannot be full after one write.
        let _ = self.0.write(1);
    }
}

pub(super) fn in_thread(path: &Path, work: impl FnOnce() + Send + 'static) -> Result<()> {
    match thread::Builder::new()
        .name("rdma_connect".into())
        .spawn(work)
    {
        Ok(_detached) => Ok(()),
        Err(error) => Err(Error::new(
            ErrorKind::Os,
            VERB,
            format!("{path}: no thread for the handshake: {error}"),
        )),
    }
}

fn failed(verb: &'static str, errno: nix::errno::Errno, path: &Path) -> Error {
    crate::convert::failed(verb, Errno(errno as i32), path)
}
