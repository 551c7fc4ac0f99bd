//! Operations on the peer's memory that use no local memory: FLUSH and ATOMIC WRITE.
//!
//! Only the extended verbs have them, and only for queue pairs that were created with them.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::BitOr;

use rdma_sys::{
    IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE,
    IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_FLUSH, ibv_placement_type, ibv_qp_ex,
    ibv_selectivity_level, ibv_send_wr, ibv_wr_atomic_write, ibv_wr_flush,
};

use super::operation::Operation;
use super::operation::{private::Encode, private::Transfer};
use super::payload::Gather;
use super::rejected::PostError;
use super::unregistered::Empty;
use crate::mr::RemoteMemory;
use crate::transport::{Rc, SameOperations};

/// The place that writes must have reached before a flush of them completes (placement type). Both
/// types are combined with `|`.
///
/// # Example
/// ```
/// use ibverbs::wr::FlushPlacement;
/// let both = FlushPlacement::GLOBAL | FlushPlacement::PERSISTENT;
/// assert_eq!(both.to_string(), "GLOBAL | PERSISTENT");
/// ```
///
/// # References
/// [`ibv_wr_flush(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_wr_post.3.md);
/// IBA annex A19
#[doc(alias = "ibv_wr_flush")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlushPlacement(ibv_placement_type);

impl FlushPlacement {
    /// All processors and devices of the peer see the writes. The memory needs the access right
    /// [`FLUSH_GLOBAL`](crate::AccessFlags::FLUSH_GLOBAL).
    pub const GLOBAL: Self = Self(IBV_FLUSH_GLOBAL);
    /// The writes survive a power failure. The memory needs the access right
    /// [`FLUSH_PERSISTENT`](crate::AccessFlags::FLUSH_PERSISTENT).
    pub const PERSISTENT: Self = Self(IBV_FLUSH_PERSISTENT);
}

impl BitOr for FlushPlacement {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for FlushPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::GLOBAL => "GLOBAL",
            Self::PERSISTENT => "PERSISTENT",
            _ => "GLOBAL | PERSISTENT",
        })
    }
}

/// The operation of [`wr::flush`](crate::wr::flush) and
/// [`wr::flush_region`](crate::wr::flush_region).
///
/// # Example
/// ```no_run
/// use ibverbs::{RemoteMemory, wr};
/// fn commit(log: RemoteMemory) -> wr::SendRequest<wr::Flush, wr::Empty> {
///     wr::flush(log, wr::FlushPlacement::PERSISTENT)
/// }
/// ```
///
/// # References
/// [`ibv_wr_flush(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_wr_post.3.md)
#[doc(alias = "ibv_wr_flush")]
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    remote: RemoteMemory,
    placement: FlushPlacement,
    level: ibv_selectivity_level,
}

impl Flush {
    pub(super) fn range(remote: RemoteMemory, placement: FlushPlacement) -> Self {
        Self {
            remote,
            placement,
            level: IBV_FLUSH_RANGE,
        }
    }

    pub(super) fn region(remote: RemoteMemory, placement: FlushPlacement) -> Self {
        Self {
            remote,
            placement,
            level: IBV_FLUSH_MR,
        }
    }
}

impl Encode for Flush {
    const OP: u64 = IBV_QP_EX_WITH_FLUSH as u64;
    const DATA: bool = false;

    /// Does nothing: posting checks that the queue pair was created with the operation.
    fn classic(self, _: &mut ibv_send_wr) {}

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the values are at most 3")]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        let RemoteMemory { addr, len, rkey } = self.remote;
        let (placement, level) = (self.placement.0 as u8, self.level as u8);
        // SAFETY: guaranteed by the caller: the queue pair was created with the operation.
        unsafe { ibv_wr_flush(qp, rkey, addr, len as usize, placement, level) };
    }
}

impl Transfer<Empty> for Flush {
    #[inline]
    fn check(self, _: &Empty) -> Result<(), PostError> {
        Ok(())
    }

    #[inline]
    fn local(self, _: &Empty) -> Gather<'_> {
        Gather::Empty
    }
}

/// The operation of [`wr::atomic_write`](crate::wr::atomic_write).
///
/// # Example
/// ```no_run
/// use ibverbs::{RemoteMemory, wr};
/// fn publish(tail: RemoteMemory, position: u64) -> wr::SendRequest<wr::AtomicWrite, wr::Empty> {
///     wr::atomic_write(tail, position.to_le_bytes())
/// }
/// ```
#[doc(alias = "ibv_wr_atomic_write")]
#[derive(Clone, Copy, Debug)]
pub struct AtomicWrite {
    pub(super) remote: RemoteMemory,
    pub(super) bytes: [u8; 8],
}

impl Encode for AtomicWrite {
    const OP: u64 = IBV_QP_EX_WITH_ATOMIC_WRITE as u64;
    const DATA: bool = false;

    /// Does nothing: posting checks that the queue pair was created with the operation.
    fn classic(self, _: &mut ibv_send_wr) {}

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        let RemoteMemory { addr, rkey, .. } = self.remote;
        // Providers may read the bytes as one aligned word.
        let word = u64::from_ne_bytes(self.bytes);
        // SAFETY: guaranteed by the caller: the queue pair was created with the operation. The
        // provider copies the word.
        unsafe { ibv_wr_atomic_write(qp, rkey, addr, (&raw const word).cast()) }
    }
}

impl Transfer<Empty> for AtomicWrite {
    #[inline]
    fn check(self, _: &Empty) -> Result<(), PostError> {
        self.remote.check_word()
    }

    #[inline]
    fn local(self, _: &Empty) -> Gather<'_> {
        Gather::Empty
    }
}

impl<T: SameOperations<Rc>> Operation<T, Empty> for Flush {}
impl<T: SameOperations<Rc>> Operation<T, Empty> for AtomicWrite {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_combined() {
        let both = FlushPlacement::GLOBAL | FlushPlacement::PERSISTENT;
        assert_eq!(both.0, IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT);
    }

    #[test]
    fn an_atomic_write_needs_an_aligned_word() {
        for (addr, len, is_valid) in [(8, 8, true), (4, 8, false), (8, 4, false)] {
            let remote = RemoteMemory { addr, len, rkey: 1 };
            let bytes = [0; 8];
            let checked = AtomicWrite { remote, bytes }.check(&Empty);
            assert_eq!(checked.is_ok(), is_valid, "{remote:?}");
        }
    }
}
