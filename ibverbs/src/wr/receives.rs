//! Posting receives to the receive queue of a queue pair or to a shared receive queue.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_post_recv, ibv_post_srq_recv, ibv_qp, ibv_recv_wr, ibv_srq};

use super::owner::Owner;
use super::payload::{Gather, RecvPayload};
use super::posted::{BatchError, Posted, post_error};
use super::rejected::{PostError, Rejected};
use super::request::RecvRequest;
use super::scratch::RecvScratch;
use crate::device::Avoided;
use crate::error::Error;
use crate::in_flight::{AnyTable, Owned, Request, RequestTable, Vacant};

/// The handle of the queue to which receives are posted.
#[derive(Clone, Copy)]
pub(crate) enum RecvHandle {
    /// `None` if a scope has destroyed the queue pair, which then has no slots.
    Qp(Option<NonNull<ibv_qp>>),
    Srq(NonNull<ibv_srq>),
}

/// Returns the handle for a post, which takes a slot before, so that it is not null.
#[inline]
pub(crate) fn raw_or_null(qp: Option<NonNull<ibv_qp>>) -> *mut ibv_qp {
    qp.map_or(ptr::null_mut(), NonNull::as_ptr)
}

impl RecvHandle {
    fn verb(self) -> &'static str {
        match self {
            Self::Qp(_) => "ibv_post_recv",
            Self::Srq(_) => "ibv_post_srq_recv",
        }
    }

    /// Returns the error for a queue with this number of slots, none of them free.
    fn no_slot(self, capacity: u32) -> PostError {
        let is_destroyed = matches!(self, Self::Qp(None));
        PostError::no_slot(is_destroyed, capacity)
    }

    /// # Safety
    /// The queue is alive and no other thread uses it. The requests are valid during the call, and
    /// their memory until they have completed.
    #[inline]
    unsafe fn post(self, wr: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> i32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Self::Qp(qp) => ibv_post_recv(raw_or_null(qp), wr, bad),
                Self::Srq(srq) => ibv_post_srq_recv(srq.as_ptr(), wr, bad),
            }
        }
    }
}

/// The receives in flight on a queue, and the requests to post them with.
pub(crate) struct Receives<T> {
    pub(crate) table: T,
    max_sge: u32,
    scratch: RecvScratch,
}

impl<T: RequestTable> Receives<T> {
    pub(crate) fn new(table: T, max_sge: u32, max_batch: usize) -> Self {
        Self {
            table,
            max_sge,
            scratch: RecvScratch::new(max_batch),
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) fn post<P: RecvPayload>(
        &mut self,
        handle: RecvHandle,
        owner: &Owner,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P::Returned>> {
        let verb = handle.verb();
        let mut table = self.table.as_any();
        let Some(vacant) = table.vacant() else {
            let error = handle.no_slot(table.capacity());
            return Err(Rejected::new(verb, error, request.payload.into_returned()));
        };
        if let Err(error) = check(owner, self.max_sge, &request) {
            return Err(Rejected::new(verb, error, request.payload.into_returned()));
        }
        let wr = self
            .scratch
            .single(vacant.wr_id(), request.payload.scatter());
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is alive and used by one thread. The table takes the buffer below, or
        // the owner holds the memory.
        let returned = unsafe { handle.post(wr, &mut bad) };
        if returned != 0 {
            let error = post_error(returned, bad.is_null());
            return Err(reject(verb, error, request, vacant));
        }
        vacant.fill(Request {
            owned: Owned::new(request.payload.into_in_flight()),
            tag: request.tag,
        });
        Ok(())
    }

    pub(crate) fn batch<R, E: From<BatchError>>(
        &mut self,
        handle: RecvHandle,
        owner: &Owner,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
        explain: impl FnOnce(&'static str, PostError) -> Option<Error>,
    ) -> Result<R, E> {
        let mut batch = RecvBatch {
            handle,
            table: self.table.as_any(),
            max_sge: self.max_sge,
            scratch: &mut self.scratch,
            owner,
            count: 0,
        };
        let value = fill(&mut batch)?;
        batch.finish().map_err(|error| error.explained(explain))?;
        Ok(value)
    }
}

/// Checks a request before it is posted.
#[inline]
fn check<P: RecvPayload>(
    owner: &Owner,
    max_sge: u32,
    request: &RecvRequest<P>,
) -> Result<(), PostError> {
    owner.check(request.payload.postable_to())?;
    match request.payload.scatter() {
        Gather::List { count, .. } if count > max_sge as usize => Err(PostError::TooManyPieces {
            count,
            max: max_sge,
        }),
        Gather::Empty | Gather::List { count: 0, .. }
            if owner.pd.context().avoids(Avoided::EMPTY_RECEIVES) =>
        {
            Err(PostError::EmptyReceive)
        }
        _ => Ok(()),
    }
}

/// Handles a failed post. The queue keeps a request that may have been posted.
#[cold]
#[inline(never)]
fn reject<P: RecvPayload>(
    verb: &'static str,
    error: PostError,
    request: RecvRequest<P>,
    vacant: Vacant<'_>,
) -> Rejected<P::Returned> {
    if let PostError::Refused(_) = error {
        vacant.skip();
        return Rejected::new(verb, error, request.payload.into_returned());
    }
    vacant.fill(Request {
        owned: Owned::new(request.payload.into_in_flight()),
        tag: request.tag,
    });
    Rejected::new(verb, error, None)
}

/// Receives that are posted together. See [`QueuePair::recv_batch`](crate::QueuePair::recv_batch).
///
/// # Example
/// ```no_run
/// use ibverbs::{Pool, RecvBatch, Result, wr};
/// fn fill(batch: &mut RecvBatch<'_>, pool: &Pool) -> Result<()> {
///     while let Some(buf) = pool.take() {
///         batch.recv(wr::recv(buf))?;
///     }
///     Ok(())
/// }
/// # fn f(qp: &mut ibverbs::QueuePair<ibverbs::Rc>, pool: &Pool) -> Result<()> {
/// qp.recv_batch(|batch| fill(batch, pool))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_post_recv")]
pub struct RecvBatch<'queue> {
    handle: RecvHandle,
    table: AnyTable<'queue>,
    max_sge: u32,
    scratch: &'queue mut RecvScratch,
    owner: &'queue Owner,
    /// Number of requests that are in the table and not posted yet.
    count: usize,
}

impl RecvBatch<'_> {
    /// Adds a receive.
    ///
    /// # Errors
    /// Those of [`QueuePair::post_recv`](crate::QueuePair::post_recv), and
    /// [`PostError::BatchFull`]. The batch stays as it was without the request.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn recv<P: RecvPayload>(
        &mut self,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P::Returned>> {
        let verb = self.handle.verb();
        if let Err(error) = check(self.owner, self.max_sge, &request) {
            return Err(Rejected::new(verb, error, request.payload.into_returned()));
        }
        let Some(vacant) = self.table.vacant() else {
            let error = self.handle.no_slot(self.table.capacity());
            return Err(Rejected::new(verb, error, request.payload.into_returned()));
        };
        let scatter = request.payload.scatter();
        if let Err(error) = self.scratch.add(self.count, vacant.wr_id(), scatter) {
            return Err(Rejected::new(verb, error, request.payload.into_returned()));
        }
        vacant.fill(Request {
            owned: Owned::new(request.payload.into_in_flight()),
            tag: request.tag,
        });
        self.count += 1;
        Ok(())
    }

    /// Posts the requests.
    fn finish(mut self) -> Result<(), BatchError> {
        if self.count == 0 {
            return Ok(());
        }
        let (first, mut bad) = (self.scratch.first(), ptr::null_mut());
        // SAFETY: the queue is alive and used by one thread. `count` linked requests were added.
        // The table has their buffers, or the owner holds the memory.
        let returned = unsafe { self.handle.post(first, &mut bad) };
        let posted = Posted::new(returned, first.addr(), bad.addr(), RecvScratch::STRIDE);
        // The provider has the requests now: dropping the batch must not remove them.
        let count = std::mem::take(&mut self.count);
        let mut index = count;
        posted.into_result(self.handle.verb(), count, || {
            index -= 1;
            self.table.take_back(self.scratch.wr_id(index))
        })
    }
}

impl Drop for RecvBatch<'_> {
    /// Removes the requests that were not posted, newest first.
    fn drop(&mut self) {
        for index in (0..self.count).rev() {
            drop(self.table.take_back(self.scratch.wr_id(index)));
        }
    }
}

impl fmt::Debug for RecvBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
