//! Batches: several requests posted with one doorbell.
//!
//! A batch exists inside a closure, so it cannot be forgotten. An error or a panic aborts it.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::{ibv_qp_ex, ibv_wr_abort, ibv_wr_complete, ibv_wr_start};

use super::handle::QpHandle;
use super::pair::QueuePair;
use super::post::write_extended;
use super::tables::Tables;
use crate::error::Errno;
use crate::transport::{DuplexTransport, SendTransport};
use crate::wr::private::Payload;
use crate::wr::{BatchError, Posted};
use crate::wr::{Operation, SendRequest};
use crate::wr::{PostError, Rejected};
use crate::wr::{RecvBatch, RecvHandle, raw_or_null};

const VERB: &str = "ibv_post_send";

/// Sends that are posted together. See [`QueuePair::batch`].
///
/// If requests are posted with `ibv_post_send`, a batch holds at most
/// [`max_batch`](crate::QpOptions::max_batch) of them. Otherwise the free slots limit it.
///
/// # Example
/// ```no_run
/// use ibverbs::{Batch, Buf, Rc, Result, wr};
/// fn last_signaled(batch: &mut Batch<'_, Rc>, bufs: Vec<Buf>) -> Result<()> {
///     for buf in bufs {
///         batch.send(wr::send(buf).signaled(false))?;
///     }
///     batch.send(wr::send(wr::Empty))?;
///     Ok(())
/// }
/// # fn f(qp: &mut ibverbs::QueuePair<Rc>, bufs: Vec<Buf>) -> Result<()> {
/// qp.batch(|batch| last_signaled(batch, bufs))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_wr_post")]
pub struct Batch<'qp, T: SendTransport> {
    qp: &'qp mut QueuePair<T>,
    // Copies of fields of the queue pair, which the compiler can keep in registers.
    extended: Option<NonNull<ibv_qp_ex>>,
    /// Number of free slots before the first request was added.
    free_before: usize,
}

impl<T: SendTransport> QueuePair<T> {
    /// Posts the sends that the closure adds, with one doorbell. If the closure fails or panics,
    /// nothing is posted and the buffers return to their pools.
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
    /// The error of the closure, or a [`BatchError`] converted into its type.
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_post_send")]
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
    /// Posts the receives that the closure adds, like [`batch`](Self::batch).
    ///
    /// # Errors
    /// The error of the closure, or a [`BatchError`] converted into its type.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Pool, QueuePair, Rc, wr};
    /// # fn f(qp: &mut QueuePair<Rc>, pool: &Pool) -> ibverbs::Result<()> {
    /// qp.recv_batch(|batch| {
    ///     for _ in 0..32 {
    ///         batch.recv(wr::recv(pool.take().expect("a pool of at least 32 buffers")))?;
    ///     }
    ///     Ok::<(), ibverbs::Error>(())
    /// })?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_post_recv")]
    pub fn recv_batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (raw, number, handle) = (self.raw, self.number, RecvHandle::Qp(self.raw));
        let tables = &mut *self.tables;
        let explain = |verb, error| {
            let context = tables.owner.pd.context();
            // SAFETY: the queue pair is alive and belongs to the context of its domain.
            let handle = unsafe { QpHandle::new(raw, number, T::TRANSPORT, context) };
            handle.explain_post(verb, error)
        };
        tables.recvs.batch(handle, &tables.owner, fill, explain)
    }
}

impl<'qp, T: SendTransport> Batch<'qp, T> {
    #[inline]
    fn start(qp: &'qp mut QueuePair<T>) -> Self {
        let (extended, free_before) = (qp.extended, qp.send_slots_free());
        if let Some(extended) = extended {
            // SAFETY: the queue pair is alive and `&mut` keeps other threads from using it.
            // `finish` or `drop` makes the closing call.
            unsafe { ibv_wr_start(extended.as_ptr()) };
        }
        Self {
            qp,
            extended,
            free_before,
        }
    }

    /// Returns the number of requests that are in the table and not posted yet.
    fn count(&self) -> usize {
        self.free_before - self.qp.send_slots_free()
    }

    /// Adds a request.
    ///
    /// # Errors
    /// Same as [`QueuePair::post_send`], and [`PostError::BatchFull`]. The batch stays valid
    /// without the request.
    #[doc(alias = "ibv_wr_post")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn send<O: Operation<T, P>, P: Payload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P::Returned>> {
        if let Err(error) = self.qp.check_send(&request) {
            return Err(Rejected::new(VERB, error, request.payload.into_returned()));
        }
        let Tables {
            sends,
            windows,
            owner,
            ..
        } = &mut *self.qp.tables;
        let Some(vacant) = sends.vacant() else {
            let error = PostError::no_slot(self.qp.raw.is_none(), sends.capacity());
            return Err(Rejected::new(VERB, error, request.payload.into_returned()));
        };
        let needs_mark = match self.extended {
            // SAFETY: this is between `ibv_wr_start` and the closing call. The memory of the
            // payload stays valid: see `QueuePair::post_send`.
            Some(qp) => unsafe {
                write_extended(qp, vacant.wr_id(), &request);
                false
            },
            None => match self.qp.scratch.add(vacant.wr_id(), &request, owner) {
                Ok(needs_mark) => needs_mark,
                Err(error) => {
                    return Err(Rejected::new(VERB, error, request.payload.into_returned()));
                }
            },
        };
        windows.extend(O::bound(&request.payload));
        vacant.fill(request.into_in_flight(needs_mark));
        Ok(())
    }

    /// Posts the requests.
    #[inline]
    fn finish(self) -> Result<(), BatchError> {
        let count = self.count();
        if count == 0 {
            // Dropping the empty batch aborts it.
            return Ok(());
        }
        let posted = match self.extended {
            // SAFETY: this closes the call of `ibv_wr_start`.
            Some(qp) => match unsafe { ibv_wr_complete(qp.as_ptr()) } {
                0 => Posted::All,
                returned => Posted::InDoubt(Errno::from_return(returned)),
            },
            // SAFETY: the queue pair is alive and `&mut` keeps other threads away. `count` requests
            // were added, and their memory is in the table or held.
            None => unsafe { self.qp.scratch.post_batch(raw_or_null(self.qp.raw)) },
        };
        let sends = &mut self.qp.tables.sends;
        let result = posted.into_result(VERB, count, || sends.pop());
        // The requests are posted, so that there is nothing to abort.
        let posted = ManuallyDrop::new(self);
        result.map_err(|error| {
            error.explained(|verb, error| posted.qp.handle().explain_post(verb, error))
        })
    }
}

impl<T: SendTransport> Drop for Batch<'_, T> {
    /// Aborts the batch: none of its requests is posted.
    #[cold]
    fn drop(&mut self) {
        if let Some(qp) = self.extended {
            // SAFETY: this closes the call of `ibv_wr_start`.
            unsafe { ibv_wr_abort(qp.as_ptr()) };
        }
        self.qp.scratch.clear_batch();
        for _ in 0..self.count() {
            drop(self.qp.tables.sends.pop());
        }
    }
}

impl<T: SendTransport> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}
