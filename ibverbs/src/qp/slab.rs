//! What is in flight on a receive queue: a slab, as completions may come in any order.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr;

use super::inflight::{Entry, Place};
use super::kept::InFlight;
use crate::fixed::Fixed;
use crate::identity::{QueueId, Requests, WrId};

/// The receive queue's table.
pub(super) struct RecvSlab {
    /// A power of two of them, of which `capacity` are used.
    places: Fixed<Place>,
    mask: usize,
    /// The first of the vacant ones, which lead from one to the next; null if none is.
    vacant: *mut Place,
    room: u32,
    capacity: u32,
}

// SAFETY: what the places keep is Send, and owned.
unsafe impl Send for RecvSlab {}
// SAFETY: through a shared slab numbers are read only.
unsafe impl Sync for RecvSlab {}

/// The place of the next receive.
pub(super) struct NextRecv<'slab> {
    slab: &'slab mut RecvSlab,
    place: *mut Place,
}

impl NextRecv<'_> {
    #[inline]
    pub(super) fn wr_id(&self) -> WrId {
        // SAFETY: a place of the slab.
        unsafe { (*self.place).wr_id }
    }

    /// Takes the receive in.
    #[inline]
    pub(super) fn fill(self, payload: InFlight, tag: u64) {
        // SAFETY: a place of the slab, which is vacant: nothing is kept there.
        unsafe {
            Place::fill(self.place, payload, tag);
            self.slab.vacant = (*self.place).next;
        }
        self.slab.room -= 1;
    }

    /// The provider was told the number, and refused the receive.
    pub(super) fn refused(self) {
        // SAFETY: a place of the slab.
        unsafe { Place::skip(self.place) }
    }
}

impl RecvSlab {
    /// The most receives a slab can tell apart.
    pub(super) const MAX: u32 = 1 << WrId::PLACE_BITS;

    pub(super) fn new(queue: QueueId, requests: Requests, capacity: u32) -> Self {
        let places = Place::table(WrId::first(queue, requests), 1, None);
        let mut slab = Self { places, mask: 0, vacant: ptr::null_mut(), room: 0, capacity: 0 };
        slab.resize(capacity);
        slab
    }

    /// Makes an empty slab as large as this. A place keeps its count of uses, so that a completion from before matches nothing; places beyond
    /// the capacity therefore stay.
    pub(super) fn resize(&mut self, capacity: u32) {
        debug_assert_eq!(self.room, self.capacity);
        let capacity = capacity.min(Self::MAX);
        // SAFETY: there is one at least.
        let first = unsafe { (*self.places.as_ptr()).wr_id };
        self.places = Place::table(first, capacity.next_power_of_two(), Some(&self.places));
        self.mask = (self.places.len() - 1) * size_of::<Place>();
        self.vacant = match capacity.checked_sub(1) {
            None => ptr::null_mut(),
            Some(last) => {
                // SAFETY: there are as many at least.
                unsafe { (*self.places.as_ptr().add(last as usize)).next = ptr::null_mut() };
                self.places.as_ptr()
            }
        };
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
        if self.vacant.is_null() {
            return None;
        }
        Some(NextRecv { place: self.vacant, slab: self })
    }

    /// Takes out the receive with this `wr_id`. `None` for what is none of the slab's receives in flight.
    #[inline]
    pub(super) fn retire(&mut self, wr_id: WrId) -> Option<Entry> {
        // SAFETY: cut to the table. Nobody was told the number of a vacant place: so the receive is in flight.
        unsafe {
            let place = self.places.as_ptr().byte_add(wr_id.offset::<Place>(self.mask));
            if (*place).wr_id != wr_id {
                return None;
            }
            let entry = Place::take(place);
            (*place).next = self.vacant;
            self.vacant = place;
            self.room += 1;
            Some(entry)
        }
    }

    /// Empties the slab.
    pub(super) fn drain(&mut self) -> Vec<Entry> {
        let mut in_flight = vec![true; self.capacity as usize];
        let mut vacant = self.vacant;
        while !vacant.is_null() {
            // SAFETY: the list of the vacant ones leads from place to place.
            unsafe {
                in_flight[(*vacant).wr_id.place()] = false;
                vacant = (*vacant).next;
            }
        }
        let places = in_flight.into_iter().enumerate().filter_map(|(index, in_flight)| in_flight.then_some(index));
        places
            .filter_map(|index| {
                // SAFETY: one of the places.
                let wr_id = unsafe { (*self.places.as_ptr().add(index)).wr_id };
                self.retire(wr_id)
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
