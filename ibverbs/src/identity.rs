//! Who a work request belongs to, packed into the 64 bits that the device carries for it.

#![allow(clippy::cast_possible_truncation, reason = "the fields are cut out of 64 bits on purpose")]

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
use crate::kind::ErrorKind;

/// The number of a queue pair on its device (24 bits). Numbers are reused after a queue pair is destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Qpn(pub u32);

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

impl Qpn {
    /// Stands for all queue pairs that listen to a multicast group.
    pub const MULTICAST: Self = Self(0x00ff_ffff);
}

/// A queue key: datagrams are taken only from senders that know the receiver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Qkey(pub u32);

/// A packet sequence number (24 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Psn(pub u32);

/// The number of a shared receive queue on its device (24 bits), by which XRC requests name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SrqNum(pub u32);

impl fmt::Display for SrqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// Which queue pair of this process; never reused, so that a completion of a destroyed one matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(u32);

impl QueueId {
    /// A new identity.
    pub(crate) fn next() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mut id = NEXT.load(Ordering::Relaxed);
        loop {
            let next = id.checked_add(1).ok_or_else(|| {
                Error::new(ErrorKind::QueueFull, "ibv_create_qp", "this process has made 2^32 queue pairs")
            })?;
            match NEXT.compare_exchange_weak(id, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(Self(id)),
                Err(seen) => id = seen,
            }
        }
    }

    /// The identity as the number that the library carries with the object, as events report it; never a pointer to follow.
    pub(crate) fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0 as usize)
    }

    /// The identity out of that number.
    pub(crate) fn from_context(context: *mut c_void) -> Self {
        Self(context.addr() as u32)
    }

    /// A small number of its own, for a table of the caller's.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Which of its two queues a work request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The send queue: sends, writes, reads, atomics.
    Send,
    /// The receive queue.
    Recv,
}

/// What goes into `wr_id`. From the lowest bit: the queue's identity (32 bits), one bit of direction, and 31 bits that the table of that
/// queue makes. The table's bits are the highest, so that they wrap by themselves, and a number that counts them up is a `wr_id` as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrId(pub(crate) u64);

const RECV_BIT: u64 = 1 << 32;

impl WrId {
    /// Where the table's bits begin.
    pub(crate) const TABLE_SHIFT: u32 = 33;

    /// The `wr_id` of table number 0.
    pub(crate) const fn first(queue: QueueId, direction: Direction) -> Self {
        let bit = if matches!(direction, Direction::Recv) { RECV_BIT } else { 0 };
        Self(bit | queue.0 as u64)
    }

    pub(crate) fn queue(self) -> QueueId {
        QueueId(self.0 as u32)
    }

    pub(crate) fn direction(self) -> Direction {
        if self.0 & RECV_BIT == 0 { Direction::Send } else { Direction::Recv }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wr_id_gives_back_what_it_was_made_of() {
        for direction in [Direction::Send, Direction::Recv] {
            for table in [0, 1, u64::MAX >> WrId::TABLE_SHIFT] {
                let first = WrId::first(QueueId(u32::MAX), direction);
                let id = WrId(first.0 + (table << WrId::TABLE_SHIFT));
                assert_eq!(
                    (id.queue(), id.direction(), id.0 >> WrId::TABLE_SHIFT),
                    (QueueId(u32::MAX), direction, table)
                );
            }
        }
    }

    #[test]
    fn an_identity_survives_its_way_through_the_library() {
        assert_eq!(QueueId::from_context(QueueId(u32::MAX).as_context()), QueueId(u32::MAX));
    }

    #[test]
    fn identities_are_never_equal() {
        let (a, b) = (QueueId::next().expect("a"), QueueId::next().expect("b"));
        assert_ne!(a, b);
    }
}
