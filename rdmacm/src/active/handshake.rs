//! The TCP handshake of `rdma_connect` on iWARP, on a separate thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ibverbs::{Errno, Error, ErrorKind, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::oneshot::{self, Closed, Receiver};
use super::{Attempt, VERB, threads};
use crate::error::{ConnectError, Rejection};
use crate::event::{EventChannel, IdKey};
use crate::id::Path;
use crate::params::ConnectParams;
use crate::reject::RejectReason;

/// A call of `rdma_connect` on iWARP. The kernel performs the TCP handshake inside the call and
/// without a time limit, so a thread makes the call. The thread owns the attempt, and drops it if
/// the caller no longer waits.
#[derive(Debug)]
pub(crate) struct IwarpHandshake {
    outcome: Receiver<Outcome>,
    /// The descriptor of the operation, unless it is on a shared channel.
    descriptor: Option<Arc<Switch>>,
}

type Outcome = (Attempt, Result<()>);

impl IwarpHandshake {
    /// Starts the call. `has_descriptor` is `false` if the caller uses no descriptor.
    pub(crate) fn start(
        attempt: Attempt,
        params: &ConnectParams<'_>,
        path: &Path,
        has_descriptor: bool,
    ) -> Result<Self> {
        let (channel, addr, key) = (
            attempt.id.channel().clone(),
            attempt.id.addr(),
            attempt.id.key(),
        );
        let mut descriptor = None;
        let signal = if channel.is_shared() {
            channel.hide(addr);
            Some(Signal::Channel(channel, addr, key))
        } else if has_descriptor {
            let switch = descriptor.insert(Arc::new(Switch::new(channel, path)?));
            Some(Signal::Descriptor(Arc::clone(switch)))
        } else {
            None
        };

        let (sender, outcome) = oneshot::channel();
        let private_data = params.private_data.to_vec();
        let params_without_data = ConnectParams {
            private_data: &[],
            ..*params
        };
        let (thread_path, signal) = (path.clone(), SignalOnDrop(signal));
        spawn(path, move || {
            let result = attempt.send_request(
                &params_without_data.private_data(&private_data),
                &thread_path,
            );
            // If the caller no longer waits, the attempt is returned and dropped here.
            drop(sender.send((attempt, result)));
            drop(signal);
        })?;
        Ok(Self {
            outcome,
            descriptor,
        })
    }

    /// Sleeps until the thread has finished, at most for `timeout` (forever if `None`).
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.outcome.sleep(timeout);
    }

    /// Leaves the attempt to the thread, or returns it if the call has succeeded. If the call has
    /// failed, the kernel no longer holds the attempt, and this drops it.
    pub(crate) fn abandon(self) -> Option<Attempt> {
        let (attempt, result) = self.outcome.close()?;
        result.is_ok().then_some(attempt)
    }

    /// Returns the attempt after the thread has finished, or `None` before.
    pub(crate) fn try_take(&self, path: &Path) -> Result<Option<Attempt>, ConnectError> {
        let (attempt, result) = match self.outcome.try_recv() {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return Ok(None),
            Err(Closed) => {
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
                if let Some(switch) = &self.descriptor {
                    switch.to_channel(path)?;
                }
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

    /// Returns the descriptor, or `None` if it is that of the channel.
    pub(crate) fn descriptor(&self) -> Option<&Arc<Switch>> {
        self.descriptor.as_ref()
    }
}

/// An epoll instance that contains an eventfd until the thread has finished, and the event channel
/// after that.
#[derive(Debug)]
pub(crate) struct Switch {
    epoll: Epoll,
    done: EventFd,
    channel: EventChannel,
}

impl Switch {
    fn new(channel: EventChannel, path: &Path) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| failed("epoll_create1", errno, path))?;
        let done = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| failed("eventfd", errno, path))?;
        epoll
            .add(&done, EpollEvent::new(EpollFlags::EPOLLIN, 0))
            .map_err(|errno| failed("epoll_ctl", errno, path))?;
        Ok(Self {
            epoll,
            done,
            channel,
        })
    }

    fn to_channel(&self, path: &Path) -> Result<()> {
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        self.epoll
            .delete(&self.done)
            .and_then(|()| self.epoll.add(&self.channel, readable))
            .map_err(|errno| failed("epoll_ctl", errno, path))
    }
}

impl AsFd for Switch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// The descriptor that becomes readable when the thread ends.
enum Signal {
    Descriptor(Arc<Switch>),
    /// A shared channel, which returns the key of the identifier at this address.
    Channel(EventChannel, usize, IdKey),
}

/// Signals the end of the thread when it is dropped, even on a panic.
struct SignalOnDrop(Option<Signal>);

impl Drop for SignalOnDrop {
    fn drop(&mut self) {
        match &self.0 {
            None => {}
            Some(Signal::Descriptor(switch)) => {
                // The counter cannot overflow with a single write.
                let _ = switch.done.write(1);
            }
            Some(Signal::Channel(channel, addr, key)) => channel.returned(*addr, *key),
        }
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
