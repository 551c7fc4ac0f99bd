//! Requests that bind or invalidate memory windows, and sends that invalidate one at the peer.

#![allow(unsafe_code)]

use std::sync::{Arc, Weak};

use rdma_sys::{
    IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_send_wr,
    ibv_wr_bind_mw, ibv_wr_local_inv, ibv_wr_send_inv,
};

use super::operation::Operation;
use super::operation::{private::Encode, private::Transfer};
use super::payload::{Gather, PostableTo, SendPayload, returned};
use super::payload::{private::Payload, private::Source};
use super::rejected::PostError;
use crate::in_flight::InFlight;
use crate::mw::{Binding, Bound, BoundWindow, Type2};
use crate::transport::ConnectedDuplexTransport;

/// The operation of [`wr::bind`](crate::wr::bind): the binding of a memory window. Its pointers are
/// valid as long as its payload.
///
/// # Example
/// ```no_run
/// use ibverbs::{mw::Binding, wr};
/// fn open_window(binding: Binding) -> wr::SendRequest<wr::Bind, Binding> {
///     wr::bind(binding)
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    mw: *mut ibv_mw,
    rkey: u32,
    info: ibv_mw_bind_info,
}

// SAFETY: the pointers are values until the request is posted. A request keeps its operation
// together with its payload, which keeps window and region alive, and posting needs `&mut` of a
// queue pair.
unsafe impl Send for Bind {}
// SAFETY: `&Bind` gives access to no pointer.
unsafe impl Sync for Bind {}

impl Bind {
    pub(crate) fn new(Binding(bound): &Binding) -> Self {
        Self {
            mw: bound.handle.as_ptr(),
            rkey: bound.rkey(),
            info: bound.info(bound.remote().len),
        }
    }
}

impl Payload for Binding {
    returned!(Self);

    fn postable_to(&self) -> PostableTo<'_> {
        PostableTo::Domain(self.0.pd())
    }

    fn into_in_flight(self) -> Option<InFlight> {
        Some(InFlight::Bind(self.0))
    }
}

impl Encode for Bind {
    const OP: u64 = IBV_QP_EX_WITH_BIND_MW as u64;
    const DATA: bool = false;

    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_BIND_MW;
        // Soft-RoCE's provider rejects a bind request with a non-zero key here, and an earlier
        // invalidation may have left one.
        wr.__bindgen_anon_1.invalidate_rkey = 0;
        let bind = rdma_sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw: self.mw,
            rkey: self.rkey,
            bind_info: self.info,
        };
        wr.__bindgen_anon_2.bind_mw = bind;
    }

    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller. The payload keeps window and region alive.
        unsafe { ibv_wr_bind_mw(qp, self.mw, self.rkey, &raw const self.info) }
    }
}

/// The operation of [`wr::invalidate`](crate::wr::invalidate): the invalidation of a memory window.
///
/// # Example
/// ```no_run
/// use ibverbs::{mw::{BoundWindow, Type2}, wr};
/// fn close_window(window: BoundWindow<Type2>) -> wr::SendRequest<wr::Invalidate, BoundWindow<Type2>> {
///     wr::invalidate(window).fenced(true)
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct Invalidate(pub(crate) u32);

impl Payload for BoundWindow<Type2> {
    returned!(Self);

    fn postable_to(&self) -> PostableTo<'_> {
        PostableTo::Domain(self.bound.pd())
    }

    fn into_in_flight(self) -> Option<InFlight> {
        Some(InFlight::Invalidate(self.bound))
    }
}

impl Encode for Invalidate {
    const OP: u64 = IBV_QP_EX_WITH_LOCAL_INV as u64;
    const DATA: bool = false;

    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_LOCAL_INV;
        wr.__bindgen_anon_1.invalidate_rkey = self.0;
    }

    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_local_inv(qp, self.0) }
    }
}

/// Implements [`Transfer`] for operations that move no data.
macro_rules! without_data {
    ($($operation:ty: $payload:ty { $($bound:item)? }),*) => {$(
        impl Transfer<$payload> for $operation {
            $($bound)?

            fn check(self, _: &$payload) -> Result<(), PostError> {
                Ok(())
            }

            fn local(self, _: &$payload) -> Gather<'_> {
                Gather::Empty
            }
        }

        impl<T: ConnectedDuplexTransport> Operation<T, $payload> for $operation {}
    )*};
}

without_data! {
    Bind: Binding {
        fn bound(payload: &Binding) -> Option<Weak<Bound>> {
            Some(Arc::downgrade(&payload.0))
        }
    },
    Invalidate: BoundWindow<Type2> {}
}

/// The operation of [`wr::send_with_inv`](crate::wr::send_with_inv): a send that invalidates one of
/// the peer's memory windows.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, wr};
/// fn answer(reply: Buf, window_key: u32) -> wr::SendRequest<wr::SendWithInv, Buf> {
///     wr::send_with_inv(reply, window_key)
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct SendWithInv(pub(crate) u32);

impl Encode for SendWithInv {
    const OP: u64 = IBV_QP_EX_WITH_SEND_WITH_INV as u64;

    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_SEND_WITH_INV;
        wr.__bindgen_anon_1.invalidate_rkey = self.0;
        // The siw provider reads the key from this field, which a send does not use otherwise.
        wr.wr.rdma.rkey = self.0;
    }

    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_send_inv(qp, self.0) }
    }
}

impl<P: SendPayload> Transfer<P> for SendWithInv {
    fn check(self, _: &P) -> Result<(), PostError> {
        Ok(())
    }

    fn local(self, payload: &P) -> Gather<'_> {
        Source::gather(payload)
    }
}

impl<T: ConnectedDuplexTransport, P: SendPayload> Operation<T, P> for SendWithInv {}
