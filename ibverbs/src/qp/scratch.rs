//! What posting needs beside the queue: room for the classic requests of a batch, and what became of requests.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};

use rdma_sys::{IBV_SEND_INLINE, ibv_post_send, ibv_qp, ibv_send_wr, ibv_sge};

use super::operation::Operation;
use super::payload::Gather;
use super::payload::private::Payload;
use super::place::Entry;
use super::rejected::PostError;
use super::transport::Sends;
use super::wr::SendRequest;
use crate::errno::Errno;
use crate::error::Error;
use crate::fixed::Fixed;
use crate::identity::WrId;
use crate::mr::Buf;

/// Classic sends, allocated with the queue pair: one that is posted alone, and after it those of a batch, linked in order.
///
/// What a request does not set keeps the value of an earlier one, which means nothing for another opcode.
pub(super) struct Scratch {
    sends: Fixed<ibv_send_wr>,
    sges: Fixed<ibv_sge>,
    /// Inline bytes of sends, copied when they are added: `inline_each` for each request.
    inline: Fixed<u8>,
    inline_each: usize,
    max_batch: usize,
    /// How many requests a batch has so far.
    batched: usize,
}

// SAFETY: the pointers in the requests are set anew before each use, or point into this; nothing is reached through a shared Scratch.
unsafe impl Send for Scratch {}
// SAFETY: as above.
unsafe impl Sync for Scratch {}

impl Scratch {
    pub(super) fn new(max_batch: u32, max_inline: u32, classic: bool) -> Self {
        let max_batch = max_batch as usize;
        let (count, inline_each) = if classic { (max_batch + 1, max_inline as usize) } else { (0, 0) };
        let sends = Fixed::<ibv_send_wr>::new(count);
        for index in 2..count {
            // SAFETY: both are among the `count`.
            unsafe { (*sends.as_ptr().add(index - 1)).next = sends.as_ptr().add(index) };
        }
        Self {
            sends,
            sges: Fixed::new(count),
            inline: Fixed::new(max_batch * inline_each),
            inline_each,
            max_batch,
            batched: 0,
        }
    }

    /// How many requests a batch can have.
    #[inline]
    pub(super) fn max(&self) -> usize {
        self.max_batch
    }

    /// Writes a request and posts it.
    ///
    /// # Safety
    /// Made for classic posts. `qp` is alive and not used by another thread; the memory that the request names stays valid until its
    /// completion.
    #[inline]
    pub(super) unsafe fn post<T: Sends, O: Operation<T, P>, P: Payload>(
        &mut self,
        qp: NonNull<ibv_qp>,
        wr_id: WrId,
        request: &SendRequest<O, P>,
    ) -> Option<PostError> {
        let mut bad = ptr::null_mut();
        // SAFETY: the first request, which is linked to none; the caller's promise.
        let returned = unsafe {
            let wr = self.write(0, wr_id, request);
            ibv_post_send(qp.as_ptr(), wr, &raw mut bad)
        };
        if returned == 0 { None } else { Some(failure(returned, bad.is_null())) }
    }

    /// Begins a batch: the requests of an earlier one are no more.
    pub(super) fn start_batch(&mut self) {
        self.batched = 0;
    }

    /// Adds a request to a batch.
    ///
    /// # Safety
    /// Made for classic posts; the batch has fewer than `max`, and the inline bytes are not more than the queue pair takes.
    #[inline]
    pub(super) unsafe fn add<T: Sends, O: Operation<T, P>, P: Payload>(
        &mut self,
        wr_id: WrId,
        request: &SendRequest<O, P>,
    ) {
        let index = self.batched;
        self.batched += 1;
        // SAFETY: the caller's promise; there are `inline_each` bytes for each request of a batch.
        unsafe {
            self.write(index + 1, wr_id, request);
            if let Gather::Inline(bytes) = request.operation.local(&request.payload) {
                // The caller's bytes need not live until the doorbell: they are copied now.
                let place = self.inline.as_ptr().add(index * self.inline_each);
                ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
                (*self.sges.as_ptr().add(index + 1)).addr = place.expose_provenance() as u64;
            }
        }
    }

    /// Writes the request at `index` and returns it.
    ///
    /// # Safety
    /// Made for classic posts; `index` is at most `max`.
    #[inline]
    unsafe fn write<T: Sends, O: Operation<T, P>, P: Payload>(
        &mut self,
        index: usize,
        wr_id: WrId,
        request: &SendRequest<O, P>,
    ) -> *mut ibv_send_wr {
        let gather = request.operation.local(&request.payload);
        // SAFETY: both have `max_batch` + 1; no reference to either exists.
        unsafe {
            let (wr, sge) = (self.sends.as_ptr().add(index), self.sges.as_ptr().add(index));
            let (list, count) = describe(gather, sge);
            (*wr).wr_id = wr_id.0;
            (*wr).sg_list = list;
            (*wr).num_sge = count;
            (*wr).send_flags = request.flags | inline_flag(gather);
            request.operation.classic(&mut *wr);
            wr
        }
    }

    /// Posts the first `count` requests, of which there is one at least.
    ///
    /// # Safety
    /// They were added; as for [`post`](Self::post).
    pub(super) unsafe fn post_batch(&mut self, qp: NonNull<ibv_qp>, count: usize) -> Posted {
        let mut bad = ptr::null_mut();
        // SAFETY: the caller's promise.
        let (returned, first) = unsafe {
            let (first, last) = (self.sends.as_ptr().add(1), self.sends.as_ptr().add(count));
            (*last).next = ptr::null_mut();
            let returned = ibv_post_send(qp.as_ptr(), first, &raw mut bad);
            (*last).next = last.add(1); // which is beyond the end for the last of all, and followed by none
            (returned, first.addr())
        };
        Posted::of(returned, first, bad.addr(), size_of::<ibv_send_wr>())
    }
}

/// Tells the classic verbs a payload: where its entries are, which is `sge` if it is a single one, and how many.
///
/// # Safety
/// `sge` can be written.
#[inline]
pub(super) unsafe fn describe(gather: Gather<'_>, sge: *mut ibv_sge) -> (*mut ibv_sge, i32) {
    let one = match gather {
        Gather::Empty => return (sge, 0),
        Gather::One(one) => one,
        // `check_send` and `Receives::check` bounded the count.
        Gather::List { sges, count, .. } => return (sges.cast_mut(), i32::try_from(count).unwrap_or(i32::MAX)),
        // The address is read during the call only; `check_send` bounded the length.
        Gather::Inline(bytes) => {
            let length = u32::try_from(bytes.len()).unwrap_or(0);
            ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length, lkey: 0 }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { sge.write(one) };
    (sge, 1)
}

/// The flag that goes with a payload whose bytes are copied.
#[inline]
pub(super) fn inline_flag(gather: Gather<'_>) -> u32 {
    if matches!(gather, Gather::Inline(_)) { IBV_SEND_INLINE } else { 0 }
}

/// What a return value that is not 0 says of a single request. Only a `bad_wr` that was set says that it was not posted; the extended verbs
/// have none. Soft-RoCE, for one, queues a request and then reports that the queue pair is in the wrong state.
#[cold]
#[inline(never)]
pub(super) fn failure(returned: i32, bad_is_null: bool) -> PostError {
    let errno = Errno::from_return(returned);
    if bad_is_null { PostError::InDoubt(errno) } else { PostError::Refused(errno) }
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
///
/// # Example
/// What was not posted waits:
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
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
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
