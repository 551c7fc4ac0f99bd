//! What posting needs beside the queue: room for the classic requests of a batch, and what became of requests.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr;

use rdma_sys::{IBV_SEND_INLINE, ibv_send_wr, ibv_sge};

use super::inflight::Entry;
use super::payload::Gather;
use super::rejected::PostError;
use crate::errno::Errno;
use crate::error::Error;
use crate::mr::Buf;

/// Room for the classic sends of a batch, allocated with the queue pair.
pub(super) struct Scratch {
    pub(super) sends: Box<[ibv_send_wr]>,
    pub(super) sges: Box<[ibv_sge]>,
    /// Inline bytes of sends, copied when they are added: `inline_each` for each request.
    pub(super) inline: Box<[u8]>,
    pub(super) inline_each: usize,
}

// SAFETY: the pointers in the requests are set anew before each use and mean nothing in between.
unsafe impl Send for Scratch {}
// SAFETY: as above; nothing is reachable through a shared Scratch.
unsafe impl Sync for Scratch {}

impl Scratch {
    pub(super) fn new(max_batch: u32, max_inline: u32, classic: bool) -> Self {
        let size = max_batch as usize;
        let inline_each = if classic { max_inline as usize } else { 0 };
        Self {
            sends: vec![ibv_send_wr::default(); if classic { size } else { 0 }].into(),
            sges: vec![ibv_sge::default(); size].into(),
            inline: vec![0; size * inline_each].into(),
            inline_each,
        }
    }

    pub(super) fn max(&self) -> usize {
        self.sges.len()
    }
}

/// How a payload is told to the classic verbs: its one entry, or the list that describes it.
pub(super) struct Local {
    pub(super) sge: ibv_sge,
    /// Null where there is no list.
    pub(super) list: *mut ibv_sge,
    pub(super) count: i32,
}

impl Local {
    #[inline]
    pub(super) fn of(gather: Gather<'_>) -> Self {
        let one = |sge| Self { sge, list: ptr::null_mut(), count: 1 };
        match gather {
            Gather::Empty => Self { count: 0, ..one(ibv_sge::default()) },
            Gather::One(sge) => one(sge),
            Gather::List { sges, count, .. } => {
                // `check_send` and `Receives::check` bounded the count.
                let count = i32::try_from(count).unwrap_or(i32::MAX);
                Self { sge: ibv_sge::default(), list: sges.cast_mut(), count }
            }
            // The address is read during the call only; `check_send` bounded the length.
            Gather::Inline(bytes) => {
                let length = u32::try_from(bytes.len()).unwrap_or(0);
                one(ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length, lkey: 0 })
            }
        }
    }

    /// Where the entries are: the list, or the one entry.
    #[inline]
    pub(super) fn entries(&mut self) -> *mut ibv_sge {
        if self.list.is_null() { &raw mut self.sge } else { self.list }
    }
}

/// The flag that goes with a payload whose bytes are copied.
#[inline]
pub(super) fn inline_flag(gather: Gather<'_>) -> u32 {
    if matches!(gather, Gather::Inline(_)) { IBV_SEND_INLINE } else { 0 }
}

/// What the return value of a classic post says of a single request. Only a `bad_wr` that was set says that it was not posted.
#[inline]
pub(super) fn outcome(returned: i32, bad_is_null: bool) -> Result<(), PostError> {
    match (returned, bad_is_null) {
        (0, _) => Ok(()),
        (number, false) => Err(PostError::Refused(Errno::from_return(number))),
        (number, true) => Err(PostError::InDoubt(Errno::from_return(number))),
    }
}

/// How much of a batch the provider took.
pub(super) enum Posted {
    All,
    /// The first so many.
    Only(usize, Errno),
    /// It does not say.
    InDoubt(Errno),
}

impl Posted {
    /// From the return value and the address of the first request that was not posted.
    pub(super) fn of(returned: i32, first: usize, bad: usize, size: usize) -> Self {
        let errno = Errno::from_return(returned);
        match bad.checked_sub(first) {
            _ if returned == 0 => Self::All,
            Some(offset) if bad != 0 && offset % size == 0 => Self::Only(offset / size, errno),
            _ => Self::InDoubt(errno),
        }
    }

    /// Takes back what was not posted, newest first, and says so.
    pub(super) fn into_result(
        self,
        verb: &'static str,
        count: usize,
        mut take_newest: impl FnMut() -> Option<Entry>,
    ) -> Result<(), BatchError> {
        match self {
            Self::All => Ok(()),
            Self::Only(posted, errno) if posted < count => {
                let mut rejected: Vec<Buf> = (posted..count)
                    .filter_map(|_| take_newest())
                    .flat_map(|entry| entry.payload.into_bufs().into_iter().rev())
                    .collect();
                rejected.reverse();
                Err(BatchError { error: PostError::Refused(errno), verb, rejected })
            }
            // An error that names no request of the batch says nothing about any of them.
            Self::InDoubt(errno) | Self::Only(_, errno) => {
                Err(BatchError { error: PostError::InDoubt(errno), verb, rejected: Vec::new() })
            }
        }
    }
}

/// A batch that the provider did not take, or not whole.
#[derive(Debug)]
pub struct BatchError {
    error: PostError,
    verb: &'static str,
    rejected: Vec<Buf>,
}

impl BatchError {
    /// Why.
    pub fn error(&self) -> PostError {
        self.error
    }

    /// The buffers of the requests that were not posted, in order. Those before them in the batch were posted, and complete as usual;
    /// all stay with the queue pair when the batch is [in doubt](PostError::InDoubt).
    pub fn into_rejected(self) -> Vec<Buf> {
        self.rejected
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verb, self.error)
    }
}

impl std::error::Error for BatchError {}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        error.error.into_error(error.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a batch of 3 requests of 100 bytes at 1000 says.
    fn of(returned: i32, bad: usize) -> Option<PostError> {
        Posted::of(returned, 1000, bad, 100).into_result("verb", 3, || None).err().map(|error| error.error())
    }

    #[test]
    fn only_a_request_of_the_batch_says_how_much_was_posted() {
        assert_eq!(of(0, 0), None);
        assert_eq!(of(libc::ENOMEM, 1200), Some(PostError::Refused(Errno(libc::ENOMEM))));
        assert_eq!(of(-libc::ENOMEM, 1000), Some(PostError::Refused(Errno(libc::ENOMEM))));
        for elsewhere in [0, 500, 1050, 1300, 1400] {
            assert_eq!(of(libc::ENOMEM, elsewhere), Some(PostError::InDoubt(Errno(libc::ENOMEM))), "{elsewhere}");
        }
    }
}
