//! Many requests, one doorbell. A batch lives inside a closure: it cannot be forgotten, and an error or a panic aborts it.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr;

use rdma_sys::{ibv_post_send, ibv_send_wr, ibv_wr_abort, ibv_wr_complete, ibv_wr_start};

use super::inflight::Entry;
use super::operation::Operation;
use super::pair::QueuePair;
use super::payload::Gather;
use super::payload::private::Payload;
use super::post::write_extended;
use super::receives::RecvBatch;
use super::rejected::{PostError, Rejected};
use super::scratch::{BatchError, Local, Posted, inline_flag};
use super::transport::Transport;
use super::wr::SendRequest;
use crate::errno::Errno;
use crate::identity::{Direction, WrId};
use crate::raw::AsRaw;

/// Sends that are posted together. See [`QueuePair::batch`].
pub struct Batch<'qp, T: Transport> {
    qp: &'qp mut QueuePair<T>,
    count: usize,
    finished: bool,
}

impl<T: Transport> QueuePair<T> {
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
    pub fn batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut Batch<'_, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut batch = Batch::start(self);
        let value = fill(&mut batch)?;
        batch.finish()?;
        Ok(value)
    }

    /// As [`batch`](Self::batch), for receives.
    ///
    /// # Errors
    /// The closure's own, or a [`BatchError`] made into it.
    pub fn recv_batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let tables = &mut *self.tables;
        tables.recvs.batch(&tables.owner, fill)
    }
}

impl<'qp, T: Transport> Batch<'qp, T> {
    fn start(qp: &'qp mut QueuePair<T>) -> Self {
        if let Some(extended) = qp.extended {
            // SAFETY: the queue pair is alive and used by one thread; `finish` or `drop` ends what begins here.
            unsafe { ibv_wr_start(extended.as_ptr()) };
        }
        Self { qp, count: 0, finished: false }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`], and [`PostError::BatchFull`]; the batch goes on without the request.
    #[inline]
    pub fn send<O: Operation<T, P>, P: Payload>(&mut self, request: SendRequest<O, P>) -> Result<(), Rejected<P>> {
        const VERB: &str = "ibv_post_send";
        if let Err(error) = self.check(&request) {
            return Err(Rejected::new(VERB, error, Some(request.payload)));
        }
        let wr_id = WrId::new(self.qp.id(), Direction::Send, self.qp.tables.sends.next_number());
        match self.qp.extended {
            // SAFETY: between `ibv_wr_start` and its end; what the payload names stays valid (see QueuePair::post_send).
            Some(qp) => unsafe { write_extended(qp, wr_id, &request) },
            None => self.write_classic(wr_id, &request),
        }
        if let Some(window) = O::bound(&request.payload) {
            self.qp.tables.windows.push(window);
        }
        let payload = request.operation.into_in_flight(request.payload);
        self.qp.tables.sends.push(Entry { payload, tag: request.tag });
        self.count += 1;
        Ok(())
    }

    #[inline]
    fn check<O: Operation<T, P>, P: Payload>(&self, request: &SendRequest<O, P>) -> Result<(), PostError> {
        if self.count == self.qp.scratch.max() {
            return Err(PostError::BatchFull { max: u32::try_from(self.count).unwrap_or(u32::MAX) });
        }
        self.qp.check_send(request)
    }

    fn write_classic<O: Operation<T, P>, P: Payload>(&mut self, wr_id: WrId, request: &SendRequest<O, P>) {
        let scratch = &mut self.qp.scratch;
        let gather = request.operation.local(&request.payload);
        let mut local = Local::of(gather);
        if let Gather::Inline(bytes) = gather {
            // The caller's bytes need not live until the doorbell: they are copied now.
            let start = self.count * scratch.inline_each;
            let place = &mut scratch.inline[start..start + bytes.len()];
            place.copy_from_slice(bytes);
            local.sge.addr = 0; // told by `finish`
        }
        scratch.sges[self.count] = local.sge;
        let wr = &mut scratch.sends[self.count];
        *wr = ibv_send_wr {
            wr_id: wr_id.0,
            sg_list: local.list,
            num_sge: local.count,
            send_flags: request.flags | inline_flag(gather),
            ..Default::default()
        };
        request.operation.classic(wr);
    }

    fn finish(mut self) -> Result<(), BatchError> {
        const VERB: &str = "ibv_post_send";
        self.finished = true;
        let outcome = match self.qp.extended {
            Some(extended) if self.count == 0 => {
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
            None => self.post_classic(),
        };
        outcome.into_result(VERB, self.count, || self.qp.tables.sends.pop())
    }

    fn post_classic(&mut self) -> Posted {
        let scratch = &mut self.qp.scratch;
        let (sends, sges, inline) =
            (scratch.sends.as_mut_ptr(), scratch.sges.as_mut_ptr(), scratch.inline.as_mut_ptr());
        for index in 0..self.count {
            // SAFETY: index < count, which is at most the length of all three; `inline` has `inline_each` bytes for each request.
            unsafe {
                let (wr, sge) = (sends.add(index), sges.add(index));
                if (*wr).sg_list.is_null() {
                    (*wr).sg_list = sge;
                }
                (*wr).next = if index + 1 < self.count { sends.add(index + 1) } else { ptr::null_mut() };
                if (*wr).send_flags & rdma_sys::IBV_SEND_INLINE != 0 {
                    (*sge).addr = inline.add(index * scratch.inline_each).expose_provenance() as u64;
                }
            }
        }
        if self.count == 0 {
            return Posted::All;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive and used by one thread; the requests are linked above and valid during the call.
        let returned = unsafe { ibv_post_send(self.qp.as_raw(), sends, &raw mut bad) };
        Posted::of(returned, sends.addr(), bad.addr(), size_of::<ibv_send_wr>())
    }
}

impl<T: Transport> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let Some(extended) = self.qp.extended {
            // SAFETY: ends what `start` began; nothing of it is posted.
            unsafe { ibv_wr_abort(extended.as_ptr()) };
        }
        for _ in 0..self.count {
            drop(self.qp.tables.sends.pop());
        }
    }
}

impl<T: Transport> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("count", &self.count).finish_non_exhaustive()
    }
}
