//! Waiting for a descriptor with tokio.

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

/// A descriptor registered with tokio.
pub struct Readable(AsyncFd<Owner>);

/// Keeps the descriptor open while it is registered.
struct Owner(Descriptor);

impl AsRawFd for Owner {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Readable {
    /// Registers a descriptor with the runtime of the current task.
    ///
    /// # Errors
    /// Fails outside of a runtime, or if the descriptor is registered already.
    pub fn new(descriptor: Descriptor) -> Result<Self> {
        if Handle::try_current().is_err() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                VERB,
                "event channel: awaited outside a tokio runtime",
            )
            .with_help("await it in a task of a runtime built with `enable_io`"));
        }
        // SAFETY: `Owner` holds an `Arc` of the event channel or epoll instance, which closes its
        // descriptor only when the last `Arc` is dropped. The descriptor is therefore open and
        // unchanged while the `AsyncFd` lives.
        let registered =
            unsafe { AsyncFd::register_with_interest(Owner(descriptor), Interest::READABLE) };
        registered
            .map(Self)
            .map_err(|error| failed(&error.into_parts().1))
    }

    /// Calls `attempt` until it returns a value, waiting for the descriptor between calls. Several
    /// tasks may wait at the same time.
    pub(crate) async fn retry<T, E: From<Error>>(
        &self,
        mut attempt: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        loop {
            if let Some(value) = attempt()? {
                return Ok(value);
            }
            let mut ready = self.0.readable().await.map_err(|error| failed(&error))?;
            // If the descriptor becomes readable after this call, `clear_ready` keeps it so: tokio
            // clears only the readiness seen by `readable`.
            if let Some(value) = attempt()? {
                return Ok(value);
            }
            ready.clear_ready();
        }
    }

    /// Returns `true` if the descriptor was readable, after clearing its readiness. Otherwise
    /// registers the task to be woken when it becomes readable.
    ///
    /// # Errors
    /// Fails if the runtime is shutting down.
    pub fn poll_clear(&self, context: &mut TaskContext<'_>) -> Result<bool> {
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
        Some(errno) => ibverbs::call_failed(VERB, Errno(errno), "event channel"),
        None => Error::new(ErrorKind::Os, VERB, format!("event channel: {error}")),
    }
}
