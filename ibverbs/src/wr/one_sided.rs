//! Operations on the peer's memory: RDMA writes, RDMA reads and atomics.

#![allow(unsafe_code)]

use rdma_sys::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, ibv_qp_ex, ibv_send_wr, ibv_wr_atomic_cmp_swp,
    ibv_wr_atomic_fetch_add, ibv_wr_rdma_read, ibv_wr_rdma_write, ibv_wr_rdma_write_imm,
};

use super::operation::Operation;
use super::operation::{private::Encode, private::Transfer};
use super::payload::{Gather, ReadPayload, SendPayload};
use super::payload::{private::Source, private::Target};
use super::rejected::PostError;
use crate::in_flight::InFlight;
use crate::mr::RemoteMemory;
use crate::transport::{ConnectedDuplexTransport, Rc, SameOperations};

/// The operation of [`wr::write`](fn@crate::wr::write): an RDMA write.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, RemoteMemory, wr};
/// fn store(page: Buf, at: RemoteMemory) -> wr::SendRequest<wr::RdmaWrite, Buf> {
///     wr::write(page, at).signaled(false)
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct RdmaWrite(pub(crate) RemoteMemory);

/// The operation of [`wr::write_with_imm`](crate::wr::write_with_imm): an RDMA write with immediate
/// data.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, RemoteMemory, wr};
/// fn announce(page: Buf, at: RemoteMemory, number: u32) -> wr::SendRequest<wr::RdmaWriteWithImm, Buf> {
///     wr::write_with_imm(page, at, number)
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct RdmaWriteWithImm(pub(crate) RemoteMemory, pub(crate) u32);

/// The operation of [`wr::read`](crate::wr::read): an RDMA read.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, RemoteMemory, wr};
/// use std::collections::VecDeque;
/// /// Reads that wait for a free slot of the send queue.
/// struct Prefetch {
///     reads: VecDeque<wr::SendRequest<wr::RdmaRead, Buf>>,
/// }
/// impl Prefetch {
///     fn push(&mut self, into: Buf, from: RemoteMemory) {
///         self.reads.push_back(wr::read(into, from));
///     }
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct RdmaRead(pub(crate) RemoteMemory);

/// The operation of [`wr::compare_swap`](crate::wr::compare_swap): an atomic comparison and swap.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, RemoteMemory, wr};
/// fn lock(word: RemoteMemory, previous: Buf) -> wr::SendRequest<wr::CompareSwap, Buf> {
///     wr::compare_swap(previous, word, 0, 1)
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct CompareSwap {
    pub(crate) remote: RemoteMemory,
    pub(crate) compare: u64,
    pub(crate) swap: u64,
}

/// The operation of [`wr::fetch_add`](crate::wr::fetch_add): an atomic addition.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, RemoteMemory, wr};
/// fn next_ticket(counter: RemoteMemory, previous: Buf) -> wr::SendRequest<wr::FetchAdd, Buf> {
///     wr::fetch_add(previous, counter, 1)
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
pub struct FetchAdd {
    pub(crate) remote: RemoteMemory,
    pub(crate) add: u64,
}

/// Sets opcode and remote address of a classic write or read.
#[inline]
fn set_remote(wr: &mut ibv_send_wr, opcode: u32, remote: RemoteMemory) {
    wr.opcode = opcode;
    wr.wr.rdma.remote_addr = remote.addr;
    wr.wr.rdma.rkey = remote.rkey;
}

impl Encode for RdmaWrite {
    const OP: u64 = IBV_QP_EX_WITH_RDMA_WRITE as u64;
    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        set_remote(wr, IBV_WR_RDMA_WRITE, self.0);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_rdma_write(qp, self.0.rkey, self.0.addr) }
    }
}

impl Encode for RdmaWriteWithImm {
    const OP: u64 = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64;
    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        set_remote(wr, IBV_WR_RDMA_WRITE_WITH_IMM, self.0);
        wr.__bindgen_anon_1.imm_data = self.1.to_be();
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_rdma_write_imm(qp, self.0.rkey, self.0.addr, self.1.to_be()) }
    }
}

impl Encode for RdmaRead {
    const FETCHES: bool = true;
    const OP: u64 = IBV_QP_EX_WITH_RDMA_READ as u64;

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        set_remote(wr, IBV_WR_RDMA_READ, self.0);
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_rdma_read(qp, self.0.rkey, self.0.addr) }
    }
}

impl Encode for CompareSwap {
    const FETCHES: bool = true;
    const OP: u64 = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP as u64;

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
        // SAFETY: guaranteed by the caller.
        unsafe {
            ibv_wr_atomic_cmp_swp(
                qp,
                self.remote.rkey,
                self.remote.addr,
                self.compare,
                self.swap,
            );
        }
    }
}

impl Encode for FetchAdd {
    const FETCHES: bool = true;
    const OP: u64 = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD as u64;

    #[inline]
    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.remote_addr = self.remote.addr;
        wr.wr.atomic.rkey = self.remote.rkey;
        wr.wr.atomic.compare_add = self.add;
    }

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_wr_atomic_fetch_add(qp, self.remote.rkey, self.remote.addr, self.add) }
    }
}

/// Implements [`Transfer`] for writes, which must stay within the remote memory.
macro_rules! writes {
    ($($operation:ty),*) => {$(
        impl<P: SendPayload> Transfer<P> for $operation {
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
    /// Checks that `len` bytes fit into the remote memory.
    #[inline]
    pub(super) fn check(self, len: u64) -> Result<(), PostError> {
        if len > self.len {
            Err(PostError::BeyondRemote {
                len,
                remote: self.len,
            })
        } else {
            Ok(())
        }
    }

    /// Checks that the remote memory is an aligned word of 8 bytes.
    #[inline]
    pub(super) fn check_word(self) -> Result<(), PostError> {
        self.check(8)?;
        if self.addr % 8 != 0 {
            return Err(PostError::Misaligned { addr: self.addr });
        }
        Ok(())
    }
}

/// Checks that `len` fetched bytes fit into the local memory. A list of held memory must have this
/// length, because its entries are not shortened.
#[inline]
fn check_local(len: u64, payload: &impl Target) -> Result<(), PostError> {
    let local = payload.scatter();
    let capacity = local.len();
    if len > capacity || len > u64::from(u32::MAX) {
        return Err(PostError::BeyondLocal {
            len,
            local: capacity,
        });
    }
    match local {
        Gather::List { len: local, .. } if local > len => Err(PostError::BeyondRemote {
            len: local,
            remote: len,
        }),
        _ => Ok(()),
    }
}

impl<P: ReadPayload> Transfer<P> for RdmaRead {
    #[inline]
    fn check(self, payload: &P) -> Result<(), PostError> {
        check_local(self.0.len, payload)
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "`check` accepts at most u32::MAX bytes"
    )]
    fn local(self, payload: &P) -> Gather<'_> {
        payload.scatter().truncated_to(self.0.len as u32)
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "`check` accepts at most u32::MAX bytes"
    )]
    fn into_in_flight(self, payload: P) -> Option<InFlight> {
        payload.into_fetching(self.0.len as usize)
    }
}

/// Implements [`Transfer`] for atomics, which access 8 aligned bytes and return their previous
/// value.
macro_rules! atomics {
    ($($operation:ty),*) => {$(
        impl<P: ReadPayload> Transfer<P> for $operation {
            #[inline]
            fn check(self, payload: &P) -> Result<(), PostError> {
                self.remote.check_word()?;
                check_local(8, payload)?;
                match payload.scatter() {
                    Gather::List { count, .. } if count > 1 => {
                        Err(PostError::TooManyPieces { count, max: 1 })
                    }
                    _ => Ok(()),
                }
            }

            #[inline]
            fn local(self, payload: &P) -> Gather<'_> {
                payload.scatter().truncated_to(8)
            }

            #[inline]
            fn into_in_flight(self, payload: P) -> Option<InFlight> {
                payload.into_fetching(8)
            }
        }
    )*};
}

atomics!(CompareSwap, FetchAdd);

// The operations of each transport service (IBA table 38).
impl<T: ConnectedDuplexTransport, P: SendPayload> Operation<T, P> for RdmaWrite {}
impl<T: ConnectedDuplexTransport, P: SendPayload> Operation<T, P> for RdmaWriteWithImm {}
impl<T: SameOperations<Rc>, P: ReadPayload> Operation<T, P> for RdmaRead {}
impl<T: SameOperations<Rc>, P: ReadPayload> Operation<T, P> for CompareSwap {}
impl<T: SameOperations<Rc>, P: ReadPayload> Operation<T, P> for FetchAdd {}
