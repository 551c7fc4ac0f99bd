//! EstablishPending that a descriptor is readable, on tokio.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, RawFd};
use std::task::{Context as TaskContext, Poll};
use std::{fmt, io};

use ibverbs::{Errno, Error, ErrorKind, Result};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::Descriptor;

const VERB: &str = "epoll_ctl";

/// A descriptor that tokio watches.
pub(crate) struct Readable(AsyncFd<Owner>);

/// Keeps the descriptor open.
struct Owner(Descriptor);

impl AsRawFd for Owner {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Readable {
    pub(crate) fn new(descriptor: Descriptor) -> Result<Self> {
        if Handle::try_current().is_err() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                VERB,
                "event channel: awaited outside of a tokio runtime",
            )
            .with_hint("call it from a task, on a runtime made with `enable_io`"));
        }
        // SAFETY: the owner keeps the descriptor open and the same for its whole life, which is
        // that of the `AsyncFd`: an event channel and an epoll instance close theirs when
        // the last `Arc` goes.
        let registered =
            unsafe { AsyncFd::register_with_interest(Owner(descriptor), Interest::READABLE) };
        registered
            .map(Self)
            .map_err(|error| failed(&error.into_parts().1))
    }

    /// Takes, or awaits until something can be taken. Several tasks may await at once.
    pub(crate) async fn take<T, E: From<Error>>(
        &self,
        mut take: impl FnMut() -> std::result::Result<Option<T>, E>,
    ) -> std::result::Result<T, E> {
        loop {
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            let mut ready = self.0.readable().await.map_err(|error| failed(&error))?;
            // What comes after this look is not forgotten: tokio clears only what it had seen.
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            ready.clear_ready();
        }
    }

    /// Whether it was readable; then it is asked anew. If not, the task is woken when it is.
    pub(crate) fn poll_clear(&self, context: &mut TaskContext<'_>) -> Result<bool> {
        match self.0.poll_read_ready(context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(mut ready)) => {
                ready.clear_ready();
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(failed(&error)),
        }
    }
}

impl fmt::Debug for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readable")
            .field(&self.0.get_ref().as_raw_fd())
            .finish()
    }
}

fn failed(error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(errno) => Error::of_verb(VERB, Errno(errno), "event channel"),
        None => Error::new(ErrorKind::Os, VERB, format!("event channel: {error}")),
    }
}
