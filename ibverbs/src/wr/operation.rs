//! Operations of the send queue: their encoding in the classic and the extended verbs, their
//! checks, and the transports that have them.

#![allow(unsafe_code)]

use super::payload::private::Payload;
use crate::transport::SendTransport;

pub(crate) mod private {
    use std::sync::Weak;

    use rdma_sys::{ibv_qp_ex, ibv_send_wr};

    use crate::in_flight::InFlight;
    use crate::mw::Bound;
    use crate::wr::address::HeldAddress;
    use crate::wr::payload::Gather;
    use crate::wr::payload::private::Payload;
    use crate::wr::rejected::PostError;

    /// Encodes an operation in a work request.
    pub trait Encode: Copy {
        /// `true` if the device writes the peer's data to the payload (RDMA read, atomics).
        const FETCHES: bool = false;

        /// The bit of the operation (`IBV_QP_EX_WITH_*`), if some devices or some extended verbs
        /// lack it.
        const OP: u64 = 0;

        /// `true` if the operation has a payload, which may be empty.
        const DATA: bool = true;

        /// Returns the destination address of a datagram.
        #[inline]
        fn address(self) -> Option<HeldAddress> {
            None
        }

        /// Sets opcode, immediate data and remote address of a classic request.
        fn classic(self, wr: &mut ibv_send_wr);

        /// Begins an extended request.
        ///
        /// # Safety
        /// The caller is between `ibv_wr_start` and `ibv_wr_complete` on a live queue pair that was
        /// created with this operation, and has set `wr_id` and `wr_flags`.
        unsafe fn extended(self, qp: *mut ibv_qp_ex);
    }

    /// An operation on a payload of type `P`.
    pub trait Transfer<P: Payload>: Encode {
        /// Checks that payload and remote memory fit each other.
        fn check(self, payload: &P) -> Result<(), PostError>;

        /// Returns the local memory of the request.
        fn local(self, payload: &P) -> Gather<'_>;

        /// Returns the window that the operation binds. It must be unbound before the queue pair is
        /// destroyed.
        #[inline]
        fn bound(_: &P) -> Option<Weak<Bound>> {
            None
        }

        /// Returns what the table keeps while the request is in flight.
        #[inline]
        fn into_in_flight(self, payload: P) -> Option<InFlight> {
            payload.into_in_flight()
        }
    }
}

use private::Transfer;

/// An operation that transport `T` supports on a payload `P`. This trait is sealed.
///
/// # Example
/// A function that accepts any operation of a reliable connection on a buffer:
/// ```no_run
/// use ibverbs::{
///     Buf, QueuePair, Rc,
///     wr::{self, Operation},
/// };
/// fn post_unsignaled<O: Operation<Rc, Buf>>(
///     qp: &mut QueuePair<Rc>,
///     request: wr::SendRequest<O, Buf>,
/// ) -> ibverbs::Result<()> {
///     Ok(qp.post_send(request.signaled(false))?)
/// }
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf) -> ibverbs::Result<()> {
/// post_unsignaled(qp, wr::send(buf))?;
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "a queue pair of transport `{T}` cannot post `{Self}` with the payload `{P}`",
    label = "transport `{T}` does not have this operation, or not with this payload",
    note = "`Rc` has all operations except datagrams; `Uc` has sends, writes and memory windows; `Ud` has `send` and `send_with_imm` with a destination (`to`); `RawPacket` has `send`",
    note = "a request of an `XrcSend` queue pair is one of `Rc` that names the shared receive queue of the peer: `wr::send(…).for_srq(srq_num)`"
)]
pub trait Operation<T: SendTransport, P: Payload>: Transfer<P> {}
