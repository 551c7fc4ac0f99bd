//! Operations of the send queue: how each is written in the classic and in the extended verbs, what it may be given, and which
//! transport has it.

#![allow(unsafe_code)]

use rdma_sys::{
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_qp_ex, ibv_send_wr, ibv_wr_atomic_cmp_swp,
    ibv_wr_atomic_fetch_add, ibv_wr_rdma_read, ibv_wr_rdma_write, ibv_wr_rdma_write_imm, ibv_wr_send, ibv_wr_send_imm,
    ibv_wr_set_ud_addr,
};

use super::address::{Destination, HeldAddress};
use super::kept::InFlight;
use super::payload::private::{Payload, Source, Target};
use super::payload::{Gather, ReadPayload, SendPayload};
use super::rejected::PostError;
use super::transport::{Connected, RawPacket, Rc, Sends, Ud};
use crate::mr::RemoteMemory;
use crate::mw::Bound;

/// The operation [`wr::send`](crate::wr::send).
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// The operation [`wr::send_with_imm`](crate::wr::send_with_imm): the immediate data in host order.
#[derive(Clone, Copy, Debug)]
pub struct SendWithImm(pub(super) u32);

/// The operation [`wr::send_to`](crate::wr::send_to).
#[derive(Clone, Copy, Debug)]
pub struct SendTo(pub(super) Destination);

/// The operation [`wr::send_to_with_imm`](crate::wr::send_to_with_imm).
#[derive(Clone, Copy, Debug)]
pub struct SendToWithImm(pub(super) Destination, pub(super) u32);

/// The operation [`wr::write`](crate::wr::write).
#[derive(Clone, Copy, Debug)]
pub struct RdmaWrite(pub(super) RemoteMemory);

/// The operation [`wr::write_with_imm`](crate::wr::write_with_imm).
#[derive(Clone, Copy, Debug)]
pub struct RdmaWriteWithImm(pub(super) RemoteMemory, pub(super) u32);

/// The operation [`wr::read`](crate::wr::read).
#[derive(Clone, Copy, Debug)]
pub struct RdmaRead(pub(super) RemoteMemory);

/// The operation [`wr::compare_swap`](crate::wr::compare_swap).
#[derive(Clone, Copy, Debug)]
pub struct CompareSwap {
    pub(super) remote: RemoteMemory,
    pub(super) compare: u64,
    pub(super) swap: u64,
}

/// The operation [`wr::fetch_add`](crate::wr::fetch_add).
#[derive(Clone, Copy, Debug)]
pub struct FetchAdd {
    pub(super) remote: RemoteMemory,
    pub(super) add: u64,
}

pub(super) mod private {
    use std::sync::Weak;

    use super::{Bound, Gather, HeldAddress, InFlight, Payload, PostError, ibv_qp_ex, ibv_send_wr};

    /// How an operation is written.
    pub trait Write: Copy {
        /// Whether it reads the peer's memory into this side's, as the device then writes to the payload.
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
        /// Between `ibv_wr_start` and `ibv_wr_complete` of a live queue pair made with this operation; `wr_id` and `wr_flags` are set.
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

use private::{Moves, Write};

/// An operation on a payload `P` that transport `T` has. Sealed: operations are this crate's to say.
///
/// # Example
/// A function for any operation that a reliable connection has on a buffer:
/// ```no_run
/// use ibverbs::{Buf, Operation, QueuePair, Rc, wr};
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
pub trait Operation<T: Sends, P: Payload>: Moves<P> {}

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

/// The address of a classic datagram.
#[inline]
fn ud(wr: &mut ibv_send_wr, destination: Destination) {
    wr.wr.ud.ah = destination.address.as_ptr();
    wr.wr.ud.remote_qpn = destination.qpn.0;
    wr.wr.ud.remote_qkey = destination.qkey.0;
}

impl Write for SendTo {
    #[inline]
    fn address(self) -> Option<HeldAddress> {
        Some(self.0.address)
    }

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        Send.classic(wr);
        ud(wr, self.0);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise; the queue pair keeps the address handle alive (see `address`).
        unsafe {
            Send.extended(qp);
            ibv_wr_set_ud_addr(qp, self.0.address.as_ptr(), self.0.qpn.0, self.0.qkey.0);
        }
    }
}

impl Write for SendToWithImm {
    #[inline]
    fn address(self) -> Option<HeldAddress> {
        Some(self.0.address)
    }

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        SendWithImm(self.1).classic(wr);
        ud(wr, self.0);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: as for SendTo.
        unsafe {
            SendWithImm(self.1).extended(qp);
            ibv_wr_set_ud_addr(qp, self.0.address.as_ptr(), self.0.qpn.0, self.0.qkey.0);
        }
    }
}

/// The remote half of a classic write or read.
#[inline]
fn rdma(wr: &mut ibv_send_wr, opcode: u32, remote: RemoteMemory) {
    wr.opcode = opcode;
    wr.wr.rdma.remote_addr = remote.addr;
    wr.wr.rdma.rkey = remote.rkey;
}

impl Write for RdmaWrite {
    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        rdma(wr, IBV_WR_RDMA_WRITE, self.0);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_rdma_write(qp, self.0.rkey, self.0.addr) }
    }
}

impl Write for RdmaWriteWithImm {
    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        rdma(wr, IBV_WR_RDMA_WRITE_WITH_IMM, self.0);
        wr.__bindgen_anon_1.imm_data = self.1.to_be();
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_rdma_write_imm(qp, self.0.rkey, self.0.addr, self.1.to_be()) }
    }
}

impl Write for RdmaRead {
    const FETCHES: bool = true;

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        rdma(wr, IBV_WR_RDMA_READ, self.0);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_rdma_read(qp, self.0.rkey, self.0.addr) }
    }
}

impl Write for CompareSwap {
    const FETCHES: bool = true;

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        wr.wr.atomic.remote_addr = self.remote.addr;
        wr.wr.atomic.rkey = self.remote.rkey;
        wr.wr.atomic.compare_add = self.compare;
        wr.wr.atomic.swap = self.swap;
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_atomic_cmp_swp(qp, self.remote.rkey, self.remote.addr, self.compare, self.swap) }
    }
}

impl Write for FetchAdd {
    const FETCHES: bool = true;

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.remote_addr = self.remote.addr;
        wr.wr.atomic.rkey = self.remote.rkey;
        wr.wr.atomic.compare_add = self.add;
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_atomic_fetch_add(qp, self.remote.rkey, self.remote.addr, self.add) }
    }
}

/// A message needs no remote memory.
macro_rules! messages {
    ($($operation:ty),*) => {$(
        impl<P: SendPayload> Moves<P> for $operation {
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

/// A write stays within the remote memory.
macro_rules! writes {
    ($($operation:ty),*) => {$(
        impl<P: SendPayload> Moves<P> for $operation {
            #[inline]
            fn check(self, payload: &P) -> Result<(), PostError> {
                self.0.check(payload.gather().len())
            }

            #[inline]
            fn local(self, payload: &P) -> Gather<'_> {
                Source::gather(payload)
            }
        }
    )*};
}

writes!(RdmaWrite, RdmaWriteWithImm);

impl RemoteMemory {
    /// Whether `len` bytes fit into it.
    #[inline]
    fn check(self, len: u64) -> Result<(), PostError> {
        if len > self.len { Err(PostError::BeyondRemote { len, remote: self.len }) } else { Ok(()) }
    }
}

/// Checks that `len` bytes fit into the local memory of a fetch.
#[inline]
fn check_local(len: u64, payload: &impl Target) -> Result<u32, PostError> {
    let capacity = payload.scatter().len();
    match u32::try_from(len) {
        Ok(short) if len <= capacity => Ok(short),
        _ => Err(PostError::BeyondLocal { len, local: capacity }),
    }
}

impl<P: ReadPayload> Moves<P> for RdmaRead {
    #[inline]
    fn check(self, payload: &P) -> Result<(), PostError> {
        check_local(self.0.len, payload).map(|_| ())
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "checked to fit before")]
    fn local(self, payload: &P) -> Gather<'_> {
        payload.scatter().first(self.0.len as u32)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "checked to fit before")]
    fn into_in_flight(self, payload: P) -> InFlight {
        payload.into_in_flight().showing(self.0.len as usize)
    }
}

/// An atomic works on 8 aligned bytes of the peer and returns 8.
macro_rules! atomics {
    ($($operation:ty),*) => {$(
        impl<P: ReadPayload> Moves<P> for $operation {
            #[inline]
            fn check(self, payload: &P) -> Result<(), PostError> {
                self.remote.check(8)?;
                if self.remote.addr % 8 != 0 {
                    return Err(PostError::Misaligned { addr: self.remote.addr });
                }
                check_local(8, payload).map(|_| ())
            }

            #[inline]
            fn local(self, payload: &P) -> Gather<'_> {
                payload.scatter().first(8)
            }

            #[inline]
            fn into_in_flight(self, payload: P) -> InFlight {
                payload.into_in_flight().showing(8)
            }
        }
    )*};
}

atomics!(CompareSwap, FetchAdd);

/// What every connection has (IBA table 38): one bound, `T: Connected`, is enough for code that serves them all.
macro_rules! connections {
    ($($operation:ty),*) => {$(
        impl<T: Connected, P: SendPayload> Operation<T, P> for $operation {}
    )*};
}

connections!(Send, SendWithImm, RdmaWrite, RdmaWriteWithImm);

/// What a single transport has.
macro_rules! transports {
    ($($transport:ty: $($operation:ty),* => $payload:ident;)*) => {$($(
        impl<P: $payload> Operation<$transport, P> for $operation {}
    )*)*};
}

transports! {
    Rc: RdmaRead, CompareSwap, FetchAdd => ReadPayload;
    Ud: SendTo, SendToWithImm => SendPayload;
    RawPacket: Send => SendPayload;
}
