//! Posting one request.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use rdma_sys::{
    ibv_post_send, ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_wr_complete, ibv_wr_set_inline_data, ibv_wr_set_sge,
    ibv_wr_set_sge_list, ibv_wr_start,
};

use super::inflight::Entry;
use super::operation::Operation;
use super::pair::QueuePair;
use super::payload::private::Payload;
use super::payload::{Gather, RecvPayload};
use super::rejected::{PostError, Rejected};
use super::scratch::{Local, inline_flag, outcome};
use super::transport::Transport;
use super::wr::{RecvRequest, SendRequest};
use crate::errno::Errno;
use crate::identity::{Direction, WrId};

impl<T: Transport> QueuePair<T> {
    /// Posts one request to the send queue. A [`Buf`](crate::Buf) moves in, and comes back with the completion.
    ///
    /// # Errors
    /// A full queue, inline data that is too long, or memory of another domain or queue pair give the payload back before the device
    /// hears of it; see [`PostError`] for what the provider can refuse.
    ///
    /// # References
    /// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html),
    /// [`ibv_wr_post(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn post_send<O: Operation<T, P>, P: Payload>(&mut self, request: SendRequest<O, P>) -> Result<(), Rejected<P>> {
        const VERB: &str = "ibv_post_send";
        if let Err(error) = self.check_send(&request) {
            return Err(Rejected::new(VERB, error, Some(request.payload)));
        }
        let wr_id = WrId::new(self.id(), Direction::Send, self.tables.sends.next_number());
        let outcome = match self.extended {
            // SAFETY: the queue pair is alive and used by one thread; what the payload names is checked above, and stays valid: a Buf moves
            // into the table below, held memory is kept, inline bytes are copied by the call.
            Some(qp) => unsafe { extended(qp, wr_id, &request) },
            // SAFETY: as above.
            None => unsafe { classic(self.raw, wr_id, &request) },
        };
        match outcome {
            Err(error @ PostError::Refused(_)) => Err(Rejected::new(VERB, error, Some(request.payload))),
            outcome => {
                if let Some(window) = O::bound(&request.payload) {
                    self.tables.windows.push(window);
                }
                self.tables
                    .sends
                    .push(Entry { payload: request.operation.into_in_flight(request.payload), tag: request.tag });
                outcome.map_err(|error| Rejected::new(VERB, error, None))
            }
        }
    }

    /// Posts one receive. A [`Buf`](crate::Buf) moves in whole, and comes back with the completion, showing what was received.
    ///
    /// A queue pair with a shared receive queue has no receives of its own: this then reports a full queue of 0.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn post_recv<P: RecvPayload>(&mut self, request: RecvRequest<P>) -> Result<(), Rejected<P>> {
        let tables = &mut *self.tables;
        tables.recvs.post(&tables.owner, request)
    }

    /// What can be said before the provider hears of a send.
    #[inline]
    pub(super) fn check_send<O: Operation<T, P>, P: Payload>(
        &self,
        request: &SendRequest<O, P>,
    ) -> Result<(), PostError> {
        self.tables.owner.check(request.payload.belongs())?;
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
        if local.count() > self.caps().max_send_sge as usize && matches!(local, Gather::List { .. }) {
            return Err(PostError::TooManyPieces { count: local.count(), max: self.caps().max_send_sge });
        }
        if let Gather::Inline(bytes) = local {
            let max = self.caps().max_inline_data;
            if bytes.len() > max as usize {
                return Err(PostError::InlineTooLong { len: bytes.len(), max });
            }
        }
        match self.tables.sends.room() {
            0 => Err(PostError::QueueFull { capacity: self.tables.sends.capacity() }),
            _ => Ok(()),
        }
    }
}

/// Posts by `ibv_post_send`.
///
/// # Safety
/// `qp` is alive and not used by another thread; the memory that the request names stays valid until its completion.
#[inline]
unsafe fn classic<T: Transport, O: Operation<T, P>, P: Payload>(
    qp: NonNull<ibv_qp>,
    wr_id: WrId,
    request: &SendRequest<O, P>,
) -> Result<(), PostError> {
    let gather = request.operation.local(&request.payload);
    let mut local = Local::of(gather);
    let mut wr = ibv_send_wr {
        wr_id: wr_id.0,
        sg_list: local.entries(),
        num_sge: local.count,
        send_flags: request.flags | inline_flag(gather),
        ..Default::default()
    };
    request.operation.classic(&mut wr);
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's promise; request and entry are valid during the call.
    let returned = unsafe { ibv_post_send(qp.as_ptr(), &raw mut wr, &raw mut bad) };
    outcome(returned, bad.is_null())
}

/// Posts by `ibv_wr_start` … `ibv_wr_complete`. An error of the latter leaves it open whether the device sees the request: Soft-RoCE, for one,
/// queues it and then reports that the queue pair is in the wrong state.
///
/// # Safety
/// As [`classic`]; `qp` was made with the operation.
#[inline]
unsafe fn extended<T: Transport, O: Operation<T, P>, P: Payload>(
    qp: NonNull<ibv_qp_ex>,
    wr_id: WrId,
    request: &SendRequest<O, P>,
) -> Result<(), PostError> {
    // SAFETY: the caller's promise; nothing between start and complete can panic or return.
    let returned = unsafe {
        ibv_wr_start(qp.as_ptr());
        write_extended(qp, wr_id, request);
        ibv_wr_complete(qp.as_ptr())
    };
    match returned {
        0 => Ok(()),
        number => Err(PostError::InDoubt(Errno::from_return(number))),
    }
}

/// Writes one request between `ibv_wr_start` and `ibv_wr_complete`.
///
/// # Safety
/// As [`extended`], and between the two calls.
#[inline]
pub(super) unsafe fn write_extended<T: Transport, O: Operation<T, P>, P: Payload>(
    qp: NonNull<ibv_qp_ex>,
    wr_id: WrId,
    request: &SendRequest<O, P>,
) {
    let qp = qp.as_ptr();
    let gather = request.operation.local(&request.payload);
    // SAFETY: the caller's promise; inline bytes are valid during the call that copies them.
    unsafe {
        (*qp).wr_id = wr_id.0;
        // Soft-RoCE's provider needs the flag of the classic verbs beside the inline setter; others ignore it here.
        (*qp).wr_flags = request.flags | inline_flag(gather);
        request.operation.extended(qp);
        if !O::DATA {
            return;
        }
        match gather {
            Gather::Empty => ibv_wr_set_sge_list(qp, 0, ptr::null()),
            Gather::One(sge) => ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length),
            Gather::List { sges, count, .. } => ibv_wr_set_sge_list(qp, count, sges),
            Gather::Inline(bytes) => ibv_wr_set_inline_data(qp, bytes.as_ptr().cast_mut().cast(), bytes.len()),
        }
    }
}
