//! How far a batch has come in the ring of its queue.

#![allow(unsafe_code)]

use super::kept::InFlight;
use super::slot::Place;
use crate::identity::WrId;

/// How far a batch has come: the ring takes its requests in when it ends, so that the next place is
/// at hand until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batched {
    /// The place of the next request: vacant, were it none of the batch's any more.
    pub(crate) next: *mut Place,
}

// SAFETY: it goes where the ring goes, which the batch borrows.
unsafe impl Send for Batched {}
// SAFETY: as above; numbers are read through a shared one.
unsafe impl Sync for Batched {}

impl Batched {
    /// The number of the next request. Whose it is, it says even if there can be none.
    #[inline]
    pub(crate) fn next_number(self) -> WrId {
        // SAFETY: a vacant place.
        unsafe { Place::next_number(self.next) }
    }

    /// Puts the next request in.
    ///
    /// # Safety
    /// The ring says that the batch is not full.
    #[inline]
    pub(crate) unsafe fn fill(&mut self, payload: InFlight, tag: u64) {
        // SAFETY: a vacant place, followed by one.
        unsafe {
            Place::fill(self.next, payload, tag);
            self.next = (*self.next).next;
        }
    }
}
