//! Many requests, one doorbell. A batch lives inside a closure: it cannot be forgotten, and an
//! error or a panic aborts it.

#![allow(unsafe_code)]

use std::fmt;

use rdma_sys::{ibv_wr_abort, ibv_wr_complete, ibv_wr_start};

use super::pair::QueuePair;
use super::post::write_extended;
use crate::error::Errno;
use crate::in_flight::{Batched, Table, less_likely};
use crate::transport::{DuplexTransport, SendTransport};
use crate::wr::private::Payload;
use crate::wr::{BatchError, Posted};
use crate::wr::{Operation, SendRequest};
use crate::wr::{PostError, Rejected};
use crate::wr::{Queue, RecvBatch};

const VERB: &str = "ibv_post_send";

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
pub struct Batch<'qp, T: SendTransport> {
    qp: &'qp mut QueuePair<T>,
    batched: Batched,
    finished: bool,
}

impl<T: SendTransport> QueuePair<T> {
    /// Posts what the closure adds, with one doorbell. If the closure fails or panics, nothing is
    /// posted and the buffers go back to their pools.
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
    #[inline]
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

impl<T: DuplexTransport> QueuePair<T> {
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
        tables
            .recvs
            .batch(Queue::Pair(&self.raw), &tables.owner, fill)
    }
}

impl<'qp, T: SendTransport> Batch<'qp, T> {
    #[inline]
    fn start(qp: &'qp mut QueuePair<T>) -> Self {
        if let Some(extended) = qp.extended {
            // SAFETY: the queue pair is alive and used by one thread; `finish` or `drop` ends what
            // begins here.
            unsafe { ibv_wr_start(extended.as_ptr()) };
        }
        qp.scratch.start_batch();
        let batched = qp.tables.sends.begin(qp.scratch.max());
        Self {
            qp,
            batched,
            finished: false,
        }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`], and [`PostError::BatchFull`]; the batch goes on without the
    /// request.
    ///
    /// # References
    /// [`ibv_wr_post(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[inline]
    pub fn send<O: Operation<T, P>, P: Payload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P>> {
        if let Err(error) = self
            .qp
            .check_send(&request, self.batched.next_number().queue())
        {
            return Err(Rejected::new(VERB, error, Some(request.payload)));
        }
        if self.qp.tables.sends.is_full(self.batched) {
            return Err(Rejected::new(
                VERB,
                full(self.qp, self.batched),
                Some(request.payload),
            ));
        }
        let wr_id = self.batched.next_number();
        if let Some(qp) = self.qp.extended {
            // SAFETY: between `ibv_wr_start` and its end; what the payload names stays valid (see
            // QueuePair::post_send).
            unsafe { write_extended(qp, wr_id, &request) }
        } else {
            less_likely();
            // SAFETY: without the extended verbs, the requests are for classic posts; the rest is
            // checked above.
            unsafe { self.qp.scratch.add(wr_id, &request) }
        }
        self.qp.tables.windows.extend(O::bound(&request.payload));
        // SAFETY: it is not full.
        unsafe {
            self.batched.fill(
                request.operation.into_in_flight(request.payload),
                request.tag,
            );
        };
        Ok(())
    }

    #[inline]
    fn finish(&mut self) -> Result<(), BatchError> {
        self.finished = true;
        if !self.qp.tables.sends.has_any(self.batched) {
            abort(self.qp, self.batched);
            return Ok(());
        }
        let Some(extended) = self.qp.extended else {
            return finish_classic(self.qp, self.batched);
        };
        // SAFETY: the batch borrows the queue pair since it was begun.
        unsafe { self.qp.tables.sends.take_in(self.batched) };
        // SAFETY: ends what `start` began.
        match unsafe { ibv_wr_complete(extended.as_ptr()) } {
            0 => Ok(()),
            number => Posted::InDoubt(Errno::from_return(number)).into_result(VERB, 0, || None),
        }
    }
}

#[inline(never)]
fn finish_classic<T: SendTransport>(
    qp: &mut QueuePair<T>,
    batched: Batched,
) -> Result<(), BatchError> {
    let (sends, scratch) = (&mut qp.tables.sends, &mut qp.scratch);
    let count = sends.count(batched);
    // SAFETY: the batch borrows the queue pair since it was begun.
    unsafe { sends.take_in(batched) };
    // SAFETY: the queue pair is alive and used by one thread; so many requests were added, and what
    // they name is in the table or held.
    let posted = unsafe { scratch.post_batch(qp.raw, count) };
    posted.into_result(VERB, count, || sends.pop())
}

/// Why a batch takes no more.
#[cold]
fn full<T: SendTransport>(qp: &QueuePair<T>, batched: Batched) -> PostError {
    let (sends, max) = (&qp.tables.sends, qp.scratch.max());
    if sends.count(batched) == sends.room() as usize {
        return PostError::QueueFull {
            capacity: sends.capacity(),
        };
    }
    PostError::BatchFull {
        max: u32::try_from(max).unwrap_or(u32::MAX),
    }
}

/// Ends a batch of which nothing is posted.
#[cold]
#[inline(never)]
fn abort<T: SendTransport>(qp: &mut QueuePair<T>, batched: Batched) {
    if let Some(extended) = qp.extended {
        // SAFETY: ends what `start` began.
        unsafe { ibv_wr_abort(extended.as_ptr()) };
    }
    let sends = &mut qp.tables.sends;
    let count = sends.count(batched);
    // SAFETY: as in `finish`.
    unsafe { sends.take_in(batched) };
    for _ in 0..count {
        drop(sends.pop());
    }
}

impl<T: SendTransport> Drop for Batch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if !self.finished {
            abort(self.qp, self.batched);
        }
    }
}

impl<T: SendTransport> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("count", &self.qp.tables.sends.count(self.batched))
            .finish_non_exhaustive()
    }
}
