//! Work requests and scatter/gather entries for the verbs that take lists of them, allocated with
//! the queue.

#![allow(unsafe_code)]

use std::ptr;

use rdma_sys::{IBV_SEND_INLINE, ibv_post_send, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge};

use super::operation::Operation;
use super::owner::Owner;
use super::payload::Gather;
use super::payload::private::Payload;
use super::posted::Posted;
use super::rejected::PostError;
use super::request::{PostFlags, SendRequest};
use crate::in_flight::CompletionOrder;
use crate::transport::SendTransport;
use crate::wr_id::WrId;

/// A work request, and the entry for a payload that has only one.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Entry<W> {
    wr: W,
    sge: ibv_sge,
}

/// The requests of classic sends: a single one, and those of a batch.
///
/// Fields that a request does not set keep the values of an earlier one. They have no meaning for
/// its opcode.
pub(crate) struct SendScratch {
    order: CompletionOrder,
    /// Never linked to another request.
    single: Entry<ibv_send_wr>,
    batch: Vec<Entry<ibv_send_wr>>,
    /// Number of requests in the batch.
    count: usize,
    /// Copies of inline data, `inline_each` bytes for each request.
    inline: Vec<u8>,
    inline_each: usize,
    /// The request that the last post could not post.
    bad: *mut ibv_send_wr,
}

// SAFETY: the pointers in the requests are set before each post, and only `&mut self` reads them.
unsafe impl Send for SendScratch {}
// SAFETY: see `Send`.
unsafe impl Sync for SendScratch {}

impl SendScratch {
    pub(crate) fn new(order: CompletionOrder, max_batch: usize, max_inline: u32) -> Self {
        let inline_each = max_inline as usize;
        Self {
            order,
            single: Entry::default(),
            batch: vec![Entry::default(); max_batch],
            count: 0,
            inline: vec![0; max_batch * inline_each],
            inline_each,
            bad: ptr::null_mut(),
        }
    }

    /// Posts a single request. Returns the value that the verb returned, and `true` if the table
    /// must know that the request is unsignaled.
    ///
    /// # Safety
    /// `qp` is alive and no other thread uses it. The memory of the request stays valid until the
    /// request has completed.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) unsafe fn post<T: SendTransport, O: Operation<T, P>, P: Payload>(
        &mut self,
        qp: *mut ibv_qp,
        wr_id: WrId,
        request: &SendRequest<O, P>,
        owner: &Owner,
    ) -> (i32, bool) {
        self.bad = ptr::null_mut();
        let PostFlags { flags, needs_mark } = request.flags_for(self.order, owner);
        // SAFETY: guaranteed by the caller; the request is linked to no other one.
        unsafe {
            let wr = Entry::write_send(&raw mut self.single, wr_id, request, flags);
            let returned = ibv_post_send(qp, wr, &raw mut self.bad);
            (returned, needs_mark)
        }
    }

    /// Returns `true` if the last single post set no `bad_wr`.
    pub(crate) fn bad_is_null(&self) -> bool {
        self.bad.is_null()
    }

    /// Adds a request to the batch. Its inline data is copied, because it need not live until the
    /// batch is posted. Returns `true` if the table must know that the request is unsignaled.
    ///
    /// # Errors
    /// [`PostError::BatchFull`].
    #[inline]
    pub(crate) fn add<T: SendTransport, O: Operation<T, P>, P: Payload>(
        &mut self,
        wr_id: WrId,
        request: &SendRequest<O, P>,
        owner: &Owner,
    ) -> Result<bool, PostError> {
        let count = self.count;
        if count >= self.batch.len() {
            return Err(batch_full(count));
        }
        let PostFlags { flags, needs_mark } = request.flags_for(self.order, owner);
        let entry = next_entry(&mut self.batch, count);
        // SAFETY: the entry can be written.
        unsafe { Entry::write_send(entry, wr_id, request, flags) };
        if let Gather::Inline(bytes) = request.operation.local(&request.payload) {
            let start = count * self.inline_each;
            self.inline[start..start + bytes.len()].copy_from_slice(bytes);
        }
        self.count += 1;
        Ok(needs_mark)
    }

    /// Removes the requests of the batch.
    pub(crate) fn clear_batch(&mut self) {
        self.count = 0;
    }

    /// Posts the requests of the batch, which is then empty.
    ///
    /// # Safety
    /// At least one request was [added](Self::add). `qp` is alive and no other thread uses it. The
    /// memory of the requests stays valid until they have completed.
    pub(crate) unsafe fn post_batch(&mut self, qp: *mut ibv_qp) -> Posted {
        self.set_inline_addresses(self.count);
        self.clear_batch();
        let (first, mut bad) = (self.batch.as_mut_ptr().cast(), ptr::null_mut());
        // SAFETY: guaranteed by the caller; the last request is linked to no other one.
        let returned = unsafe { ibv_post_send(qp, first, &raw mut bad) };
        Posted::new(
            returned,
            first.addr(),
            bad.addr(),
            size_of::<Entry<ibv_send_wr>>(),
        )
    }

    /// Lets inline requests refer to the copies of their data.
    fn set_inline_addresses(&mut self, count: usize) {
        let entries = self.batch.as_mut_ptr();
        let inline = self.inline.as_mut_ptr().expose_provenance();
        for index in 0..count {
            // SAFETY: `count` requests were added, and no reference to one exists.
            unsafe {
                let entry = entries.add(index);
                if (*entry).wr.send_flags & IBV_SEND_INLINE != 0 {
                    (*entry).sge.addr = (inline + index * self.inline_each) as u64;
                }
            }
        }
    }
}

/// The requests of receives: a single one, and those of a batch.
pub(crate) struct RecvScratch {
    /// Never linked to another request.
    single: Entry<ibv_recv_wr>,
    batch: Vec<Entry<ibv_recv_wr>>,
}

// SAFETY: the pointers in the requests are set before each post, and only `&mut self` reads them.
unsafe impl Send for RecvScratch {}
// SAFETY: see `Send`.
unsafe impl Sync for RecvScratch {}

impl RecvScratch {
    pub(crate) fn new(max_batch: usize) -> Self {
        Self {
            single: Entry::default(),
            batch: vec![Entry::default(); max_batch],
        }
    }

    /// Size of a request with its entry, which is the distance between two requests.
    pub(crate) const STRIDE: usize = size_of::<Entry<ibv_recv_wr>>();

    /// Returns the first request.
    pub(crate) fn first(&mut self) -> *mut ibv_recv_wr {
        self.batch.as_mut_ptr().cast()
    }

    /// Returns the `wr_id` of the request at `index`.
    pub(crate) fn wr_id(&self, index: usize) -> WrId {
        WrId(self.batch[index].wr.wr_id)
    }

    /// Adds a request to a batch of `count` requests.
    ///
    /// # Errors
    /// [`PostError::BatchFull`].
    #[inline]
    pub(crate) fn add(
        &mut self,
        count: usize,
        wr_id: WrId,
        scatter: Gather<'_>,
    ) -> Result<(), PostError> {
        if count >= self.batch.len() {
            return Err(batch_full(count));
        }
        let entry = next_entry(&mut self.batch, count);
        // SAFETY: the entry can be written.
        unsafe { Entry::write_recv(entry, wr_id, scatter) };
        Ok(())
    }

    /// Sets the fields of the single request and returns it.
    #[inline]
    pub(crate) fn single(&mut self, wr_id: WrId, scatter: Gather<'_>) -> *mut ibv_recv_wr {
        // SAFETY: the entry can be written.
        unsafe { Entry::write_recv(&raw mut self.single, wr_id, scatter) }
    }
}

impl Entry<ibv_send_wr> {
    /// Sets the fields of a request, but not the link to the next one, and returns it.
    ///
    /// # Safety
    /// `this` can be written.
    #[inline]
    unsafe fn write_send<T: SendTransport, O: Operation<T, P>, P: Payload>(
        this: *mut Self,
        wr_id: WrId,
        request: &SendRequest<O, P>,
        flags: u32,
    ) -> *mut ibv_send_wr {
        let gather = request.operation.local(&request.payload);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let wr = &raw mut (*this).wr;
            let (sg_list, num_sge) = write_sge(gather, &raw mut (*this).sge);
            (*wr).wr_id = wr_id.0;
            (*wr).sg_list = sg_list;
            (*wr).num_sge = num_sge;
            (*wr).send_flags = flags | inline_flag(gather);
            request.operation.classic(&mut *wr);
            wr
        }
    }
}

impl Entry<ibv_recv_wr> {
    /// Sets the fields of a request, but not the link to the next one, and returns it.
    ///
    /// # Safety
    /// `this` can be written.
    #[inline]
    unsafe fn write_recv(this: *mut Self, wr_id: WrId, scatter: Gather<'_>) -> *mut ibv_recv_wr {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let wr = &raw mut (*this).wr;
            let (sg_list, num_sge) = write_sge(scatter, &raw mut (*this).sge);
            (*wr).wr_id = wr_id.0;
            (*wr).sg_list = sg_list;
            (*wr).num_sge = num_sge;
            wr
        }
    }
}

/// A request that can be linked to the next one.
trait Link: Sized {
    fn link(&mut self, next: *mut Self);
}

impl Link for ibv_send_wr {
    #[inline]
    fn link(&mut self, next: *mut Self) {
        self.next = next;
    }
}

impl Link for ibv_recv_wr {
    #[inline]
    fn link(&mut self, next: *mut Self) {
        self.next = next;
    }
}

/// Returns the error of a batch that has its maximum of `count` requests.
#[cold]
fn batch_full(count: usize) -> PostError {
    PostError::BatchFull {
        max: u32::try_from(count).unwrap_or(u32::MAX),
    }
}

/// Returns the entry at `index` of a batch, linked to the one before it and to no later one.
#[inline]
fn next_entry<W: Link>(batch: &mut Vec<Entry<W>>, index: usize) -> *mut Entry<W> {
    assert!(index < batch.len());
    // SAFETY: the index is in bounds. The vector gives no references to its entries meanwhile.
    unsafe {
        let entry = batch.as_mut_ptr().add(index);
        (*entry).wr.link(ptr::null_mut());
        if index > 0 {
            (*entry.sub(1)).wr.link(&raw mut (*entry).wr);
        }
        entry
    }
}

/// Returns the address and number of the entries of a payload. A single entry is written to `sge`.
///
/// # Safety
/// `sge` can be written.
#[inline]
unsafe fn write_sge(gather: Gather<'_>, sge: *mut ibv_sge) -> (*mut ibv_sge, i32) {
    let (entry, count) = match gather {
        // Providers read the first entry of an empty list too (docs/drivers.md).
        Gather::Empty | Gather::List { count: 0, .. } => (ibv_sge::default(), 0),
        Gather::One(entry) => (entry, 1),
        Gather::Whole(entry) => return (ptr::from_ref(entry).cast_mut(), 1),
        // The checks before a post limit the count.
        Gather::List { sges, count, .. } => {
            return (sges.cast_mut(), i32::try_from(count).unwrap_or(i32::MAX));
        }
        // The checks before a post limit the length.
        Gather::Inline(bytes) => {
            let entry = ibv_sge {
                addr: bytes.as_ptr().expose_provenance() as u64,
                length: u32::try_from(bytes.len()).unwrap_or(0),
                lkey: 0,
            };
            (entry, 1)
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { sge.write(entry) };
    (sge, count)
}

/// Returns `IBV_SEND_INLINE` for inline data.
#[inline]
pub(crate) fn inline_flag(gather: Gather<'_>) -> u32 {
    if matches!(gather, Gather::Inline(_)) {
        IBV_SEND_INLINE
    } else {
        0
    }
}
