//! The layout of `wr_id`, the 64 bits that the device carries for each request.

use crate::identity::{Direction, QueueId};

/// The identity of a request in flight.
///
/// | bits | field |
/// |---|---|
/// | 0–29 | identity of the queue, never reused in a process ([`QueueId`]) |
/// | 30 | 1 in a completion of a failure after which the device may still access the memory |
/// | 31 | 1 for a receive |
/// | 32–51 | index of the slot in the table of that queue |
/// | 52 | 1 for a receive that may be a datagram |
/// | 53 | toggled for each request of the slot that was not posted |
/// | 54–63 | generation: number of requests posted with the slot, plus 1 |
///
/// A completion matches a slot if a request is in flight there and all 64 bits are equal. So a
/// completion of another queue or of an earlier request of the slot matches nothing.
///
/// The generation wraps after 1024 requests of a slot. It only counts requests that completed, and
/// for these the completion queue was polled, so a completion cannot be that old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrId(pub(crate) u64);

/// The requests that a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Send,
    Recv,
    /// Receives that may be datagrams, whose completions have a source.
    RecvDatagram,
}

impl WrId {
    const SLOT_SHIFT: u32 = 32;
    const SLOT_BITS: u32 = 20;
    const FAILED: u64 = 1 << 30;
    const RECV: u64 = 1 << 31;
    const DATAGRAM: u64 = 1 << 52;
    const NOT_POSTED: u64 = 1 << 53;
    const GENERATION: u64 = 1 << 54;

    /// Maximum number of slots in a table.
    pub(crate) const MAX_SLOTS: u32 = 1 << Self::SLOT_BITS;

    /// Returns the identity of the first request of a slot.
    ///
    /// The generation begins at 1, so that no identity is equal to a small number or an address,
    /// which other programs use as a `wr_id`.
    pub(crate) fn new(queue: QueueId, kind: RequestKind, slot: u32) -> Self {
        let kind = match kind {
            RequestKind::Send => 0,
            RequestKind::Recv => Self::RECV,
            RequestKind::RecvDatagram => Self::RECV | Self::DATAGRAM,
        };
        debug_assert!(slot < Self::MAX_SLOTS && queue.get() <= QueueId::MAX);
        Self(Self::GENERATION | kind | u64::from(slot) << Self::SLOT_SHIFT | u64::from(queue.get()))
    }

    /// Returns the identity of the next request of the slot.
    #[inline]
    pub(crate) fn next_generation(self) -> Self {
        Self(self.0.wrapping_add(Self::GENERATION))
    }

    /// Returns the identity of the next request of the slot after one that was not posted, although
    /// the provider may have seen its `wr_id`.
    ///
    /// The generation does not change: any number of failed posts must not make it wrap, because
    /// the completion queue is not polled in between.
    pub(crate) fn after_failed_post(self) -> Self {
        Self(self.0 ^ Self::NOT_POSTED)
    }

    /// Returns the identity for a completion of a failure after which the device may still access
    /// the memory. It is equal to none in a table, so the frequent case costs nothing.
    pub(crate) fn with_failure(self) -> Self {
        Self(self.0 | Self::FAILED)
    }

    /// Returns the identity of the request if this is one [with a failure](Self::with_failure).
    pub(crate) fn without_failure(self) -> Option<Self> {
        (self.0 & Self::FAILED != 0).then_some(Self(self.0 & !Self::FAILED))
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the low 30 bits")]
    pub(crate) fn queue(self) -> QueueId {
        QueueId::from_raw((self.0 & (Self::FAILED - 1)) as u32)
    }

    /// Returns the index of the slot in the table of the queue.
    #[inline]
    pub(crate) fn slot(self) -> usize {
        (self.0 >> Self::SLOT_SHIFT) as usize & (Self::MAX_SLOTS as usize - 1)
    }

    #[inline]
    pub(crate) fn direction(self) -> Direction {
        if self.0 & Self::RECV == 0 {
            Direction::Send
        } else {
            Direction::Recv
        }
    }

    #[inline]
    pub(crate) fn may_be_datagram(self) -> bool {
        self.0 & Self::DATAGRAM != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read_back() {
        for (kind, direction) in [
            (RequestKind::Send, Direction::Send),
            (RequestKind::Recv, Direction::Recv),
            (RequestKind::RecvDatagram, Direction::Recv),
        ] {
            for slot in [0, 1, WrId::MAX_SLOTS - 1] {
                let first = WrId::new(QueueId::from_raw(QueueId::MAX), kind, slot);
                let mut wr_id = first;
                for generation in 0..1024 {
                    // Miri is slow, and sees all code in a few generations.
                    if cfg!(miri) && generation % 128 > 1 {
                        wr_id = wr_id.next_generation();
                        continue;
                    }
                    assert_eq!(
                        (wr_id.queue(), wr_id.direction(), wr_id.slot()),
                        (QueueId::from_raw(QueueId::MAX), direction, slot as usize)
                    );
                    assert_eq!(wr_id.may_be_datagram(), kind == RequestKind::RecvDatagram);
                    assert_eq!(wr_id == first, generation == 0);
                    let failed_once = wr_id.after_failed_post();
                    assert_ne!(wr_id, first.after_failed_post());
                    // A provider that saw the first of two failed posts saw another identity.
                    assert_ne!(failed_once, failed_once.after_failed_post());
                    let failed = wr_id.with_failure();
                    assert_eq!(failed.without_failure(), Some(wr_id));
                    assert_eq!(failed.queue(), wr_id.queue());
                    assert_eq!(wr_id.without_failure(), None);
                    wr_id = wr_id.next_generation();
                }
                assert_eq!(wr_id, first, "the generation wraps");
            }
        }
    }
}
