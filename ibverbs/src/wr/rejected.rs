//! Requests that were not posted, and the reasons.

use std::fmt;

use crate::error::{Errno, Error, ErrorKind, call_failed};

/// Why a request was not posted.
///
/// # Example
/// A full queue is not a failure: the buffer is kept for later.
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
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full. Poll the completion queue and retire completions.
    #[error(
        "the queue is full: {capacity} requests are in flight; retire completions first, and signal at least one in every {capacity} sends"
    )]
    QueueFull {
        /// Number of requests that the queue holds.
        capacity: u32,
    },
    /// A [scope](crate::QueuePair::scope) has destroyed the queue pair.
    #[error(
        "a scope has destroyed the queue pair, because requests with borrowed memory had not completed; connect a new one"
    )]
    Destroyed,
    /// The batch is full.
    #[error("the batch is full: it holds {max} requests (QpOptions::max_batch)")]
    BatchFull {
        /// Number of requests that a batch holds.
        max: u32,
    },
    /// The payload is longer than the queue pair's inline limit.
    #[error(
        "{len} bytes of inline data exceed the queue pair's limit of {max} bytes (QpOptions::max_inline_data)"
    )]
    InlineTooLong {
        /// Length of the payload in bytes.
        len: usize,
        /// Limit in bytes.
        max: u32,
    },
    /// The payload has more scatter/gather entries than a request of the queue can have.
    #[error(
        "{count} scatter/gather entries exceed the limit of {max} (max_send_sge, max_recv_sge; max_sge_rd of the device for RDMA reads; 1 for atomics)"
    )]
    TooManyPieces {
        /// Number of entries of the payload.
        count: usize,
        /// Limit of the queue, of the device for RDMA reads, or of atomics.
        max: u32,
    },
    /// The receive has no memory. EFA would never complete it, and the provider of irdma would give
    /// it the memory of an earlier one.
    #[error("the provider has no receives without memory; post a buffer, which may stay empty")]
    EmptyReceive,
    /// The first entry of a raw packet is shorter than the header that the provider reads there.
    #[error("a raw packet begins with an Ethernet header of 14 bytes in its first entry")]
    ShortPacket,
    /// The payload is longer than the remote memory. That also holds for a list of held memory into
    /// which the remote memory is read.
    #[error("{len} bytes do not fit into {remote} bytes of remote memory")]
    BeyondRemote {
        /// Length of the request in bytes.
        len: u64,
        /// Length of the remote memory in bytes.
        remote: u64,
    },
    /// The local memory is too small for the data to fetch.
    #[error("{len} bytes of remote memory do not fit into {local} bytes of local memory")]
    BeyondLocal {
        /// Length of the request in bytes.
        len: u64,
        /// Length of the local memory in bytes.
        local: u64,
    },
    /// The remote address of an atomic is not a multiple of 8.
    #[error("the remote address of an atomic must be a multiple of 8: {addr:#x}")]
    Misaligned {
        /// Remote address.
        addr: u64,
    },
    /// An RDMA read into a [`Buf`](crate::Buf) on iWARP, where the peer needs write access to the
    /// local memory.
    #[error(
        "on iWARP an RDMA read needs local memory that the peer can write: use a SharedRegion with REMOTE_WRITE"
    )]
    NeedsShared,
    /// The device lacks the operation, or its extended verbs (`ibv_wr_*`) do.
    #[error(
        "the device or its extended verbs lack the operation; the classic verbs of the transports of the IBTA specification may have it (QpOptions::classic_only)"
    )]
    Unsupported,
    /// The queue pair was created without the operation
    /// ([`QpOptions::optional_ops`](crate::QpOptions::optional_ops)).
    #[error(
        "the queue pair was created without the operation; request it with QpOptions::optional_ops"
    )]
    NotRequested,
    /// The transport has no [fenced](crate::wr::SendRequest::fenced) or
    /// [solicited](crate::wr::SendRequest::solicited) requests.
    #[error("the transport has no fenced or solicited requests; post the request without the flag")]
    UnsupportedFlag,
    /// The buffer belongs to another protection domain than the queue pair.
    #[error(
        "the buffer belongs to another protection domain than the queue pair; allocate it from QueuePair::pd"
    )]
    WrongDomain,
    /// The memory or address is held by another queue pair or was released, or the memory was lent
    /// to another scope.
    #[error(
        "the memory or address is held by another queue pair or was released; hold it on this queue pair, or let the queue pair join the scope to which the memory was lent"
    )]
    WrongQueue,
    /// The provider refused the request; the device will not execute it.
    #[error("{0}")]
    Refused(Errno),
    /// The provider reported an error, but not that the request was not posted. The device may
    /// still execute it, so its buffer stays with the queue pair until the request completes or the
    /// queue pair is destroyed.
    #[error("{0}; the request may have been posted, so its buffer stays with the queue pair")]
    InDoubt(Errno),
}

/// Writes the message, for a `main` that returns the error.
impl fmt::Debug for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PostError {
    /// Returns the error for a queue without a free slot.
    #[cold]
    pub(crate) fn no_slot(is_destroyed: bool, capacity: u32) -> Self {
        if is_destroyed {
            Self::Destroyed
        } else {
            Self::QueueFull { capacity }
        }
    }

    /// Returns the class of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(errno) | Self::InDoubt(errno) => ErrorKind::from_errno(*errno),
            Self::QueueFull { .. } | Self::BatchFull { .. } => ErrorKind::QueueFull,
            Self::Destroyed => ErrorKind::Disconnected,
            Self::WrongDomain | Self::WrongQueue => ErrorKind::Mismatch,
            Self::InlineTooLong { .. }
            | Self::NotRequested
            | Self::EmptyReceive
            | Self::ShortPacket
            | Self::TooManyPieces { .. }
            | Self::BeyondRemote { .. }
            | Self::BeyondLocal { .. }
            | Self::Misaligned { .. } => ErrorKind::InvalidInput,
            Self::NeedsShared | Self::Unsupported | Self::UnsupportedFlag => ErrorKind::Unsupported,
        }
    }

    /// Returns the error number if the provider refused the request.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused(errno) | Self::InDoubt(errno) => Some(*errno),
            _ => None,
        }
    }

    pub(crate) fn into_error(self, verb: &'static str) -> Error {
        match self.errno() {
            Some(errno) => refusal(verb, self, errno, "the queue"),
            None => Error::new(self.kind(), verb, self.to_string()),
        }
    }
}

/// Creates the error of a request that the provider refused. `queue` is the queue and, if known,
/// its state.
pub(crate) fn refusal(verb: &'static str, error: PostError, errno: Errno, queue: &str) -> Error {
    let detail = match error {
        PostError::InDoubt(_) => format!(
            "{queue}; the request may have been posted, so its buffer stays with the queue pair"
        ),
        _ => queue.to_owned(),
    };
    call_failed(verb, errno, detail)
        .with_help("check that the device supports the operation and its lengths")
}

/// A request that was not posted, with its payload.
///
/// The `?` operator converts it into an [`Error`], or into the error of another crate. The buffer
/// then returns to its pool.
///
/// `P` is the type of the payload. For payloads that borrow memory ([`Inline`](crate::wr::Inline),
/// [`Lent`](crate::scope::Lent), [`LentMut`](crate::scope::LentMut)) it is
/// [`Infallible`](std::convert::Infallible), so the error borrows nothing and returns nothing.
/// Functions with a type parameter `P` for the payload return `Rejected<P::Returned>`.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf) {
/// if let Err(rejected) = qp.post_recv(wr::recv(buf)) {
///     println!("{rejected}"); // the reason and the remedy
///     let buf: Option<Buf> = rejected.into_payload();
/// }
/// # }
/// ```
#[doc(alias = "ibv_post_send")]
pub struct Rejected<P> {
    error: PostError,
    payload: Option<P>,
    verb: &'static str,
    /// The explanation, if the provider refused the request.
    refusal: Option<Error>,
}

impl<P> Rejected<P> {
    pub(crate) fn new(verb: &'static str, error: PostError, payload: Option<P>) -> Self {
        Self {
            error,
            payload,
            verb,
            refusal: None,
        }
    }

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

    /// Returns the payload, or `None` if the request is [in doubt](PostError::InDoubt).
    pub fn into_payload(self) -> Option<P> {
        self.payload
    }
}

impl<P> fmt::Display for Rejected<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => fmt::Display::fmt(refusal, f),
            None => write!(f, "{}: {}", self.verb, self.error),
        }
    }
}

/// Writes the message and the remedy, for a `main` that returns the error; with `{:#?}` the fields.
impl<P> fmt::Debug for Rejected<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            _ if f.alternate() => f
                .debug_struct("Rejected")
                .field("verb", &self.verb)
                .field("error", &self.error)
                .field("refusal", &self.refusal)
                .finish_non_exhaustive(),
            Some(refusal) => fmt::Debug::fmt(refusal, f),
            None => fmt::Debug::fmt(&self.error.into_error(self.verb), f),
        }
    }
}

/// The source is the error of the system, if the provider refused the request.
impl<P> std::error::Error for Rejected<P> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.refusal.as_ref().and_then(std::error::Error::source)
    }
}

impl<P> From<Rejected<P>> for Error {
    fn from(rejected: Rejected<P>) -> Self {
        match rejected.refusal {
            Some(refusal) => refusal,
            None => rejected.error.into_error(rejected.verb),
        }
    }
}
