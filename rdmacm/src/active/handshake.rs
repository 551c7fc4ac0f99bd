//! The TCP handshake of `rdma_connect` on iWARP, on a separate thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use ibverbs::{Errno, Error, ErrorKind, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Attempt, VERB, threads};
use crate::error::{ConnectError, Rejection};
use crate::event::EventChannel;
use crate::id::Path;
use crate::params::ConnectParams;
use crate::reject::RejectReason;
use crate::wait::Descriptor;

/// A call of `rdma_connect` on iWARP. The kernel performs the TCP handshake inside the call and
/// without a time limit, so a thread makes the call. The thread owns the attempt, and drops it if
/// the caller no longer waits.
#[derive(Debug)]
pub(crate) struct IwarpHandshake {
    results: Receiver<(Attempt, Result<()>)>,
    /// Contains the eventfd until the thread has finished, and the event channel after that.
    epoll: Arc<EpollFd>,
    done: Arc<EventFd>,
    channel: EventChannel,
}

impl IwarpHandshake {
    pub(crate) fn start(attempt: Attempt, params: &ConnectParams<'_>, path: &Path) -> Result<Self> {
        let channel = attempt.id.channel().clone();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| failed("epoll_create1", errno, path))?;
        let epoll = Arc::new(EpollFd(epoll));
        let done = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| failed("eventfd", errno, path))?;
        let done = Arc::new(done);
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        epoll
            .0
            .add(&*done, readable)
            .map_err(|errno| failed("epoll_ctl", errno, path))?;

        let (sender, results) = mpsc::sync_channel(1);
        let private_data = params.private_data.to_vec();
        let params_without_data = ConnectParams {
            private_data: &[],
            ..*params
        };
        let (thread_path, signal) = (path.clone(), SignalOnDrop(Arc::clone(&done)));
        spawn(path, move || {
            let result = attempt.send_request(
                &params_without_data.private_data(&private_data),
                &thread_path,
            );
            // If the receiver is gone, the error contains the attempt and drops it here.
            drop(sender.send((attempt, result)));
            drop(signal);
        })?;
        Ok(Self {
            results,
            epoll,
            done,
            channel,
        })
    }

    /// Returns the attempt after the thread has finished, or `None` before.
    pub(crate) fn try_take(&self, path: &Path) -> Result<Option<Attempt>, ConnectError> {
        let (attempt, result) = match self.results.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return Ok(None),
            Err(TryRecvError::Disconnected) => {
                return Err(Error::new(
                    ErrorKind::Os,
                    VERB,
                    format!("{path}: the thread of the handshake has ended"),
                )
                .into());
            }
        };
        match result {
            Ok(()) => {
                let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
                let switched = self
                    .epoll
                    .0
                    .delete(&*self.done)
                    .and_then(|()| self.epoll.0.add(&self.channel, readable));
                switched.map_err(|errno| failed("epoll_ctl", errno, path))?;
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

    pub(crate) fn descriptor(&self) -> Descriptor {
        Arc::clone(&self.epoll) as Descriptor
    }
}

impl AsFd for IwarpHandshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[derive(Debug)]
struct EpollFd(Epoll);

impl AsFd for EpollFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

/// Signals the end of the thread when it is dropped, even on a panic.
struct SignalOnDrop(Arc<EventFd>);

impl Drop for SignalOnDrop {
    fn drop(&mut self) {
        // The counter cannot overflow with a single write.
        let _ = self.0.write(1);
    }
}

pub(super) fn spawn(path: &Path, work: impl FnOnce() + Send + 'static) -> Result<()> {
    threads::run("rdma_connect", work).map_err(|error| {
        Error::new(
            ErrorKind::Os,
            VERB,
            format!("{path}: could not start a thread for the handshake: {error}"),
        )
    })
}

fn failed(verb: &'static str, errno: nix::errno::Errno, path: &Path) -> Error {
    crate::convert::failed(verb, Errno(errno as i32), path)
}
