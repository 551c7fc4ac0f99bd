//! A post that did not happen, and the payload it gives back.

use std::fmt;

use crate::errno::Errno;
use crate::error::Error;
use crate::kind::ErrorKind;

/// Why a request was not posted.
///
/// # Example
/// A queue that is full is no failure: the buffer waits.
/// ```no_run
/// use ibverbs::{Buf, PostError, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf, waiting: &mut Vec<Buf>) -> ibverbs::Result<()> {
/// match qp.post_send(wr::send(buf)) {
///     Err(rejected) if matches!(rejected.error(), PostError::QueueFull { .. }) => {
///         waiting.extend(rejected.into_payload());
///     }
///     posted => posted?,
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// As many requests are in flight as the queue holds: poll the completion queue and retire
    /// some.
    #[error(
        "the queue is full: {capacity} requests are in flight; retire completions first, and signal at least one send in each queue's length"
    )]
    QueueFull {
        /// How many requests the queue holds.
        capacity: u32,
    },
    /// The batch holds as many requests as it can.
    #[error("the batch is full: it holds {max} requests (QpOptions::max_batch)")]
    BatchFull {
        /// How many requests a batch holds.
        max: u32,
    },
    /// More bytes than a request can carry inline.
    #[error(
        "{len} bytes do not fit inline: the queue pair takes {max} (QpOptions::max_inline_data)"
    )]
    InlineTooLong {
        /// The bytes given.
        len: usize,
        /// The bytes that fit.
        max: u32,
    },
    /// More pieces of memory than a request of the queue can name.
    #[error(
        "{count} pieces of memory: a request of the queue names at most {max} (max_send_sge, max_recv_sge)"
    )]
    TooManyPieces {
        /// The pieces given.
        count: usize,
        /// The pieces that a request can name.
        max: u32,
    },
    /// More bytes than the remote memory has.
    #[error("{len} bytes do not fit into the {remote} bytes of remote memory")]
    BeyondRemote {
        /// The bytes of the request.
        len: u64,
        /// The bytes of the remote memory.
        remote: u64,
    },
    /// More bytes to fetch than the local memory holds.
    #[error("{len} bytes to fetch do not fit into {local} bytes of local memory")]
    BeyondLocal {
        /// The bytes of the request.
        len: u64,
        /// The bytes of the local memory.
        local: u64,
    },
    /// An atomic at an address that is no multiple of 8.
    #[error("an atomic works on 8 aligned bytes: {addr:#x} is no multiple of 8")]
    Misaligned {
        /// The remote address.
        addr: u64,
    },
    /// A read into a [`Buf`](crate::Buf) on iWARP, where the peer must be given write access to the
    /// memory.
    #[error(
        "on iWARP a read needs memory that is open to the peer: use a SharedRegion with REMOTE_WRITE"
    )]
    NeedsShared,
    /// The operation is not among the extended verbs of the device (`ibv_wr_*`).
    #[error(
        "the extended verbs of the device lack the operation: QpOptions::classic_only may have it"
    )]
    Unsupported,
    /// The buffer is of another protection domain than the queue pair.
    #[error(
        "the buffer is of another protection domain than the queue pair: make its pool of QueuePair::pd"
    )]
    WrongDomain,
    /// The memory or address is held by another queue pair, or was released.
    #[error(
        "the memory or address is held by another queue pair, or was released: hold it on this one"
    )]
    WrongQueue,
    /// The provider refused the request; the device will not execute it.
    #[error("{0}")]
    Refused(Errno),
    /// The provider reported an error without saying that the request was not posted. The device
    /// may yet execute it, so its buffer stays with the queue pair until a completion, or until
    /// the queue pair is destroyed.
    #[error("{0}; the request may have been posted, so its buffer stays with the queue pair")]
    InDoubt(Errno),
}

impl PostError {
    pub(crate) fn into_error(self, verb: &'static str) -> Error {
        match self {
            Self::Refused(errno) | Self::InDoubt(errno) => {
                Error::of_verb(verb, errno, self.to_string()).with_hint(
                    "is the queue pair connected, and does the device have the operation?",
                )
            }
            Self::QueueFull { .. } | Self::BatchFull { .. } => {
                Error::new(ErrorKind::QueueFull, verb, self.to_string())
            }
            Self::WrongDomain | Self::WrongQueue => {
                Error::new(ErrorKind::Mismatch, verb, self.to_string())
            }
            Self::InlineTooLong { .. }
            | Self::TooManyPieces { .. }
            | Self::BeyondRemote { .. }
            | Self::BeyondLocal { .. }
            | Self::Misaligned { .. } => {
                Error::new(ErrorKind::InvalidInput, verb, self.to_string())
            }
            Self::NeedsShared | Self::Unsupported => {
                Error::new(ErrorKind::Unsupported, verb, self.to_string())
            }
        }
    }
}

/// A request that was not posted, with its payload.
///
/// `?` turns it into an [`Error`]; the buffer then goes back to its pool.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf) {
/// if let Err(rejected) = qp.post_recv(wr::recv(buf)) {
///     println!("{rejected}"); // says why, and the remedy
///     let buf_again: Option<Buf> = rejected.into_payload();
/// }
/// # }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
pub struct Rejected<P> {
    error: PostError,
    payload: Option<P>,
    verb: &'static str,
}

impl<P> Rejected<P> {
    pub(crate) fn new(verb: &'static str, error: PostError, payload: Option<P>) -> Self {
        Self {
            error,
            payload,
            verb,
        }
    }

    /// Why.
    pub fn error(&self) -> PostError {
        self.error
    }

    /// The payload; `None` when the request is [in doubt](PostError::InDoubt).
    pub fn into_payload(self) -> Option<P> {
        self.payload
    }
}

impl<P> fmt::Display for Rejected<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verb, self.error)
    }
}

impl<P> fmt::Debug for Rejected<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("verb", &self.verb)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<P> std::error::Error for Rejected<P> {}

impl<P> From<Rejected<P>> for Error {
    fn from(rejected: Rejected<P>) -> Self {
        rejected.error.into_error(rejected.verb)
    }
}
