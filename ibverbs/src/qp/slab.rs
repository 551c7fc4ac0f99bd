//! What is in flight on a receive queue: a slab, as completions may come in any order.

#![allow(unsafe_code)]

use std::fmt;

use super::inflight::{Entry, STEP, mask_of, offset};
use super::kept::InFlight;
use crate::fixed::Fixed;
use crate::identity::{Direction, QueueId, WrId};

/// A place of the receive table.
#[derive(Clone, Copy)]
struct Slot {
    /// What its present use carries, or its next one while it is free: the number of the slot, and above it a count of its uses, so that a
    /// completion of an earlier use does not match.
    wr_id: u64,
    /// What is kept; nothing while the slot is free.
    payload: *mut (),
    tag: u64,
    /// While the slot is free: where the next free one is, in bytes; [`NONE`] after the last.
    next_free: usize,
}

const NONE: usize = usize::MAX;

/// The receive queue's table.
pub(super) struct RecvSlab {
    /// A power of two of them, of which `capacity` are used.
    slots: Fixed<Slot>,
    mask: usize,
    free: usize,
    room: u32,
    capacity: u32,
}

// SAFETY: what the slots keep is Send, and owned.
unsafe impl Send for RecvSlab {}
// SAFETY: through a shared slab numbers are read only.
unsafe impl Sync for RecvSlab {}

/// The place of the next receive.
pub(super) struct NextRecv<'slab> {
    slab: &'slab mut RecvSlab,
    slot: *mut Slot,
    wr_id: u64,
}

impl NextRecv<'_> {
    #[inline]
    pub(super) fn wr_id(&self) -> WrId {
        WrId(self.wr_id)
    }

    /// Takes the receive in.
    #[inline]
    pub(super) fn fill(self, payload: InFlight, tag: u64) {
        // SAFETY: a slot of the slab, which is free: nothing is kept there.
        unsafe {
            (*self.slot).payload = payload.into_raw();
            (*self.slot).tag = tag;
            self.slab.free = (*self.slot).next_free;
        }
        self.slab.room -= 1;
    }
}

const SLOT_BITS: u32 = 20;
/// One more use of a slot.
const USE: u64 = STEP << SLOT_BITS;

impl RecvSlab {
    /// The most receives a slab can tell apart.
    pub(super) const MAX: u32 = 1 << SLOT_BITS;

    pub(super) fn new(queue: QueueId, capacity: u32) -> Self {
        let first = WrId::first(queue, Direction::Recv).0;
        let vacant = Slot { wr_id: first, payload: InFlight::NOTHING.into_raw(), tag: 0, next_free: NONE };
        let mut slab = Self { slots: Fixed::of(vacant, 1), mask: 0, free: NONE, room: 0, capacity: 0 };
        slab.resize(capacity);
        slab
    }

    /// Makes an empty slab as large as this. A slot keeps its count of uses, so that a completion from before matches nothing; slots beyond
    /// the capacity therefore stay.
    pub(super) fn resize(&mut self, capacity: u32) {
        debug_assert_eq!(self.room, self.capacity);
        let capacity = capacity.min(Self::MAX);
        let (before, count) = (self.slots.len(), (capacity.next_power_of_two() as usize).max(self.slots.len()));
        // SAFETY: there is one at least.
        let vacant = unsafe { *self.slots.as_ptr() };
        let slots = Fixed::of(vacant, count);
        for index in 0..count {
            let next = index + 1;
            let next_free = if next < capacity as usize { next * size_of::<Slot>() } else { NONE };
            // SAFETY: there are `count` of the new ones, and `before` of the old ones.
            unsafe {
                let wr_id = if index < before {
                    (*self.slots.as_ptr().add(index)).wr_id
                } else {
                    vacant.wr_id % STEP + index as u64 * STEP
                };
                slots.as_ptr().add(index).write(Slot { wr_id, next_free, ..vacant });
            }
        }
        self.slots = slots;
        self.mask = mask_of::<Slot>(count);
        self.free = if capacity == 0 { NONE } else { 0 };
        (self.room, self.capacity) = (capacity, capacity);
    }

    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.room
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The place of the next receive, if there is room.
    #[inline]
    pub(super) fn next(&mut self) -> Option<NextRecv<'_>> {
        if self.free == NONE {
            return None;
        }
        // SAFETY: the list of the free ones leads from slot to slot.
        let (slot, wr_id) = unsafe {
            let slot = self.slots.as_ptr().byte_add(self.free);
            (slot, (*slot).wr_id)
        };
        Some(NextRecv { slab: self, slot, wr_id })
    }

    /// Takes out the receive with this `wr_id`. `None` for what is none of the slab's receives in flight.
    #[inline]
    pub(super) fn retire(&mut self, wr_id: WrId) -> Option<Entry> {
        let offset = offset::<Slot>(wr_id.0) & self.mask;
        // SAFETY: cut to the table; what a slot that is in use keeps is taken out once, as it is free then.
        unsafe {
            let slot = self.slots.as_ptr().byte_add(offset);
            if (*slot).wr_id != wr_id.0 {
                return None;
            }
            let entry = Entry { payload: InFlight::from_raw((*slot).payload), tag: (*slot).tag };
            (*slot).payload = InFlight::NOTHING.into_raw();
            (*slot).wr_id = wr_id.0.wrapping_add(USE);
            (*slot).next_free = self.free;
            self.free = offset;
            self.room += 1;
            Some(entry)
        }
    }

    /// Empties the slab.
    pub(super) fn drain(&mut self) -> Vec<Entry> {
        let mut in_flight = vec![true; self.capacity as usize];
        let mut free = self.free;
        while free != NONE {
            in_flight[free / size_of::<Slot>()] = false;
            // SAFETY: the list of the free ones leads from slot to slot.
            free = unsafe { (*self.slots.as_ptr().byte_add(free)).next_free };
        }
        let slots = in_flight.into_iter().enumerate().filter_map(|(index, in_flight)| in_flight.then_some(index));
        slots
            .filter_map(|index| {
                // SAFETY: one of the slots.
                let wr_id = unsafe { (*self.slots.as_ptr().add(index)).wr_id };
                self.retire(WrId(wr_id))
            })
            .collect()
    }
}

impl Drop for RecvSlab {
    fn drop(&mut self) {
        drop(self.drain());
    }
}

impl fmt::Debug for RecvSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvSlab").field("room", &self.room).field("capacity", &self.capacity).finish()
    }
}
