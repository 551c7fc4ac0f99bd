//! What an operation of the send queue is: how it is written in the classic and in the extended
//! verbs, what it may be given, and which transport has it.

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

    /// How an operation is written.
    pub trait Write: Copy {
        /// Whether it reads the peer's memory into this side's, as the device then writes to the
        /// payload.
        const FETCHES: bool = false;

        /// Whether not all extended verbs have it: the queue pair says whether its do.
        const EXTRA: bool = false;

        /// Whether it has a payload to set, were it of no bytes.
        const DATA: bool = true;

        /// The held address that it goes to, for a datagram.
        #[inline]
        fn address(self) -> Option<HeldAddress> {
            None
        }

        /// Into a classic request: opcode, immediate data, remote address.
        fn classic(self, wr: &mut ibv_send_wr);

        /// As the opening call of an extended request.
        ///
        /// # Safety
        /// Between `ibv_wr_start` and `ibv_wr_complete` of a live queue pair made with this
        /// operation; `wr_id` and `wr_flags` are set.
        unsafe fn extended(self, qp: *mut ibv_qp_ex);
    }

    /// What an operation does with a payload.
    pub trait Moves<P: Payload>: Write {
        /// Whether payload and remote memory fit each other.
        fn check(self, payload: &P) -> Result<(), PostError>;

        /// The local memory.
        fn local(self, payload: &P) -> Gather<'_>;

        /// The window that it binds, which must end before the queue pair.
        #[inline]
        fn bound(_: &P) -> Option<Weak<Bound>> {
            None
        }

        /// What stays in the table while it is in flight.
        #[inline]
        fn into_in_flight(self, payload: P) -> InFlight {
            payload.into_in_flight()
        }
    }
}

use private::Moves;

/// An operation on a payload `P` that transport `T` has. Sealed: operations are this crate's to
/// say.
///
/// # Example
/// A function for any operation that a reliable connection has on a buffer:
/// ```no_run
/// use ibverbs::{
///     Buf, QueuePair, Rc,
///     wr::{self, Operation},
/// };
/// fn post_quietly<O: Operation<Rc, Buf>>(
///     qp: &mut QueuePair<Rc>,
///     request: wr::SendRequest<O, Buf>,
/// ) -> ibverbs::Result<()> {
///     Ok(qp.post_send(request.unsignaled())?)
/// }
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf) -> ibverbs::Result<()> {
/// post_quietly(qp, wr::send(buf))?;
/// # Ok(()) }
/// ```
pub trait Operation<T: SendTransport, P: Payload>: Moves<P> {}
