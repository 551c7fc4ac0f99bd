//! Posting receives: the same for the receive queue of a queue pair and for a shared receive queue.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_post_recv, ibv_post_srq_recv, ibv_qp, ibv_recv_wr, ibv_sge, ibv_srq};

use super::owner::Owner;
use super::payload::{Gather, RecvPayload};
use super::posted::{BatchError, Posted, failure};
use super::rejected::{PostError, Rejected};
use super::request::RecvRequest;
use super::scratch::describe;
use crate::fixed::Fixed;
use crate::identity::{QueueId, WrId};
use crate::in_flight::{Entry, Next, Table};

/// Where receives are posted.
#[derive(Clone, Copy)]
pub(crate) enum Queue<'queue> {
    Pair(&'queue NonNull<ibv_qp>),
    Shared(&'queue NonNull<ibv_srq>),
}

impl Queue<'_> {
    fn verb(self) -> &'static str {
        match self {
            Self::Pair(_) => "ibv_post_recv",
            Self::Shared(_) => "ibv_post_srq_recv",
        }
    }

    /// # Safety
    /// The queue is alive and used by one thread; the requests are valid during the call, and the
    /// memory they name until it completes.
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

/// The receives in flight on a queue, and what posting them needs.
pub(crate) struct Receives<T> {
    pub(crate) table: T,
    room: Room,
}

/// Room for requests: one that is posted alone, and those of a batch, linked in order.
struct Room {
    max_sge: u32,
    max_batch: usize,
    alone: Fixed<Alone>,
    wrs: Fixed<ibv_recv_wr>,
    sges: Fixed<ibv_sge>,
}

/// A request, linked to none, and the one entry that it names, unless it is being posted with
/// others.
#[derive(Clone, Copy, Default)]
struct Alone {
    wr: ibv_recv_wr,
    sge: ibv_sge,
}

// SAFETY: the pointers in the requests are set anew before each use, or point into this.
unsafe impl Send for Room {}
// SAFETY: as above; nothing is reachable through a shared one.
unsafe impl Sync for Room {}

impl<T: Table> Receives<T> {
    pub(crate) fn new(table: T, max_sge: u32, max_batch: u32) -> Self {
        let max_batch = max_batch as usize;
        let (wrs, sges) = (Fixed::<ibv_recv_wr>::new(max_batch), Fixed::new(max_batch));
        for index in 1..max_batch {
            // SAFETY: both are among the `max_batch`.
            unsafe { (*wrs.as_ptr().add(index - 1)).next = wrs.as_ptr().add(index) };
        }
        let alone = Fixed::<Alone>::new(1);
        // SAFETY: there is one.
        unsafe { names_its_own(alone.as_ptr()) };
        Self {
            table,
            room: Room {
                max_sge,
                max_batch,
                alone,
                wrs,
                sges,
            },
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) fn post<P: RecvPayload>(
        &mut self,
        queue: Queue<'_>,
        owner: &Owner,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P>> {
        let Some(next) = Next::of(&mut self.table) else {
            let capacity = self.table.capacity();
            return Err(Rejected::new(
                queue.verb(),
                PostError::QueueFull { capacity },
                Some(request.payload),
            ));
        };
        if let Err(error) = check(owner, next.wr_id().queue(), self.room.max_sge, &request) {
            return Err(Rejected::new(queue.verb(), error, Some(request.payload)));
        }
        let mut bad = ptr::null_mut();
        // SAFETY: it is linked to none. The queue is alive and used by one thread; the memory that
        // is named stays valid: a Buf moves into the table below, held memory is kept.
        let returned = unsafe {
            post_alone(
                &self.room,
                queue,
                next.wr_id(),
                request.payload.scatter(),
                &mut bad,
            )
        };
        if returned != 0 {
            let error = failure(returned, bad.is_null());
            if let PostError::Refused(_) = error {
                drop(next);
                return Err(Rejected::new(queue.verb(), error, Some(request.payload)));
            }
            next.fill(request.payload.into_in_flight(), request.tag);
            return Err(Rejected::new(queue.verb(), error, None));
        }
        next.fill(request.payload.into_in_flight(), request.tag);
        Ok(())
    }

    pub(crate) fn batch<R, E: From<BatchError>>(
        &mut self,
        queue: Queue<'_>,
        owner: &Owner,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let Self { table, room } = self;
        let mut batch = RecvBatch {
            queue,
            table,
            room,
            owner,
            count: 0,
            finished: false,
        };
        let value = fill(&mut batch)?;
        batch.finish()?;
        Ok(value)
    }
}

/// What can be said before the provider hears of a receive.
#[inline]
fn check<P: RecvPayload>(
    owner: &Owner,
    id: QueueId,
    max: u32,
    request: &RecvRequest<P>,
) -> Result<(), PostError> {
    owner.check(request.payload.belongs(), id)?;
    match request.payload.scatter() {
        Gather::List { count, .. } if count > max as usize => {
            Err(PostError::TooManyPieces { count, max })
        }
        _ => Ok(()),
    }
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
///
/// # References
/// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
pub struct RecvBatch<'queue> {
    queue: Queue<'queue>,
    table: &'queue mut dyn Table,
    room: &'queue mut Room,
    owner: &'queue Owner,
    count: usize,
    finished: bool,
}

impl RecvBatch<'_> {
    /// Adds a receive.
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`](crate::QueuePair::post_recv), and [`PostError::BatchFull`]; the
    /// batch goes on without the request.
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[inline]
    pub fn recv<P: RecvPayload>(&mut self, request: RecvRequest<P>) -> Result<(), Rejected<P>> {
        let checked = check(self.owner, self.owner.id, self.room.max_sge, &request);
        let queue = self.queue;
        if self.count == self.room.max_batch {
            let max = u32::try_from(self.count).unwrap_or(u32::MAX);
            return Err(Rejected::new(
                queue.verb(),
                PostError::BatchFull { max },
                Some(request.payload),
            ));
        }
        if let Err(error) = checked {
            return Err(Rejected::new(queue.verb(), error, Some(request.payload)));
        }
        let Some(next) = Next::of(&mut *self.table) else {
            let capacity = self.table.capacity();
            return Err(Rejected::new(
                queue.verb(),
                PostError::QueueFull { capacity },
                Some(request.payload),
            ));
        };
        // SAFETY: `count` is less than `max_batch`.
        unsafe {
            write(
                self.room,
                self.count,
                next.wr_id(),
                request.payload.scatter(),
            );
        };
        next.fill(request.payload.into_in_flight(), request.tag);
        self.count += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<(), BatchError> {
        self.finished = true;
        if self.count == 0 {
            return Ok(());
        }
        let mut bad = ptr::null_mut();
        // SAFETY: so many requests were added. The queue is alive and used by one thread; the
        // memory that the requests name is in the table or held.
        let (returned, first) = unsafe {
            let (first, last) = (
                self.room.wrs.as_ptr(),
                self.room.wrs.as_ptr().add(self.count - 1),
            );
            (*last).next = ptr::null_mut();
            let returned = self.queue.post(first, &mut bad);
            (*last).next = last.add(1); // which is beyond the end for the last of all, and followed by none
            (returned, first.addr())
        };
        let outcome = Posted::of(returned, first, bad.addr(), size_of::<ibv_recv_wr>());
        let (verb, mut index) = (self.queue.verb(), self.count);
        outcome.into_result(verb, self.count, || {
            index -= 1;
            self.take_back(index)
        })
    }

    /// Takes the receive at `index` of the batch, one of `count`, out of the table again.
    fn take_back(&mut self, index: usize) -> Option<Entry> {
        debug_assert!(index < self.count);
        // SAFETY: one of the requests that were added.
        let wr_id = unsafe { (*self.room.wrs.as_ptr().add(index)).wr_id };
        self.table.take_back(WrId(wr_id))
    }
}

/// Posts the request that is alone.
///
/// # Safety
/// As [`Queue::post`] of it.
#[inline]
unsafe fn post_alone(
    room: &Room,
    queue: Queue<'_>,
    wr_id: WrId,
    scatter: Gather<'_>,
    bad: &mut *mut ibv_recv_wr,
) -> i32 {
    let alone = room.alone.as_ptr();
    // SAFETY: the caller's promise.
    unsafe {
        let (wr, sge) = (&raw mut (*alone).wr, &raw mut (*alone).sge);
        (*wr).wr_id = wr_id.0;
        if let Gather::One(one) = scatter {
            sge.write(one);
            return queue.post(wr, bad);
        }
        ((*wr).sg_list, (*wr).num_sge) = describe(scatter, sge);
        let returned = queue.post(wr, bad);
        names_its_own(alone);
        returned
    }
}

/// Lets the request name the one entry beside it.
///
/// # Safety
/// Both can be written, and no reference to either exists.
unsafe fn names_its_own(alone: *mut Alone) {
    // SAFETY: the caller's promise.
    unsafe { ((*alone).wr.sg_list, (*alone).wr.num_sge) = (&raw mut (*alone).sge, 1) };
}

/// Writes the receive at `index` of a batch.
///
/// # Safety
/// There are so many, and no reference to one exists.
#[inline]
unsafe fn write(room: &Room, index: usize, wr_id: WrId, scatter: Gather<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        let (wr, sge) = (room.wrs.as_ptr().add(index), room.sges.as_ptr().add(index));
        ((*wr).sg_list, (*wr).num_sge) = describe(scatter, sge);
        (*wr).wr_id = wr_id.0;
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
        f.debug_struct("RecvBatch")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
