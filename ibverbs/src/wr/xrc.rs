//! Requests on the sending half of an extended reliable connection: the operations of a reliable
//! connection, each with the peer's shared receive queue.

#![allow(unsafe_code)]

use rdma_sys::{ibv_qp_ex, ibv_send_wr, ibv_wr_set_xrc_srqn};

use super::message::{Send, SendWithImm};
use super::one_sided::{CompareSwap, FetchAdd, RdmaRead, RdmaWrite, RdmaWriteWithImm};
use super::operation::Operation;
use super::operation::{private::Encode, private::Transfer};
use super::payload::Gather;
use super::payload::private::Payload;
use super::rejected::PostError;
use super::request::SendRequest;
use super::window::{Bind, Invalidate, SendWithInv};
use crate::in_flight::InFlight;
use crate::mw::{Binding, BoundWindow, Type2};
use crate::numbers::SrqNum;
use crate::transport::{Rc, XrcSend};

/// An operation `O` for a shared receive queue of the peer: the result of
/// [`SendRequest::for_srq`](crate::wr::SendRequest::for_srq).
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, wr, xrc::SrqNum};
/// fn to_worker(message: Buf, worker: SrqNum) -> wr::SendRequest<wr::ForSrq<wr::Send>, Buf> {
///     wr::send(message).for_srq(worker)
/// }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html); IBA annex A14
#[derive(Clone, Copy, Debug)]
pub struct ForSrq<O> {
    operation: O,
    srq: SrqNum,
}

impl<O, P> SendRequest<O, P> {
    /// Sets the peer's shared receive queue. Every request on an extended reliable connection needs
    /// one: a message consumes one of its receives, and an access to memory is checked against its
    /// protection domain.
    pub fn for_srq(self, srq: SrqNum) -> SendRequest<ForSrq<O>, P> {
        let Self {
            operation,
            payload,
            flags,
            tag,
        } = self;
        SendRequest {
            operation: ForSrq { operation, srq },
            payload,
            flags,
            tag,
        }
    }
}

impl<O: Encode> Encode for ForSrq<O> {
    const FETCHES: bool = O::FETCHES;
    const OP: u64 = O::OP;
    const DATA: bool = O::DATA;

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        self.operation.classic(wr);
        wr.qp_type.xrc.remote_srqn = self.srq.0;
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.operation.extended(qp);
            ibv_wr_set_xrc_srqn(qp, self.srq.0);
        }
    }
}

impl<P: Payload, O: Transfer<P>> Transfer<P> for ForSrq<O> {
    #[inline]
    fn check(self, payload: &P) -> Result<(), PostError> {
        self.operation.check(payload)
    }

    #[inline]
    fn local(self, payload: &P) -> Gather<'_> {
        self.operation.local(payload)
    }

    #[inline]
    fn into_in_flight(self, payload: P) -> Option<InFlight> {
        self.operation.into_in_flight(payload)
    }
}

/// Allows the operations of a reliable connection that reach the peer.
macro_rules! for_srq {
    ($($operation:ty),*) => {$(
        impl<P: Payload> Operation<XrcSend, P> for ForSrq<$operation> where $operation: Operation<Rc, P> {}
    )*};
}

for_srq!(
    Send,
    SendWithImm,
    SendWithInv,
    RdmaWrite,
    RdmaWriteWithImm,
    RdmaRead,
    CompareSwap,
    FetchAdd
);

// Local operations have no shared receive queue.
impl Operation<XrcSend, Binding> for Bind {}
impl Operation<XrcSend, BoundWindow<Type2>> for Invalidate {}
