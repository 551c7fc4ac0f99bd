//! What is under way, and how to wait for it: by the descriptor, by the clock, or by awaiting.

use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use ibverbs::{Error, ErrorKind};

use crate::convert::timed_out;
use crate::wait::{Deadline, sleep};

pub(crate) mod sealed {
    use crate::wait::Descriptor;

    /// Kept to this crate: what is under way can say so.
    pub trait Sealed {
        /// The call that was made.
        const VERB: &'static str;

        /// On what it was made.
        fn what(&self) -> String;

        /// What is readable when there is something to do.
        fn descriptor(&self) -> Descriptor;
    }
}

/// Something under way whose outcome comes as events of the connection manager: resolving,
/// connecting, accepting, joining.
///
/// Nothing blocks unless it is asked to. There are three ways to the outcome:
///
/// - wait until the descriptor ([`AsFd`]) is readable, by whatever means the program has, and call
///   [`try_finish`](Self::try_finish);
/// - [`wait`](Self::wait), which sleeps, with a limit;
/// - with the feature `tokio`, await `finish`.
///
/// Dropping it at any time abandons it: the identifier goes, the queue pair with it, and no event
/// is left unacknowledged. That holds for a dropped future too.
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
///     // … do something else, or poll(2) on resolving.as_fd() …
/// };
/// println!("{}", route.device_name());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
#[must_use = "what is under way is abandoned when it is dropped"]
pub trait InProgress: AsFd + Send + sealed::Sealed + Sized {
    /// What it becomes.
    type Output: Send;
    /// How it fails.
    type Error: From<Error> + Send;

    /// The outcome, if it is there; never blocks. After an outcome or an error it is over.
    ///
    /// # Errors
    /// Those of the blocking call; [`ErrorKind::InvalidInput`] once it is over.
    fn try_finish(&mut self) -> std::result::Result<Option<Self::Output>, Self::Error>;

    /// Sleeps until the outcome is there, at most for `timeout` (for ever when `None`).
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] when the time is over first, otherwise those of the blocking call.
    fn wait(mut self, timeout: Option<Duration>) -> std::result::Result<Self::Output, Self::Error> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(output) = self.try_finish()? {
                return Ok(output);
            }
            if deadline.has_passed() {
                return Err(timed_out(Self::VERB, &self.what()).into());
            }
            sleep(self.as_fd(), deadline)?;
        }
    }

    /// Awaits the outcome on a tokio runtime with I/O enabled. There is no limit: put
    /// `tokio::time::timeout` around it. A future that is dropped leaves nothing behind.
    ///
    /// # Errors
    /// Those of the blocking call.
    #[cfg(feature = "tokio")]
    fn finish(
        mut self,
    ) -> impl Future<Output = std::result::Result<Self::Output, Self::Error>> + Send {
        async move {
            let readable = crate::wait::Readable::new(self.descriptor())?;
            readable.take(|| self.try_finish()).await
        }
    }
}

/// The answer to a call on something that is over.
pub(crate) fn already_finished(verb: &'static str, what: &dyn fmt::Display) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        verb,
        format!("{what}: it is over already"),
    )
}
