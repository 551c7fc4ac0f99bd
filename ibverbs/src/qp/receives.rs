//! Posting receives: the same for the receive queue of a queue pair and for a shared receive queue.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_post_recv, ibv_post_srq_recv, ibv_qp, ibv_recv_wr, ibv_sge, ibv_srq};

use super::inflight::{Entry, RecvSlab};
use super::owner::Owner;
use super::payload::{Gather, RecvPayload};
use super::rejected::{PostError, Rejected};
use super::scratch::{BatchError, Local, Posted, outcome};
use super::wr::RecvRequest;
use crate::identity::{Direction, WrId};

/// Where receives are posted.
#[derive(Clone, Copy)]
pub(super) enum Queue {
    Pair(NonNull<ibv_qp>),
    Shared(NonNull<ibv_srq>),
}

impl Queue {
    fn verb(self) -> &'static str {
        match self {
            Self::Pair(_) => "ibv_post_recv",
            Self::Shared(_) => "ibv_post_srq_recv",
        }
    }

    /// # Safety
    /// The queue is alive and used by one thread; the requests are valid during the call, and the memory they name until it completes.
    #[inline]
    unsafe fn post(self, wr: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> i32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Pair(qp) => ibv_post_recv(qp.as_ptr(), wr, bad),
                Self::Shared(srq) => ibv_post_srq_recv(srq.as_ptr(), wr, bad),
            }
        }
    }
}

/// The receives in flight on a queue, and the room for a batch of them.
pub(super) struct Receives {
    queue: Queue,
    slab: RecvSlab,
    max_sge: u32,
    wrs: Box<[ibv_recv_wr]>,
    sges: Box<[ibv_sge]>,
}

// SAFETY: the pointers in the requests are set anew before each use and mean nothing in between; the queue is used through `&mut`.
unsafe impl Send for Receives {}
// SAFETY: as above; nothing is reachable through a shared Receives.
unsafe impl Sync for Receives {}

impl Receives {
    pub(super) fn new(queue: Queue, capacity: u32, max_sge: u32, max_batch: u32) -> Self {
        let size = max_batch as usize;
        Self {
            queue,
            slab: RecvSlab::new(capacity),
            max_sge,
            wrs: vec![ibv_recv_wr::default(); size].into(),
            sges: vec![ibv_sge::default(); size].into(),
        }
    }

    #[inline]
    pub(super) fn room(&self) -> usize {
        self.slab.room() as usize
    }

    #[inline]
    pub(super) fn retire(&mut self, number: u32) -> Option<Entry> {
        self.slab.retire(number)
    }

    pub(super) fn drain(&mut self) -> Vec<Entry> {
        self.slab.drain()
    }

    #[inline]
    pub(super) fn post<P: RecvPayload>(&mut self, owner: &Owner, request: RecvRequest<P>) -> Result<(), Rejected<P>> {
        let verb = self.queue.verb();
        let number = match self.check(owner, &request) {
            Ok(number) => number,
            Err(error) => return Err(Rejected::new(verb, error, Some(request.payload))),
        };
        let wr_id = WrId::new(owner.id, Direction::Recv, number);
        let mut local = Local::of(request.payload.scatter());
        let mut wr =
            ibv_recv_wr { wr_id: wr_id.0, next: ptr::null_mut(), sg_list: local.entries(), num_sge: local.count };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is alive and used by one thread; request and entry are valid during the call, and the memory they name stays
        // valid: a Buf moves into the table below, held memory is kept.
        let returned = unsafe { self.queue.post(&raw mut wr, &mut bad) };
        match outcome(returned, bad.is_null()) {
            Err(error @ PostError::Refused(_)) => Err(Rejected::new(verb, error, Some(request.payload))),
            outcome => {
                self.slab.insert(Entry { payload: request.payload.into_in_flight(), tag: request.tag });
                outcome.map_err(|error| Rejected::new(verb, error, None))
            }
        }
    }

    /// What can be said before the provider hears of a receive; the number that it will carry.
    #[inline]
    fn check<P: RecvPayload>(&self, owner: &Owner, request: &RecvRequest<P>) -> Result<u32, PostError> {
        owner.check(request.payload.belongs())?;
        let local = request.payload.scatter();
        if local.count() > self.max_sge as usize && matches!(local, Gather::List { .. }) {
            return Err(PostError::TooManyPieces { count: local.count(), max: self.max_sge });
        }
        self.slab.next_number().ok_or(PostError::QueueFull { capacity: self.slab.capacity() })
    }

    pub(super) fn batch<R, E: From<BatchError>>(
        &mut self,
        owner: &Owner,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut batch = RecvBatch { receives: self, owner, count: 0, finished: false };
        let value = fill(&mut batch)?;
        batch.finish()?;
        Ok(value)
    }
}

impl fmt::Debug for Receives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receives").field("room", &self.room()).finish_non_exhaustive()
    }
}

/// Receives that are posted together. See [`QueuePair::recv_batch`](crate::QueuePair::recv_batch).
pub struct RecvBatch<'queue> {
    receives: &'queue mut Receives,
    owner: &'queue Owner,
    count: usize,
    finished: bool,
}

impl RecvBatch<'_> {
    /// Adds a receive.
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`](crate::QueuePair::post_recv), and [`PostError::BatchFull`]; the batch goes on without the request.
    #[inline]
    pub fn recv<P: RecvPayload>(&mut self, request: RecvRequest<P>) -> Result<(), Rejected<P>> {
        let receives = &mut *self.receives;
        let checked = if self.count == receives.wrs.len() {
            Err(PostError::BatchFull { max: u32::try_from(self.count).unwrap_or(u32::MAX) })
        } else {
            receives.check(self.owner, &request)
        };
        let number = match checked {
            Ok(number) => number,
            Err(error) => return Err(Rejected::new(receives.queue.verb(), error, Some(request.payload))),
        };
        let wr_id = WrId::new(self.owner.id, Direction::Recv, number);
        let local = Local::of(request.payload.scatter());
        receives.sges[self.count] = local.sge;
        receives.wrs[self.count] =
            ibv_recv_wr { wr_id: wr_id.0, sg_list: local.list, num_sge: local.count, ..Default::default() };
        receives.slab.insert(Entry { payload: request.payload.into_in_flight(), tag: request.tag });
        self.count += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<(), BatchError> {
        self.finished = true;
        if self.count == 0 {
            return Ok(());
        }
        let (wrs, sges) = (self.receives.wrs.as_mut_ptr(), self.receives.sges.as_mut_ptr());
        for index in 0..self.count {
            // SAFETY: index < count, which is at most the length of both.
            unsafe {
                if (*wrs.add(index)).sg_list.is_null() {
                    (*wrs.add(index)).sg_list = sges.add(index);
                }
                (*wrs.add(index)).next = if index + 1 < self.count { wrs.add(index + 1) } else { ptr::null_mut() };
            }
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is alive and used by one thread; the requests are linked above and valid during the call, and the memory they
        // name is in the table or held.
        let returned = unsafe { self.receives.queue.post(wrs, &mut bad) };
        let outcome = Posted::of(returned, wrs.addr(), bad.addr(), size_of::<ibv_recv_wr>());
        let (verb, mut index) = (self.receives.queue.verb(), self.count);
        outcome.into_result(verb, self.count, || {
            index -= 1;
            self.take_back(index)
        })
    }

    /// Takes the receive at `index` of the batch out of the table again.
    fn take_back(&mut self, index: usize) -> Option<Entry> {
        let number = WrId(self.receives.wrs.get(index)?.wr_id).table();
        self.receives.slab.retire(number)
    }
}

impl Drop for RecvBatch<'_> {
    fn drop(&mut self) {
        if !self.finished {
            for index in (0..self.count).rev() {
                drop(self.take_back(index));
            }
        }
    }
}

impl fmt::Debug for RecvBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch").field("count", &self.count).finish_non_exhaustive()
    }
}
