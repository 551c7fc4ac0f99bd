//! Operations with a destination, for transports whose requests name one.

#![allow(unsafe_code)]

use rdma_sys::{ibv_qp_ex, ibv_send_wr, ibv_wr_set_ud_addr};

use super::address::{Destination, HeldAddress};
use super::message::{Send, SendWithImm};
use super::operation::Operation;
use super::operation::{private::Encode, private::Transfer};
use super::payload::private::Payload;
use super::payload::{Gather, SendPayload};
use super::rejected::PostError;
use super::request::SendRequest;
use crate::in_flight::InFlight;
use crate::transport::{SameOperations, Ud};

/// An operation `O` for a destination `D`: the result of
/// [`SendRequest::to`](crate::wr::SendRequest::to).
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, wr};
/// fn datagram(text: Buf, to: wr::Destination) -> wr::SendRequest<wr::To<wr::Send>, Buf> {
///     wr::send(text).to(to)
/// }
/// ```
#[doc(alias = "ibv_wr_post")]
#[derive(Clone, Copy, Debug)]
pub struct To<O, D = Destination> {
    operation: O,
    destination: D,
}

pub(crate) mod private {
    use rdma_sys::{ibv_qp_ex, ibv_send_wr};

    use crate::wr::address::HeldAddress;

    /// Encodes a destination in a work request.
    pub trait Address: Copy {
        /// Returns the address handle, if there is one. The queue pair must hold it.
        fn held(self) -> Option<HeldAddress>;

        /// Sets the destination of a classic request.
        fn classic(self, wr: &mut ibv_send_wr);

        /// Sets the destination of an extended request.
        ///
        /// # Safety
        /// The operation was added to a live queue pair that was created for such destinations and
        /// keeps the address handle alive.
        unsafe fn extended(self, qp: *mut ibv_qp_ex);
    }
}

use private::Address;

impl Address for Destination {
    #[inline]
    fn held(self) -> Option<HeldAddress> {
        Some(self.address)
    }

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.wr.ud.ah = self.address.as_ptr();
        wr.wr.ud.remote_qpn = self.qpn.0;
        wr.wr.ud.remote_qkey = self.qkey.0;
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_set_ud_addr(qp, self.address.as_ptr(), self.qpn.0, self.qkey.0) }
    }
}

impl<O, P> SendRequest<O, P> {
    /// Sets the destination of the request. Transports without a connection need one.
    pub fn to<D: Address>(self, destination: D) -> SendRequest<To<O, D>, P> {
        let Self {
            operation,
            payload,
            flags,
            tag,
        } = self;
        SendRequest {
            operation: To {
                operation,
                destination,
            },
            payload,
            flags,
            tag,
        }
    }
}

impl<O: Encode, D: Address> Encode for To<O, D> {
    const FETCHES: bool = O::FETCHES;
    const OP: u64 = O::OP;
    const DATA: bool = O::DATA;

    #[inline]
    fn address(self) -> Option<HeldAddress> {
        self.destination.held()
    }

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        self.operation.classic(wr);
        self.destination.classic(wr);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller. The queue pair keeps the address handle alive: posting
        // checks the token that `address` returns.
        unsafe {
            self.operation.extended(qp);
            self.destination.extended(qp);
        }
    }
}

impl<P: Payload, O: Transfer<P>, D: Address> Transfer<P> for To<O, D> {
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

impl<T: SameOperations<Ud>, P: SendPayload> Operation<T, P> for To<Send> {}
impl<T: SameOperations<Ud>, P: SendPayload> Operation<T, P> for To<SendWithImm> {}
