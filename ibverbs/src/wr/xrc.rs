//! Requests on the sending half of an extended reliable connection: the operations of a reliable
//! connection, each with the peer's shared receive queue.

#![allow(unsafe_code)]

use rdma_sys::{ibv_qp_ex, ibv_send_wr, ibv_wr_set_xrc_srqn};

use super::address::HeldAddress;
use super::message::{Send, SendWithImm};
use super::one_sided::{CompareSwap, FetchAdd, RdmaRead, RdmaWrite, RdmaWriteWithImm};
use super::operation::Operation;
use super::payload::private::Payload;
use super::request::SendRequest;
use super::to::To;
use super::to::private::Address;
use super::window::{Bind, Invalidate, SendWithInv};
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
#[doc(alias = "ibv_post_send")]
pub type ForSrq<O> = To<O, SrqNum>;

impl Address for SrqNum {
    fn held(self) -> Option<HeldAddress> {
        None
    }

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.qp_type.xrc.remote_srqn = self.0;
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_set_xrc_srqn(qp, self.0) }
    }
}

impl<O, P> SendRequest<O, P> {
    /// Sets the peer's shared receive queue. Every request on an extended reliable connection needs
    /// one: a message consumes one of its receives, and an access to memory is checked against its
    /// protection domain.
    pub fn for_srq(self, srq: SrqNum) -> SendRequest<ForSrq<O>, P> {
        self.to(srq)
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
