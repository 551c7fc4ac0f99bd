//! What is in flight on a queue whose requests complete in order: the send queue, and a queue
//! pair's own receive queue.

#![allow(unsafe_code)]

use std::fmt;

use super::batched::Batched;
use super::kept::InFlight;
use super::slot::{Entry, Next, Place, Table};
use crate::fixed::Fixed;
use crate::identity::{QueueId, Requests, WrId};

/// The table of such a queue.
pub(crate) struct Ring {
    places: Fixed<Place>,
    /// How many of them are used: one more than requests can be in flight.
    count: usize,
    /// The place of the next request.
    head: *mut Place,
    /// The place of the oldest request in flight; the head, if none is.
    tail: *mut Place,
    /// Up to where a batch can go, while there is one.
    end: *mut Place,
    /// How many places from the tail to the head have nothing in flight, as a later receive
    /// completed before an older one.
    holes: usize,
}

// SAFETY: what the places keep is Send, and owned.
unsafe impl Send for Ring {}
// SAFETY: through a shared ring numbers are read only.
unsafe impl Sync for Ring {}

// SAFETY: the head is vacant, as there is one place more than requests can be in flight.
unsafe impl Table for Ring {
    #[inline]
    fn next_place(&mut self) -> Option<*mut Place> {
        // SAFETY: a place of the ring.
        if unsafe { (*self.head).next } == self.tail && !self.skip_holes() {
            return None;
        }
        Some(self.head)
    }

    #[inline]
    unsafe fn advance(&mut self, place: *mut Place) {
        // SAFETY: a place of the ring.
        self.head = unsafe { (*place).next };
    }

    unsafe fn retreat(&mut self, place: *mut Place) {
        self.head = place;
    }

    fn take_back(&mut self, wr_id: WrId) -> Option<Entry> {
        self.pop().inspect(|_| {
            // SAFETY: a place of the ring.
            debug_assert_eq!(unsafe { Place::number(self.head) }.place(), wr_id.place());
        })
    }

    #[allow(clippy::cast_possible_truncation, reason = "fewer than 2^20")]
    fn capacity(&self) -> u32 {
        (self.count - 1) as u32
    }
}

impl Ring {
    /// The most requests a ring can tell apart.
    pub(crate) const MAX: u32 = (1 << WrId::PLACE_BITS) - 1;

    pub(crate) fn new(queue: QueueId, requests: Requests, capacity: u32) -> Self {
        let count = capacity.min(Self::MAX) + 1;
        let places = Place::table(WrId::first(queue, requests), count, None);
        let first = places.as_ptr();
        Self {
            places,
            count: count as usize,
            head: first,
            tail: first,
            end: first,
            holes: 0,
        }
    }

    /// Makes an empty ring as long as this. The numbers of the places go on, those beyond the
    /// length included, so that a completion from before matches nothing.
    pub(crate) fn resize(&mut self, capacity: u32) {
        debug_assert_eq!(self.in_flight(), 0);
        self.skip_holes();
        let count = capacity.min(Self::MAX) + 1;
        // SAFETY: there is one at least.
        let first = unsafe { Place::number(self.places.as_ptr()) };
        self.places = Place::table(first, count, Some(&self.places));
        self.count = count as usize;
        (self.head, self.tail) = (self.places.as_ptr(), self.places.as_ptr());
    }

    /// How far it is to this place from that one.
    fn distance(&self, from: *mut Place, to: *mut Place) -> usize {
        // SAFETY: both are of the ring.
        let forward = unsafe { to.offset_from(from) };
        usize::try_from(forward).unwrap_or(self.count - forward.unsigned_abs())
    }

    fn in_flight(&self) -> usize {
        self.distance(self.tail, self.head) - self.holes
    }

    #[allow(clippy::cast_possible_truncation, reason = "fewer than 2^20")]
    pub(crate) fn room(&self) -> u32 {
        self.capacity() - self.in_flight() as u32
    }

    /// Whose it is.
    #[inline]
    pub(crate) fn queue(&self) -> QueueId {
        // SAFETY: a place of the ring, which is vacant; every number says whose it is.
        unsafe { Place::next_number(self.head) }.queue()
    }

    /// Begins a batch of so many requests at most, as far as there is room. There are no holes
    /// among sends.
    #[inline]
    pub(crate) fn begin(&mut self, max: usize) -> Batched {
        let many = max.min(self.count - 1 - self.distance(self.tail, self.head));
        let first = self.places.as_ptr();
        // SAFETY: all are of the ring, and so is a place that lies less than its length after the
        // head, counted from the first again.
        self.end = unsafe {
            let beyond = first.add(self.count).offset_from(self.head).unsigned_abs();
            if many < beyond {
                self.head.add(many)
            } else {
                first.add(many - beyond)
            }
        };
        Batched { next: self.head }
    }

    /// Whether the batch that was begun can take no more.
    #[inline]
    pub(crate) fn is_full(&self, batched: Batched) -> bool {
        batched.next == self.end
    }

    /// Whether a batch has requests.
    #[inline]
    pub(crate) fn has_any(&self, batched: Batched) -> bool {
        batched.next != self.head
    }

    /// How many requests a batch has.
    pub(crate) fn count(&self, batched: Batched) -> usize {
        self.distance(self.head, batched.next)
    }

    /// Takes in the requests of a batch.
    ///
    /// # Safety
    /// Since it was [begun](Self::begin), nothing else was asked of the ring but numbers.
    #[inline]
    pub(crate) unsafe fn take_in(&mut self, batched: Batched) {
        self.head = batched.next;
    }

    /// The number of the next request, if there is room.
    pub(crate) fn next_number(&mut self) -> Option<WrId> {
        // SAFETY: the head is vacant.
        self.next_place()
            .map(|place| unsafe { Place::next_number(place) })
    }

    /// Takes in a request that was posted with [that number](Self::next_number).
    pub(crate) fn push(&mut self, payload: InFlight, tag: u64) {
        if let Some(next) = Next::of(self) {
            next.fill(payload, tag);
        }
    }

    /// Takes the newest request out again: it was never posted.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        if self.head == self.tail {
            return None;
        }
        let first = self.places.as_ptr();
        let index = self
            .distance(first, self.head)
            .checked_sub(1)
            .unwrap_or(self.count - 1);
        // SAFETY: the place before the head. Its request was in flight, and is not any more.
        unsafe {
            self.head = first.add(index);
            Some(Place::take_unposted(self.head))
        }
    }

    /// Takes out the request with this `wr_id`, if it is the oldest in flight and keeps nothing
    /// rare.
    #[inline]
    pub(crate) fn retire_oldest(&mut self, wr_id: WrId) -> Option<Entry> {
        let oldest = self.tail;
        // SAFETY: a place of the ring, and in flight if it has that number.
        unsafe {
            if !Place::has_common(oldest, wr_id) {
                return None;
            }
            debug_assert!(oldest != self.head);
            self.tail = (*oldest).next;
            Some(Place::take_common(oldest))
        }
    }

    /// # Safety
    /// There is a request in flight, and the tail is no hole.
    unsafe fn take_oldest(&mut self) -> Entry {
        let oldest = self.tail;
        // SAFETY: it was in flight, and is not any more.
        unsafe {
            self.tail = (*oldest).next;
            Place::take(oldest)
        }
    }

    /// The place of the request with this `wr_id`, and how far that is from the tail, if it is in
    /// flight.
    fn find(&self, wr_id: WrId) -> Option<(*mut Place, usize)> {
        if wr_id.place() >= self.count {
            return None;
        }
        // SAFETY: one of the ring.
        let place = unsafe { self.places.as_ptr().add(wr_id.place()) };
        // SAFETY: as above.
        let is_here = unsafe { Place::number(place) == wr_id && !Place::is_hole(place) };
        let distance = self.distance(self.tail, place);
        (is_here && distance < self.distance(self.tail, self.head)).then_some((place, distance))
    }

    /// Retires a send: takes out the request with this `wr_id`, and everything older before it,
    /// whose buffers go back to their pools. `None` for what is none of the ring's requests in
    /// flight.
    pub(crate) fn retire_send(&mut self, wr_id: WrId) -> Option<Entry> {
        let (_, older) = self.find(wr_id)?;
        for _ in 0..older {
            // SAFETY: as far as the place all are in flight: there are no holes among sends.
            drop(unsafe { self.take_oldest() });
        }
        // SAFETY: it is in flight.
        Some(unsafe { self.take_oldest() }.settled())
    }

    /// Retires a receive: takes out that with this `wr_id`, as it is in flight. No device completes
    /// receives out of order that keeps to IBA 9.5, but buffers of others are not given up
    /// because one does.
    pub(crate) fn retire_receive(&mut self, wr_id: WrId) -> Option<Entry> {
        self.skip_holes();
        let (place, _) = self.find(wr_id)?;
        // SAFETY: it was in flight, and is not any more.
        let entry = unsafe { Place::take(place) };
        // SAFETY: it is vacant now.
        unsafe { Place::leave_hole(place) };
        self.holes += 1;
        self.skip_holes();
        Some(entry.settled())
    }

    /// Makes the holes vacant that nothing older is in flight behind; whether there is room at the
    /// head now.
    #[cold]
    #[inline(never)]
    fn skip_holes(&mut self) -> bool {
        while self.holes > 0 {
            // SAFETY: a place of the ring, and vacant if it is a hole.
            unsafe {
                if !Place::is_hole(self.tail) {
                    break;
                }
                Place::unmark(self.tail);
                self.tail = (*self.tail).next;
            }
            self.holes -= 1;
        }
        // SAFETY: a place of the ring.
        unsafe { (*self.head).next != self.tail }
    }

    /// Empties the ring, oldest first.
    pub(crate) fn drain(&mut self) -> Vec<Entry> {
        let mut all = Vec::new();
        loop {
            self.skip_holes();
            if self.tail == self.head {
                return all;
            }
            // SAFETY: there is one.
            all.push(unsafe { self.take_oldest() });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        drop(self.drain());
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("room", &self.room())
            .field("capacity", &self.capacity())
            .finish()
    }
}
