//! What is in flight on a shared receive queue: a slab, as its receives complete in any order.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr;

use super::slot::{Entry, Place, Table};
use crate::fixed::Fixed;
use crate::identity::{QueueId, Requests, WrId};

/// The table of such a queue.
pub(crate) struct RecvSlab {
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

// SAFETY: the list of the vacant ones has none that is in flight.
unsafe impl Table for RecvSlab {
    #[inline]
    fn next_place(&mut self) -> Option<*mut Place> {
        (!self.vacant.is_null()).then_some(self.vacant)
    }

    #[inline]
    unsafe fn advance(&mut self, place: *mut Place) {
        // SAFETY: a place of the slab.
        self.vacant = unsafe { (*place).next };
        self.room -= 1;
    }

    unsafe fn retreat(&mut self, place: *mut Place) {
        // SAFETY: a place of the slab that is not in flight.
        unsafe { self.vacate(place) }
    }

    fn take_back(&mut self, wr_id: WrId) -> Option<Entry> {
        self.retire(wr_id)
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }
}

impl RecvSlab {
    /// The most receives a slab can tell apart.
    pub(crate) const MAX: u32 = 1 << WrId::PLACE_BITS;

    pub(crate) fn new(queue: QueueId, requests: Requests, capacity: u32) -> Self {
        let capacity = capacity.min(Self::MAX);
        let places = Place::table(
            WrId::first(queue, requests),
            capacity.next_power_of_two(),
            None,
        );
        let mask = (places.len() - 1) * size_of::<Place>();
        let mut vacant = ptr::null_mut();
        if let Some(last) = capacity.checked_sub(1) {
            vacant = places.as_ptr();
            // SAFETY: there are as many at least.
            unsafe { (*vacant.add(last as usize)).next = ptr::null_mut() };
        }
        Self {
            places,
            mask,
            vacant,
            room: capacity,
            capacity,
        }
    }

    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// Takes out the receive with this `wr_id`. `None` for what is none of the slab's receives in
    /// flight.
    #[inline]
    pub(crate) fn retire(&mut self, wr_id: WrId) -> Option<Entry> {
        // SAFETY: cut to the table, and in flight if it has that number.
        unsafe {
            let place = self
                .places
                .as_ptr()
                .byte_add(wr_id.offset::<Place>(self.mask));
            let entry = if Place::has_common(place, wr_id) {
                Place::take_common(place)
            } else if Place::number(place) == wr_id {
                // Nobody was told the number of a vacant place: it is marked, and in flight.
                Place::take(place).settled()
            } else {
                return None;
            };
            self.vacate(place);
            Some(entry)
        }
    }

    /// # Safety
    /// A place of the slab, whose request was taken out.
    #[inline]
    unsafe fn vacate(&mut self, place: *mut Place) {
        // SAFETY: the caller's promise.
        unsafe { (*place).next = self.vacant };
        self.vacant = place;
        self.room += 1;
    }

    /// Empties the slab.
    pub(crate) fn drain(&mut self) -> Vec<Entry> {
        let mut in_flight = vec![true; self.capacity as usize];
        let mut vacant = self.vacant;
        while !vacant.is_null() {
            // SAFETY: the list of the vacant ones leads from place to place.
            unsafe {
                in_flight[Place::number(vacant).place()] = false;
                vacant = (*vacant).next;
            }
        }
        let places = in_flight
            .into_iter()
            .enumerate()
            .filter_map(|(index, in_flight)| in_flight.then_some(index));
        places
            .map(|index| {
                // SAFETY: one of the places, and in flight.
                unsafe {
                    let place = self.places.as_ptr().add(index);
                    let entry = Place::take(place);
                    self.vacate(place);
                    entry
                }
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
        f.debug_struct("RecvSlab")
            .field("room", &self.room)
            .field("capacity", &self.capacity)
            .finish()
    }
}
