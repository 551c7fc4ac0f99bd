//! Operations in progress, and the three ways to wait for them.

use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use ibverbs::{Error, ErrorKind};

use crate::convert::timed_out;
use crate::wait::{Deadline, sleep};

pub(crate) mod sealed {
    use crate::wait::Descriptor;

    /// Implementation details of [`InProgress`](super::InProgress), which other crates cannot
    /// implement.
    pub trait Sealed {
        /// The librdmacm function that started the operation.
        const VERB: &'static str;

        /// Returns the subject of the operation, for error messages.
        fn detail(&self) -> String;

        /// Returns a descriptor that is readable when the operation may make progress.
        fn descriptor(&self) -> Descriptor;
    }
}

/// An operation completed by events of the connection manager: resolving, connecting, accepting or
/// joining.
///
/// Starting an operation does not block. There are three ways to get its result:
///
/// - Wait until the descriptor ([`AsFd`]) is readable, for example with `poll(2)`, and call
///   [`try_finish`](Self::try_finish).
/// - Call [`wait`](Self::wait), which blocks up to a time limit.
/// - With the feature `tokio`, await `finish`.
///
/// Dropping the operation, or a future of it, cancels it. The queue pair and the identifier are
/// destroyed, and all events are acknowledged.
///
/// # Example
/// ```no_run
/// use rdmacm::{InProgress, Resolver};
/// use std::time::Duration;
///
/// let mut resolving = Resolver::new("10.99.0.1:7471".parse()?).start()?;
/// let route = loop {
///     if let Some(route) = resolving.try_finish()? {
///         break route;
///     }
///     // Do other work here, or poll(2) resolving.as_fd().
/// };
/// println!("{}", route.device_name());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
#[must_use = "dropping an operation in progress cancels it"]
pub trait InProgress: AsFd + Send + sealed::Sealed + Sized {
    /// The result of the operation.
    type Output: Send;
    /// The error of the operation.
    type Error: From<Error> + Send;

    /// Returns the result, or `None` if the operation has not completed. Never blocks. Do not call
    /// it again after a result or an error.
    ///
    /// # Errors
    /// Same as the blocking call; also [`ErrorKind::InvalidInput`] if the operation has already
    /// finished.
    fn try_finish(&mut self) -> Result<Option<Self::Output>, Self::Error>;

    /// Waits for the result, at most for `timeout` (forever if `None`).
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] on timeout, otherwise the same as the blocking call.
    fn wait(mut self, timeout: Option<Duration>) -> Result<Self::Output, Self::Error> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(output) = self.try_finish()? {
                return Ok(output);
            }
            if deadline.has_passed() {
                return Err(timed_out(Self::VERB, &self.detail()).into());
            }
            sleep(self.as_fd(), deadline)?;
        }
    }

    /// Awaits the result. Needs a tokio runtime with I/O enabled. There is no time limit; wrap it
    /// in `tokio::time::timeout` to set one. Dropping the future cancels the operation.
    ///
    /// # Errors
    /// Same as the blocking call.
    #[cfg(feature = "tokio")]
    fn finish(mut self) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send {
        async move {
            let readable = crate::wait::Readable::new(self.descriptor())?;
            readable.retry(|| self.try_finish()).await
        }
    }
}

/// Returns the error of a call on an operation that has already finished.
pub(crate) fn already_finished(verb: &'static str, detail: &dyn fmt::Display) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        verb,
        format!("{detail}: the operation has already finished"),
    )
}
