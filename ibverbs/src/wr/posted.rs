//! Errors of posting, of single requests and of batches.

use std::fmt;

use super::rejected::PostError;
use crate::error::{Errno, Error};
use crate::in_flight::Request;
use crate::mr::Buf;

/// Returns the error for the value that the provider returned for a single request.
///
/// Only a `bad_wr` that is not null proves that the request was not posted; the extended verbs have
/// none. Soft-RoCE queues a request and then reports that the queue pair is in the wrong state.
#[cold]
#[inline(never)]
pub(crate) fn post_error(returned: i32, bad_is_null: bool) -> PostError {
    let errno = errno_of(returned);
    if bad_is_null {
        PostError::InDoubt(errno)
    } else {
        PostError::Refused(errno)
    }
}

/// Returns the error number of a failed post. siw's provider returns −1 if its doorbell fails; the
/// number is then in `errno`.
fn errno_of(returned: i32) -> Errno {
    match returned {
        -1 => Errno::last(),
        _ => Errno::from_return(returned),
    }
}

/// The requests of a batch that the provider posted.
pub(crate) enum Posted {
    All,
    /// This number of requests, from the first one.
    Only(usize, Errno),
    /// Unknown: the provider did not report the first request that failed.
    InDoubt(Errno),
}

impl Posted {
    /// Evaluates the return value of a post of requests of `size` bytes each. `first` is the
    /// address of the first request, `bad` that of the first one that was not posted, or 0.
    ///
    /// siw's provider returns 0 if the doorbell of the requests before `bad` succeeds.
    pub(crate) fn new(returned: i32, first: usize, bad: usize, size: usize) -> Self {
        if returned == 0 && bad == 0 {
            return Self::All;
        }
        let errno = match returned {
            0 => Errno(libc::EINVAL),
            _ => errno_of(returned),
        };
        match bad.checked_sub(first) {
            Some(offset) if bad != 0 && offset % size == 0 => Self::Only(offset / size, errno),
            _ => Self::InDoubt(errno),
        }
    }

    /// Returns an error with the buffers of the requests that were not posted. `take_newest`
    /// removes the newest request from its table.
    pub(crate) fn into_result(
        self,
        verb: &'static str,
        count: usize,
        mut take_newest: impl FnMut() -> Option<Request>,
    ) -> Result<(), BatchError> {
        match self {
            Self::All => Ok(()),
            Self::Only(posted, errno) if posted < count => {
                let mut rejected: Vec<Buf> = (posted..count)
                    .filter_map(|_| take_newest())
                    .flat_map(|request| request.into_bufs().into_iter().rev())
                    .collect();
                rejected.reverse();
                Err(BatchError {
                    error: PostError::Refused(errno),
                    verb,
                    rejected,
                    refusal: None,
                })
            }
            // `bad_wr` is not in the batch, so any of the requests may have been posted.
            Self::InDoubt(errno) | Self::Only(_, errno) => Err(BatchError {
                error: PostError::InDoubt(errno),
                verb,
                rejected: Vec::new(),
                refusal: None,
            }),
        }
    }
}

/// A batch that was not posted, or only in part.
///
/// # Example
/// The buffers that were not posted are kept for later:
/// ```no_run
/// use std::error::Error;
/// use ibverbs::{BatchError, Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, bufs: Vec<Buf>, waiting: &mut Vec<Buf>) -> Result<(), Box<dyn Error>> {
/// let posted = qp.batch(|batch| -> Result<(), Box<dyn Error>> {
///     for buf in bufs {
///         batch.send(wr::send(buf))?;
///     }
///     Ok(())
/// });
/// if let Err(error) = posted {
///     waiting.extend(error.downcast::<BatchError>()?.into_rejected());
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_post_send")]
pub struct BatchError {
    error: PostError,
    verb: &'static str,
    rejected: Vec<Buf>,
    /// The explanation of the provider's refusal.
    refusal: Option<Error>,
}

impl BatchError {
    /// Adds the explanation that `explain` returns for the verb and the reason.
    #[cold]
    #[inline(never)]
    pub(crate) fn explained(
        mut self,
        explain: impl FnOnce(&'static str, PostError) -> Option<Error>,
    ) -> Self {
        self.refusal = explain(self.verb, self.error);
        self
    }

    /// Returns the reason.
    pub fn error(&self) -> PostError {
        self.error
    }

    /// Returns the buffers of the requests that were not posted, in order. Earlier requests of the
    /// batch were posted and complete as usual. If the batch is [in doubt](PostError::InDoubt), all
    /// buffers stay with the queue pair.
    pub fn into_rejected(self) -> Vec<Buf> {
        self.rejected
    }
}

/// Writes the message and the remedy, for a `main` that returns the error; with `{:#?}` the fields.
impl fmt::Debug for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            _ if f.alternate() => f
                .debug_struct("BatchError")
                .field("verb", &self.verb)
                .field("error", &self.error)
                .field("rejected", &self.rejected)
                .field("refusal", &self.refusal)
                .finish(),
            Some(refusal) => fmt::Debug::fmt(refusal, f),
            None => fmt::Debug::fmt(&self.error.into_error(self.verb), f),
        }
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => fmt::Display::fmt(refusal, f),
            None => write!(f, "{}: {}", self.verb, self.error),
        }
    }
}

/// The source is the error of the system, if the provider refused the requests.
impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.refusal.as_ref().and_then(std::error::Error::source)
    }
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        match error.refusal {
            Some(refusal) => refusal,
            None => error.error.into_error(error.verb),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates a batch of 3 requests of 100 bytes at address 1000.
    fn evaluate(returned: i32, bad: usize) -> Option<PostError> {
        Posted::new(returned, 1000, bad, 100)
            .into_result("verb", 3, || None)
            .err()
            .map(|error| error.error())
    }

    #[test]
    fn bad_wr_counts_only_if_it_is_in_the_batch() {
        assert_eq!(evaluate(0, 0), None);
        assert_eq!(
            evaluate(0, 1100),
            Some(PostError::Refused(Errno(libc::EINVAL))),
            "siw reports a refused request by bad_wr only"
        );
        assert_eq!(
            evaluate(libc::ENOMEM, 1200),
            Some(PostError::Refused(Errno(libc::ENOMEM)))
        );
        assert_eq!(
            evaluate(-libc::ENOMEM, 1000),
            Some(PostError::Refused(Errno(libc::ENOMEM)))
        );
        for elsewhere in [0, 500, 1050, 1300, 1400] {
            assert_eq!(
                evaluate(libc::ENOMEM, elsewhere),
                Some(PostError::InDoubt(Errno(libc::ENOMEM))),
                "{elsewhere}"
            );
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it opens a file")]
    fn the_error_of_minus_one_is_in_errno() {
        assert!(std::fs::File::open("/missing/file").is_err());
        assert_eq!(errno_of(-1), Errno(libc::ENOENT));
        assert_eq!(errno_of(-libc::EINVAL), Errno(libc::EINVAL));
        assert_eq!(errno_of(libc::ENOMEM), Errno(libc::ENOMEM));
    }
}
