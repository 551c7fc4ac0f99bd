//! Operations of the send queue: how each is written in the classic and in the extended verbs, and which transport has it.

#![allow(unsafe_code)]

use rdma_sys::{IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_qp_ex, ibv_send_wr, ibv_wr_send, ibv_wr_send_imm};

use super::transport::{Rc, Transport};

/// The operation [`wr::send`](crate::wr::send).
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// The operation [`wr::send_with_imm`](crate::wr::send_with_imm): the immediate data in host order.
#[derive(Clone, Copy, Debug)]
pub struct SendWithImm(pub(super) u32);

pub(super) mod private {
    use super::{ibv_qp_ex, ibv_send_wr};

    /// How an operation is written.
    pub trait Write: Copy {
        /// Into a classic request: opcode, immediate data, remote address.
        fn classic(self, wr: &mut ibv_send_wr);

        /// As the opening call of an extended request.
        ///
        /// # Safety
        /// Between `ibv_wr_start` and `ibv_wr_complete` of a live queue pair made with this operation; `wr_id` and `wr_flags` are set.
        unsafe fn extended(self, qp: *mut ibv_qp_ex);
    }
}

use private::Write;

/// An operation of the send queue that transport `T` has. Sealed: operations are this crate's to say.
pub trait Operation<T: Transport>: Write {}

impl Write for Send {
    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_SEND;
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_send(qp) }
    }
}

impl Write for SendWithImm {
    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = self.0.to_be();
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_send_imm(qp, self.0.to_be()) }
    }
}

impl Operation<Rc> for Send {}
impl Operation<Rc> for SendWithImm {}
