//! Posting one request.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use rdma_sys::{
    ibv_qp_ex, ibv_wr_complete, ibv_wr_set_inline_data, ibv_wr_set_sge, ibv_wr_set_sge_list,
    ibv_wr_start,
};

use super::pair::QueuePair;
use super::tables::Tables;
use crate::identity::{QueueId, WrId};
use crate::in_flight::{Next, Ring, Table};
use crate::transport::{DuplexTransport, SendTransport};
use crate::wr::private::Payload;
use crate::wr::{Gather, RecvPayload};
use crate::wr::{Operation, Queue, failure, inline_flag};
use crate::wr::{PostError, Rejected};
use crate::wr::{RecvRequest, SendRequest};

impl<T: SendTransport> QueuePair<T> {
    /// Posts one request to the send queue. A [`Buf`](crate::Buf) moves in, and comes back with the
    /// completion.
    ///
    /// # Errors
    /// A full queue, inline data that is too long, or memory of another domain or queue pair give
    /// the payload back before the device hears of it; see [`PostError`] for what the provider
    /// can refuse.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
    /// # fn f(qp: &mut QueuePair<Rc>, told_by_the_peer: RemoteMemory) -> ibverbs::Result<()> {
    /// let mut buf = qp.pd().buf(5)?;
    /// buf.copy_from_slice(b"hello");
    /// qp.post_send(wr::write(buf, told_by_the_peer).unsignaled())?;
    /// qp.post_send(wr::send(wr::Empty).tag(7))?; // its completion tells of both
    ///
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html),
    /// [`ibv_wr_post(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn post_send<O: Operation<T, P>, P: Payload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P>> {
        const VERB: &str = "ibv_post_send";
        if let Err(error) = self.check_send(&request, self.tables.sends.queue()) {
            return Err(Rejected::new(VERB, error, Some(request.payload)));
        }
        let Tables { sends, windows, .. } = &mut *self.tables;
        let Some(next) = Next::of(sends) else {
            let capacity = sends.capacity();
            return Err(Rejected::new(
                VERB,
                PostError::QueueFull { capacity },
                Some(request.payload),
            ));
        };
        // SAFETY: the queue pair is alive and used by one thread; what the payload names is checked
        // above, and stays valid: a Buf moves into the table below, held memory is kept,
        // inline bytes are copied by the call. Without the extended verbs, the requests are for
        // classic posts.
        let failure = unsafe {
            match self.extended {
                Some(qp) => extended(qp, &next, &request),
                None => self.scratch.post(self.raw, next.wr_id(), &request),
            }
        };
        if let Some(error) = failure {
            if let PostError::Refused(_) = error {
                drop(next);
                return Err(Rejected::new(VERB, error, Some(request.payload)));
            }
            windows.extend(O::bound(&request.payload));
            next.fill(
                request.operation.into_in_flight(request.payload),
                request.tag,
            );
            return Err(Rejected::new(VERB, error, None));
        }
        windows.extend(O::bound(&request.payload));
        next.fill(
            request.operation.into_in_flight(request.payload),
            request.tag,
        );
        Ok(())
    }

    /// What can be said before the provider hears of a send. `id` is this queue's identity, which
    /// those who ask have at hand.
    #[inline]
    pub(crate) fn check_send<O: Operation<T, P>, P: Payload>(
        &self,
        request: &SendRequest<O, P>,
        id: QueueId,
    ) -> Result<(), PostError> {
        self.tables.owner.check(request.payload.belongs(), id)?;
        request.operation.check(&request.payload)?;
        if let Some(address) = request.operation.address() {
            if !address.is_valid(self.id(), self.tables.addresses.epoch) {
                return Err(PostError::WrongQueue);
            }
        }
        if O::EXTRA && !self.has_extra_ops {
            return Err(PostError::Unsupported);
        }
        if O::FETCHES && !P::OPEN_TO_PEER && self.fetches_as_writes {
            return Err(PostError::NeedsShared);
        }
        let local = request.operation.local(&request.payload);
        if local.count() > self.caps().max_send_sge as usize && matches!(local, Gather::List { .. })
        {
            return Err(PostError::TooManyPieces {
                count: local.count(),
                max: self.caps().max_send_sge,
            });
        }
        if let Gather::Inline(bytes) = local {
            let max = self.caps().max_inline_data;
            if bytes.len() > max as usize {
                return Err(PostError::InlineTooLong {
                    len: bytes.len(),
                    max,
                });
            }
        }
        Ok(())
    }
}

impl<T: DuplexTransport> QueuePair<T> {
    /// Posts one receive. A [`Buf`](crate::Buf) moves in whole, and comes back with the completion,
    /// showing what was received.
    ///
    /// A queue pair with a shared receive queue has no receives of its own: this then reports a
    /// full queue of 0.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Pool, QueuePair, Rc, wr};
    /// # fn f(qp: &mut QueuePair<Rc>, pool: &Pool) -> ibverbs::Result<()> {
    /// while let (1.., Some(buf)) = (qp.recv_slots_free(), pool.take()) {
    ///     qp.post_recv(wr::recv(buf))?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn post_recv<P: RecvPayload>(
        &mut self,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P>> {
        let tables = &mut *self.tables;
        tables
            .recvs
            .post(Queue::Pair(&self.raw), &tables.owner, request)
    }
}

/// Posts by `ibv_wr_start` … `ibv_wr_complete`.
///
/// # Safety
/// `qp` is alive, not used by another thread, and was made with the operation; the memory that the
/// request names stays valid until its completion.
#[inline]
unsafe fn extended<T: SendTransport, O: Operation<T, P>, P: Payload>(
    qp: NonNull<ibv_qp_ex>,
    next: &Next<'_, Ring>,
    request: &SendRequest<O, P>,
) -> Option<PostError> {
    // SAFETY: the caller's promise; nothing between start and complete can panic or return.
    let returned = unsafe {
        ibv_wr_start(qp.as_ptr());
        write_extended(qp, next.wr_id(), request);
        ibv_wr_complete(qp.as_ptr())
    };
    if returned == 0 {
        None
    } else {
        Some(failure(returned, true))
    }
}

/// Writes one request between `ibv_wr_start` and `ibv_wr_complete`.
///
/// # Safety
/// As [`extended`], and between the two calls.
#[inline]
pub(crate) unsafe fn write_extended<T: SendTransport, O: Operation<T, P>, P: Payload>(
    qp: NonNull<ibv_qp_ex>,
    wr_id: WrId,
    request: &SendRequest<O, P>,
) {
    let qp = qp.as_ptr();
    // Asked for again after the opening call: what describes a buffer is read then, rather than
    // kept over the call.
    let gather = || request.operation.local(&request.payload);
    // SAFETY: the caller's promise; inline bytes are valid during the call that copies them.
    unsafe {
        (*qp).wr_id = wr_id.0;
        // Soft-RoCE's provider needs the flag of the classic verbs beside the inline setter; others
        // ignore it here.
        (*qp).wr_flags = request.flags | inline_flag(gather());
        request.operation.extended(qp);
        if !O::DATA {
            return;
        }
        match gather() {
            Gather::Empty => ibv_wr_set_sge_list(qp, 0, ptr::null()),
            Gather::One(sge) => ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length),
            Gather::List { sges, count, .. } => ibv_wr_set_sge_list(qp, count, sges),
            Gather::Inline(bytes) => {
                ibv_wr_set_inline_data(qp, bytes.as_ptr().cast_mut().cast(), bytes.len());
            }
        }
    }
}
