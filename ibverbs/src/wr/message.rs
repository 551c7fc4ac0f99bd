//! Operations that send a message. Each message consumes a receive of the peer.

#![allow(unsafe_code)]

use rdma_sys::{
    IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_qp_ex, ibv_send_wr, ibv_wr_send, ibv_wr_send_imm,
    ibv_wr_set_ud_addr,
};

use super::address::{Destination, HeldAddress};
use super::operation::Operation;
use super::operation::{private::Encode, private::Transfer};
use super::payload::private::Source;
use super::payload::{Gather, SendPayload};
use super::rejected::PostError;
use crate::transport::{ConnectedDuplexTransport, RawPacket, Ud};

/// The operation [`wr::send`](crate::wr::send).
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// The operation [`wr::send_with_imm`](crate::wr::send_with_imm), with immediate data in host byte
/// order.
#[derive(Clone, Copy, Debug)]
pub struct SendWithImm(pub(crate) u32);

/// The operation [`wr::send_to`](crate::wr::send_to).
#[derive(Clone, Copy, Debug)]
pub struct SendTo(pub(crate) Destination);

/// The operation [`wr::send_to_with_imm`](crate::wr::send_to_with_imm).
#[derive(Clone, Copy, Debug)]
pub struct SendToWithImm(pub(crate) Destination, pub(crate) u32);

impl Encode for Send {
    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_SEND;
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_send(qp) }
    }
}

impl Encode for SendWithImm {
    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = self.0.to_be();
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_send_imm(qp, self.0.to_be()) }
    }
}

/// Sets the destination of a classic datagram.
#[inline]
fn set_destination(wr: &mut ibv_send_wr, destination: Destination) {
    wr.wr.ud.ah = destination.address.as_ptr();
    wr.wr.ud.remote_qpn = destination.qpn.0;
    wr.wr.ud.remote_qkey = destination.qkey.0;
}

impl Encode for SendTo {
    #[inline]
    fn address(self) -> Option<HeldAddress> {
        Some(self.0.address)
    }

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        Send.classic(wr);
        set_destination(wr, self.0);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller. The queue pair keeps the address handle alive: posting
        // checks the token that `address` returns.
        unsafe {
            Send.extended(qp);
            ibv_wr_set_ud_addr(qp, self.0.address.as_ptr(), self.0.qpn.0, self.0.qkey.0);
        }
    }
}

impl Encode for SendToWithImm {
    #[inline]
    fn address(self) -> Option<HeldAddress> {
        Some(self.0.address)
    }

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        SendWithImm(self.1).classic(wr);
        set_destination(wr, self.0);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller. The queue pair keeps the address handle alive: posting
        // checks the token that `address` returns.
        unsafe {
            SendWithImm(self.1).extended(qp);
            ibv_wr_set_ud_addr(qp, self.0.address.as_ptr(), self.0.qpn.0, self.0.qkey.0);
        }
    }
}

/// Implements [`Transfer`] for operations without remote memory.
macro_rules! messages {
    ($($operation:ty),*) => {$(
        impl<P: SendPayload> Transfer<P> for $operation {
            #[inline]
            fn check(self, _: &P) -> Result<(), PostError> {
                Ok(())
            }

            #[inline]
            fn local(self, payload: &P) -> Gather<'_> {
                Source::gather(payload)
            }
        }
    )*};
}

messages!(Send, SendWithImm, SendTo, SendToWithImm);

impl<T: ConnectedDuplexTransport, P: SendPayload> Operation<T, P> for Send {}
impl<P: SendPayload> Operation<RawPacket, P> for Send {}
impl<T: ConnectedDuplexTransport, P: SendPayload> Operation<T, P> for SendWithImm {}
impl<P: SendPayload> Operation<Ud, P> for SendTo {}
impl<P: SendPayload> Operation<Ud, P> for SendToWithImm {}
