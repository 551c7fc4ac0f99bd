//! Many requests, one doorbell. A batch lives inside a closure: it cannot be forgotten, and an error or a panic aborts it.

#![allow(unsafe_code)]

use std::fmt;

use rdma_sys::{ibv_wr_abort, ibv_wr_complete, ibv_wr_start};

use super::operation::Operation;
use super::pair::QueuePair;
use super::payload::private::Payload;
use super::place::Table;
use super::post::write_extended;
use super::posted::{BatchError, Posted};
use super::receives::{Queue, RecvBatch};
use super::rejected::{PostError, Rejected};
use super::ring::{Limit, Ring};
use super::scratch::Scratch;
use super::tables::Tables;
use super::transport::{Sends, Transport};
use super::wr::SendRequest;
use crate::errno::Errno;

/// Sends that are posted together. See [`QueuePair::batch`].
///
/// # Example
/// ```no_run
/// use ibverbs::{Batch, Buf, Rc, Result, wr};
/// fn last_signaled(batch: &mut Batch<'_, Rc>, bufs: Vec<Buf>) -> Result<()> {
///     for buf in bufs {
///         batch.send(wr::send(buf).unsignaled())?;
///     }
///     batch.send(wr::send(wr::Empty))?;
///     Ok(())
/// }
/// # fn f(qp: &mut ibverbs::QueuePair<Rc>, bufs: Vec<Buf>) -> Result<()> {
/// qp.batch(|batch| last_signaled(batch, bufs))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_wr_post(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
pub struct Batch<'qp, T: Sends> {
    qp: &'qp mut QueuePair<T>,
    start: Limit,
    limit: Limit,
    finished: bool,
}

impl<T: Sends> QueuePair<T> {
    /// Posts what the closure adds, with one doorbell. If the closure fails or panics, nothing is posted and the buffers go
    /// back to their pools.
    ///
    /// # Example
    /// ```no_run
    /// # use ibverbs::{wr, Buf, Error, QueuePair, Rc};
    /// # fn all(qp: &mut QueuePair<Rc>, bufs: Vec<Buf>) -> Result<(), Error> {
    /// qp.batch(|batch| -> Result<(), Error> {
    ///     for buf in bufs {
    ///         batch.send(wr::send(buf))?;
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The closure's own, or a [`BatchError`] made into it.
    ///
    /// # References
    /// [`ibv_wr_start(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html),
    /// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    pub fn batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut Batch<'_, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut batch = Batch::start(self);
        let value = fill(&mut batch)?;
        batch.finish()?;
        Ok(value)
    }
}

impl<T: Transport> QueuePair<T> {
    /// As [`batch`](Self::batch), for receives.
    ///
    /// # Errors
    /// The closure's own, or a [`BatchError`] made into it.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Pool, QueuePair, Rc, Result, wr};
    /// # fn f(qp: &mut QueuePair<Rc>, pool: &Pool) -> Result<()> {
    /// qp.recv_batch(|batch| {
    ///     for _ in 0..32 {
    ///         batch.recv(wr::recv(pool.take().expect("a pool of 32 at least")))?;
    ///     }
    ///     Result::Ok(())
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    pub fn recv_batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let tables = &mut *self.tables;
        tables.recvs.batch(Queue::Pair(self.raw), &tables.owner, fill)
    }
}

impl<'qp, T: Sends> Batch<'qp, T> {
    fn start(qp: &'qp mut QueuePair<T>) -> Self {
        if let Some(extended) = qp.extended {
            // SAFETY: the queue pair is alive and used by one thread; `finish` or `drop` ends what begins here.
            unsafe { ibv_wr_start(extended.as_ptr()) };
        }
        qp.scratch.start_batch();
        let limit = qp.tables.sends.limit(qp.scratch.max());
        Self { start: qp.tables.sends.mark(), qp, limit, finished: false }
    }

    /// How many requests it has.
    fn count(&self) -> usize {
        self.qp.tables.sends.since(&self.start)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`], and [`PostError::BatchFull`]; the batch goes on without the request.
    ///
    /// # References
    /// [`ibv_wr_post(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[inline]
    pub fn send<O: Operation<T, P>, P: Payload>(&mut self, request: SendRequest<O, P>) -> Result<(), Rejected<P>> {
        const VERB: &str = "ibv_post_send";
        if let Err(error) = self.qp.check_send(&request) {
            return Err(Rejected::new(VERB, error, Some(request.payload)));
        }
        let QueuePair { tables, scratch, extended, .. } = &mut *self.qp;
        let Tables { sends, windows, .. } = &mut **tables;
        let Some(next) = sends.next_within(&self.limit) else {
            return Err(Rejected::new(VERB, full(sends, scratch), Some(request.payload)));
        };
        match *extended {
            // SAFETY: between `ibv_wr_start` and its end; what the payload names stays valid (see QueuePair::post_send).
            Some(qp) => unsafe { write_extended(qp, next.wr_id(), &request) },
            // SAFETY: without the extended verbs, the requests are for classic posts; the rest is checked above.
            None => unsafe { scratch.add(next.wr_id(), &request) },
        }
        windows.extend(O::bound(&request.payload));
        next.fill(request.operation.into_in_flight(request.payload), request.tag);
        Ok(())
    }

    fn finish(mut self) -> Result<(), BatchError> {
        const VERB: &str = "ibv_post_send";
        self.finished = true;
        let count = self.count();
        let outcome = match self.qp.extended {
            Some(extended) if count == 0 => {
                // SAFETY: ends what `start` began.
                unsafe { ibv_wr_abort(extended.as_ptr()) };
                Posted::All
            }
            Some(extended) => {
                // SAFETY: ends what `start` began.
                match unsafe { ibv_wr_complete(extended.as_ptr()) } {
                    0 => Posted::All,
                    number => Posted::InDoubt(Errno::from_return(number)),
                }
            }
            None if count == 0 => Posted::All,
            // SAFETY: the queue pair is alive and used by one thread; so many requests were added, and what they name is in the table or held.
            None => unsafe { self.qp.scratch.post_batch(self.qp.raw, count) },
        };
        outcome.into_result(VERB, count, || self.qp.tables.sends.pop())
    }
}

/// Why a batch takes no more.
#[cold]
fn full(sends: &Ring, scratch: &Scratch) -> PostError {
    match sends.room() {
        0 => PostError::QueueFull { capacity: sends.capacity() },
        _ => PostError::BatchFull { max: u32::try_from(scratch.max()).unwrap_or(u32::MAX) },
    }
}

impl<T: Sends> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let Some(extended) = self.qp.extended {
            // SAFETY: ends what `start` began; nothing of it is posted.
            unsafe { ibv_wr_abort(extended.as_ptr()) };
        }
        for _ in 0..self.count() {
            drop(self.qp.tables.sends.pop());
        }
    }
}

impl<T: Sends> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("count", &self.count()).finish_non_exhaustive()
    }
}
