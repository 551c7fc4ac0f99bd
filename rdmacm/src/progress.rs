//! Operations in progress, and the three ways to wait for them.

use std::fmt;
use std::os::fd::AsFd;
#[cfg(feature = "tokio")]
use std::pin::Pin;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::Duration;

use ibverbs::{Error, ErrorKind};

use crate::event::IdKey;
use crate::wait::LazyDeadline;
#[cfg(feature = "tokio")]
use crate::wait::Readable;

pub(crate) mod sealed {
    use std::time::Duration;

    use ibverbs::{Error, Result};

    use crate::convert::timed_out;
    use crate::event::{EventChannel, IdKey};
    use crate::wait::Descriptor;

    /// Implementation details of [`InProgress`](super::InProgress), which other crates cannot
    /// implement.
    pub trait Sealed {
        /// The librdmacm function that started the operation.
        const VERB: &'static str;

        /// Returns the subject of the operation, for error messages.
        fn detail(&self) -> String;

        /// Returns the error of a wait that reaches its time limit.
        fn timed_out(&self) -> Error {
            timed_out(Self::VERB, &self.detail())
        }

        /// Returns the key of the identifier.
        fn id_key(&self) -> IdKey;

        /// Returns the channel of the identifier.
        fn channel(&self) -> &EventChannel;

        /// Returns a descriptor that is readable when the operation may make progress.
        fn descriptor(&self) -> Descriptor {
            self.channel().descriptor()
        }

        /// Sleeps until the operation may make progress, at most for `timeout`.
        fn sleep(&mut self, timeout: Option<Duration>) -> Result<()> {
            self.channel().sleep(timeout)
        }
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
/// - With the feature `tokio`, await it.
///
/// An operation on a shared [`EventChannel`](crate::EventChannel) is not awaited. Wait for the
/// channel, which returns its [`key`](Self::key), and then call [`try_finish`](Self::try_finish).
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
#[doc(alias = "rdma_get_cm_event")]
#[must_use = "dropping an operation in progress cancels it"]
pub trait InProgress: AsFd + Send + sealed::Sealed + Sized {
    /// The result of the operation.
    type Output: Send;
    /// The error of the operation.
    type Error: From<Error> + Send;

    /// Returns the key that an [`EventChannel`](crate::EventChannel) returns for the operation, and
    /// then for the connection or membership that it results in.
    fn key(&self) -> IdKey {
        self.id_key()
    }

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
        let mut deadline = LazyDeadline::after(timeout);
        loop {
            if let Some(output) = self.try_finish()? {
                return Ok(output);
            }
            if !deadline.sleep(|timeout| self.sleep(timeout))? {
                return Err(self.timed_out().into());
            }
        }
    }
}

/// The future of an [operation in progress](InProgress), which is created by awaiting it. Needs a
/// tokio runtime with I/O enabled. There is no time limit; wrap it in `tokio::time::timeout` to set
/// one.
///
/// It fails as the blocking call does, and with [`ErrorKind::InvalidInput`] if the operation is on
/// a shared channel. Await [`EventChannel::next`](crate::EventChannel::next) instead.
///
/// # Cancel safety
/// The future owns the operation, and dropping it cancels the operation: the queue pair and the
/// identifier are destroyed. A peer that was answered already sees that the connection ends, and
/// another one that it is rejected. To wait for something else at the same time without cancelling,
/// poll the same pinned future again, or use [`try_finish`](InProgress::try_finish).
///
/// # Example
/// ```no_run
/// use rdmacm::Resolver;
/// # async fn f() -> ibverbs::Result<()> {
/// let route = Resolver::new("10.99.0.1:7471".parse().expect("an address")).start()?.await?;
/// println!("{}", route.device_name());
/// # Ok(()) }
/// ```
#[cfg(feature = "tokio")]
#[doc(alias = "rdma_get_cm_event")]
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Finish<O> {
    operation: O,
    /// Registration with the runtime of the first poll.
    readable: Option<Readable>,
}

#[cfg(feature = "tokio")]
impl<O: InProgress + Unpin> Future for Finish<O> {
    type Output = Result<O::Output, O::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            operation,
            readable,
        } = &mut *self;
        let readable = match readable {
            Some(readable) => readable,
            none => {
                operation.channel().check_private()?;
                none.insert(Readable::new(operation.descriptor())?)
            }
        };
        loop {
            if let Some(output) = operation.try_finish()? {
                return Poll::Ready(Ok(output));
            }
            if !readable.poll_clear(cx)? {
                return Poll::Pending;
            }
        }
    }
}

#[cfg(feature = "tokio")]
impl<O> Finish<O> {
    pub(crate) fn new(operation: O) -> Self {
        Self {
            operation,
            readable: None,
        }
    }
}

/// Lets an operation be awaited with the feature `tokio`: `TYPE` or `TYPE where PARAMETER: BOUND`.
macro_rules! into_future {
    ($operation:ty $(where $parameter:ident: $bound:path)?) => {
        #[cfg(feature = "tokio")]
        impl$(<$parameter: $bound>)? IntoFuture for $operation {
            type Output = Result<<Self as InProgress>::Output, <Self as InProgress>::Error>;
            type IntoFuture = crate::progress::Finish<Self>;

            fn into_future(self) -> Self::IntoFuture {
                crate::progress::Finish::new(self)
            }
        }
    };
}
pub(crate) use into_future;

/// Implements what all operations in progress share, for a type with the fields `key` and
/// `channel`: `TYPE: VERB, FIELD`, with the field that names the subject of the operation, and
/// more functions of the trait [`Sealed`](sealed::Sealed).
macro_rules! in_progress {
    ($operation:ty: $verb:expr, $subject:ident $(, $($function:tt)*)?) => {
        impl crate::progress::sealed::Sealed for $operation {
            const VERB: &'static str = $verb;

            fn detail(&self) -> String {
                self.$subject.to_string()
            }

            fn id_key(&self) -> crate::event::IdKey {
                self.key
            }

            fn channel(&self) -> &crate::event::EventChannel {
                &self.channel
            }

            $($($function)*)?
        }

        crate::progress::into_future!($operation);

        impl std::os::fd::AsFd for $operation {
            /// Readable when [`try_finish`](InProgress::try_finish) may make progress.
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.channel.as_fd()
            }
        }
    };
}
pub(crate) use in_progress;

/// Returns the error of a call on an operation that has already finished.
pub(crate) fn already_finished(verb: &'static str, detail: &dyn fmt::Display) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        verb,
        format!("{detail}: the operation has already finished"),
    )
}
