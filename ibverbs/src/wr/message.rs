//! Operations that send a message. Each message consumes a receive of the peer.

#![allow(unsafe_code)]

use rdma_sys::{
    IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_qp_ex, ibv_send_wr, ibv_wr_send, ibv_wr_send_imm,
};

use super::operation::Operation;
use super::operation::{private::Encode, private::Transfer};
use super::payload::private::Source;
use super::payload::{Gather, SendPayload};
use super::rejected::PostError;
use crate::transport::{ConnectedDuplexTransport, RawPacket};

/// The operation of [`wr::send`](crate::wr::send).
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// The operation of [`wr::send_with_imm`](crate::wr::send_with_imm): a send with immediate data.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, wr};
/// fn numbered(row: Buf, number: u32) -> wr::SendRequest<wr::SendWithImm, Buf> {
///     wr::send_with_imm(row, number)
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct SendWithImm(pub(crate) u32);

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

messages!(Send, SendWithImm);

impl<T: ConnectedDuplexTransport, P: SendPayload> Operation<T, P> for Send {}
impl<P: SendPayload> Operation<RawPacket, P> for Send {}
impl<T: ConnectedDuplexTransport, P: SendPayload> Operation<T, P> for SendWithImm {}
