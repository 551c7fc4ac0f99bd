//! What posting by the classic verbs needs beside the queue: room for requests.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use rdma_sys::{IBV_SEND_INLINE, ibv_post_send, ibv_qp, ibv_send_wr, ibv_sge};

use super::operation::Operation;
use super::payload::Gather;
use super::payload::private::Payload;
use super::posted::{Posted, failure};
use super::rejected::PostError;
use super::request::SendRequest;
use crate::fixed::Fixed;
use crate::identity::WrId;
use crate::transport::SendTransport;

/// Classic sends, allocated with the queue pair: one that is posted alone, and after it those of a
/// batch, linked in order.
///
/// What a request does not set keeps the value of an earlier one, which means nothing for another
/// opcode.
pub(crate) struct Scratch {
    sends: Fixed<ibv_send_wr>,
    sges: Fixed<ibv_sge>,
    /// Inline bytes of sends, copied when they are added: `inline_each` for each request.
    inline: Fixed<u8>,
    inline_each: usize,
    max_batch: usize,
    /// How many requests a batch has so far.
    batched: usize,
}

// SAFETY: the pointers in the requests are set anew before each use, or point into this; nothing is
// reached through a shared Scratch.
unsafe impl Send for Scratch {}
// SAFETY: as above.
unsafe impl Sync for Scratch {}

impl Scratch {
    pub(crate) fn new(max_batch: u32, max_inline: u32, classic: bool) -> Self {
        let max_batch = max_batch as usize;
        let (count, inline_each) = if classic {
            (max_batch + 1, max_inline as usize)
        } else {
            (0, 0)
        };
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
    pub(crate) fn max(&self) -> usize {
        self.max_batch
    }

    /// Writes a request and posts it.
    ///
    /// # Safety
    /// Made for classic posts. `qp` is alive and not used by another thread; the memory that the
    /// request names stays valid until its completion.
    #[inline]
    pub(crate) unsafe fn post<T: SendTransport, O: Operation<T, P>, P: Payload>(
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
        if returned == 0 {
            None
        } else {
            Some(failure(returned, bad.is_null()))
        }
    }

    /// Begins a batch: the requests of an earlier one are no more.
    pub(crate) fn start_batch(&mut self) {
        self.batched = 0;
    }

    /// Adds a request to a batch.
    ///
    /// # Safety
    /// Made for classic posts; the batch has fewer than `max`, and the inline bytes are not more
    /// than the queue pair takes.
    #[inline]
    pub(crate) unsafe fn add<T: SendTransport, O: Operation<T, P>, P: Payload>(
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
    unsafe fn write<T: SendTransport, O: Operation<T, P>, P: Payload>(
        &mut self,
        index: usize,
        wr_id: WrId,
        request: &SendRequest<O, P>,
    ) -> *mut ibv_send_wr {
        let gather = request.operation.local(&request.payload);
        // SAFETY: both have `max_batch` + 1; no reference to either exists.
        unsafe {
            let (wr, sge) = (
                self.sends.as_ptr().add(index),
                self.sges.as_ptr().add(index),
            );
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
    pub(crate) unsafe fn post_batch(&mut self, qp: NonNull<ibv_qp>, count: usize) -> Posted {
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

/// Tells the classic verbs a payload: where its entries are, which is `sge` if it is a single one,
/// and how many.
///
/// # Safety
/// `sge` can be written.
#[inline]
pub(crate) unsafe fn describe(gather: Gather<'_>, sge: *mut ibv_sge) -> (*mut ibv_sge, i32) {
    let one = match gather {
        Gather::Empty => return (sge, 0),
        Gather::One(one) => one,
        // `check_send` and `Receives::check` bounded the count.
        Gather::List { sges, count, .. } => {
            return (sges.cast_mut(), i32::try_from(count).unwrap_or(i32::MAX));
        }
        // The address is read during the call only; `check_send` bounded the length.
        Gather::Inline(bytes) => {
            let length = u32::try_from(bytes.len()).unwrap_or(0);
            ibv_sge {
                addr: bytes.as_ptr().expose_provenance() as u64,
                length,
                lkey: 0,
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { sge.write(one) };
    (sge, 1)
}

/// The flag that goes with a payload whose bytes are copied.
#[inline]
pub(crate) fn inline_flag(gather: Gather<'_>) -> u32 {
    if matches!(gather, Gather::Inline(_)) {
        IBV_SEND_INLINE
    } else {
        0
    }
}
