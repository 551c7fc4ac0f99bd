//! Posting one request.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use rdma_sys::{
    ibv_qp_ex, ibv_wr_complete, ibv_wr_set_inline_data, ibv_wr_set_sge, ibv_wr_set_sge_list,
    ibv_wr_start,
};

use super::pair::QueuePair;
use super::tables::Tables;
use crate::in_flight::Vacant;
use crate::mw::BoundWindows;
use crate::transport::{DuplexTransport, SendTransport, Transport};
use crate::wr::private::Payload;
use crate::wr::{Gather, RecvPayload};
use crate::wr::{Operation, RecvHandle, inline_flag, post_error, raw_or_null};
use crate::wr::{PostError, Rejected};
use crate::wr::{RecvRequest, SendRequest};
use crate::wr_id::WrId;

const VERB: &str = "ibv_post_send";

/// Length of an Ethernet header.
const ETHERNET_HEADER: u32 = 14;

impl<T: SendTransport> QueuePair<T> {
    /// Posts one request to the send queue. A [`Buf`](crate::Buf) moves into the request, and the
    /// completion returns it.
    ///
    /// # Errors
    /// Returns the payload without calling the provider if the queue is full, the inline data is
    /// too long, or the memory belongs to another protection domain or queue pair.
    /// [`PostError`] lists all reasons, including those of the provider.
    ///
    /// The kind is [`ErrorKind::WrongState`](crate::ErrorKind::WrongState), and the message names
    /// the state and the remedy, if the provider refused the request because of the state of the
    /// queue pair. Providers of hardware do not check the state when a request is posted (mlx5
    /// among them). Such a request completes as flushed when the queue pair enters the state ERR,
    /// or never.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
    /// # fn f(qp: &mut QueuePair<Rc>, remote: RemoteMemory) -> ibverbs::Result<()> {
    /// let mut buf = qp.pd().buf(5)?;
    /// buf.copy_from_slice(b"hello");
    /// qp.post_send(wr::write(buf, remote).signaled(false))?;
    /// qp.post_send(wr::send(wr::Empty).tag(7))?; // its completion retires both
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "ibv_wr_post")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn post_send<O: Operation<T, P>, P: Payload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P::Returned>> {
        if let Err(error) = self.check_send(&request) {
            return Err(Rejected::new(VERB, error, request.payload.into_returned()));
        }
        let Tables {
            sends,
            windows,
            owner,
            ..
        } = &mut *self.tables;
        let Some(vacant) = sends.vacant() else {
            let error = PostError::no_slot(self.raw.is_none(), sends.capacity());
            return Err(Rejected::new(VERB, error, request.payload.into_returned()));
        };
        // The queue pair has a slot, so no scope has destroyed it.
        let raw = raw_or_null(self.raw);
        // SAFETY: the queue pair is alive and used by one thread. The memory of the payload was
        // checked above and stays valid: the table takes a buffer below, the owner holds other
        // memory, and the provider copies inline data.
        let (returned, needs_mark) = unsafe {
            match self.extended {
                Some(qp) => (post_extended(qp, &vacant, &request), false),
                None => (self.scratch).post(raw, vacant.wr_id(), &request, owner),
            }
        };
        if returned != 0 {
            let bad_is_null = self.extended.is_some() || self.scratch.bad_is_null();
            let error = post_error(returned, bad_is_null);
            let rejected = reject::<T, _, _>(error, request, needs_mark, vacant, windows);
            return Err(rejected.explained(|verb, error| self.handle().explain_post(verb, error)));
        }
        windows.extend(O::bound(&request.payload));
        vacant.fill(request.into_in_flight(needs_mark));
        Ok(())
    }

    /// Checks a request before it is posted.
    #[inline]
    pub(crate) fn check_send<O: Operation<T, P>, P: Payload>(
        &self,
        request: &SendRequest<O, P>,
    ) -> Result<(), PostError> {
        self.tables.owner.check(request.payload.postable_to())?;
        request.operation.check(&request.payload)?;
        if let Some(address) = request.operation.address() {
            if !address.is_valid(self.id(), self.tables.addresses.epoch) {
                return Err(PostError::WrongQueue);
            }
        }
        if (T::EXTRA_OPS | T::OPTIONAL_OPS) & O::OP != 0 && self.extra_ops & O::OP == 0 {
            return Err(if T::OPTIONAL_OPS & O::OP == 0 {
                PostError::Unsupported
            } else {
                PostError::NotRequested
            });
        }
        if request.flags & !T::FLAGS != 0 {
            return Err(PostError::UnsupportedFlag);
        }
        if O::FETCHES && !P::OPEN_TO_PEER && self.read_needs_remote_write {
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
        // libmlx4 and libmlx5 read the header with the processor, whatever the length is.
        if T::TRANSPORT == Transport::RawPacket && local.first_len() < ETHERNET_HEADER {
            return Err(PostError::ShortPacket);
        }
        if O::FETCHES && matches!(local, Gather::List { count: 2.., .. }) {
            let max = self.pd().context().max_read_sge();
            if local.count() > max as usize {
                return Err(PostError::TooManyPieces {
                    count: local.count(),
                    max,
                });
            }
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
    /// Posts one receive. The whole capacity of a [`Buf`](crate::Buf) is used. The completion
    /// returns the buffer with the length of the received message.
    ///
    /// A queue pair with a shared receive queue has no receive queue of its own. Posting then fails
    /// with [`PostError::QueueFull`] and a capacity of 0.
    ///
    /// # Errors
    /// Same as [`post_send`](Self::post_send).
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
    #[doc(alias = "ibv_post_recv")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn post_recv<P: RecvPayload>(
        &mut self,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P::Returned>> {
        let handle = RecvHandle::Qp(self.raw);
        let tables = &mut *self.tables;
        tables
            .recvs
            .post(handle, &tables.owner, request)
            .map_err(|rejected| {
                rejected.explained(|verb, error| self.handle().explain_post(verb, error))
            })
    }
}

/// Handles a failed post. The queue keeps a request that may have been posted.
#[cold]
#[inline(never)]
fn reject<T: SendTransport, O: Operation<T, P>, P: Payload>(
    error: PostError,
    request: SendRequest<O, P>,
    needs_mark: bool,
    vacant: Vacant<'_>,
    windows: &mut BoundWindows,
) -> Rejected<P::Returned> {
    if let PostError::Refused(_) = error {
        vacant.skip();
        return Rejected::new(VERB, error, request.payload.into_returned());
    }
    windows.extend(O::bound(&request.payload));
    vacant.fill(request.into_in_flight(needs_mark));
    Rejected::new(VERB, error, None)
}

/// Posts one request with the extended verbs.
///
/// # Safety
/// `qp` is alive, not used by another thread, and was created with the operation. The memory of the
/// request stays valid until it completes.
#[inline]
unsafe fn post_extended<T: SendTransport, O: Operation<T, P>, P: Payload>(
    qp: NonNull<ibv_qp_ex>,
    vacant: &Vacant<'_>,
    request: &SendRequest<O, P>,
) -> i32 {
    // SAFETY: guaranteed by the caller. Nothing between the two calls can panic or return.
    unsafe {
        ibv_wr_start(qp.as_ptr());
        // Read here, the `wr_id` need not be kept over the call.
        write_extended(qp, vacant.wr_id(), request);
        ibv_wr_complete(qp.as_ptr())
    }
}

/// Writes one request between `ibv_wr_start` and `ibv_wr_complete`.
///
/// # Safety
/// Same as [`post_extended`]. The caller is between `ibv_wr_start` and `ibv_wr_complete`.
#[inline]
pub(crate) unsafe fn write_extended<T: SendTransport, O: Operation<T, P>, P: Payload>(
    qp: NonNull<ibv_qp_ex>,
    wr_id: WrId,
    request: &SendRequest<O, P>,
) {
    let qp = qp.as_ptr();
    // Computed again after the opening call, so that it need not be kept over that call.
    let gather = || request.operation.local(&request.payload);
    // SAFETY: guaranteed by the caller. Inline bytes are valid during the call that copies them.
    unsafe {
        (*qp).wr_id = wr_id.0;
        // Soft-RoCE's provider needs the inline flag of the classic verbs here. Others ignore it.
        (*qp).wr_flags = request.flags | inline_flag(gather());
        request.operation.extended(qp);
        if !O::DATA {
            return;
        }
        match gather() {
            Gather::Empty => ibv_wr_set_sge_list(qp, 0, ptr::null()),
            Gather::One(sge) | Gather::Whole(&sge) => {
                ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
            }
            Gather::List { sges, count, .. } => ibv_wr_set_sge_list(qp, count, sges),
            Gather::Inline(bytes) => {
                ibv_wr_set_inline_data(qp, bytes.as_ptr().cast_mut().cast(), bytes.len());
            }
        }
    }
}
