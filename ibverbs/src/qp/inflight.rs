//! What is in flight: a ring for sends here, a slab for receives in `slab`.
//!
//! They own the buffers that the device may touch, and decide by number alone whether a completion is one of theirs: each place keeps the number of
//! the request in it, so that one comparison asks for queue, direction and request.

#![allow(unsafe_code)]

use std::fmt;

use super::kept::InFlight;
use crate::fixed::Fixed;
use crate::identity::{QueueId, Requests, WrId};

/// A request that is done.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) payload: InFlight,
    pub(super) tag: u64,
}

/// A place of a table.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The number of the request in flight here. While the place is vacant, that of the next one: a number that nobody was told yet.
    pub(super) wr_id: WrId,
    /// What is kept: owned while a request is in flight here.
    payload: *mut (),
    tag: u64,
    /// In the send queue's table the place after this; in that of receives the next vacant one.
    pub(super) next: *mut Place,
}

impl Place {
    /// So many places, each followed by the next in memory, and the last by the first. `first` is a number of the first place. Those of an old table
    /// keep their numbers, and stay, were there more: they are unused then.
    pub(super) fn table(first: WrId, count: u32, old: Option<&Fixed<Self>>) -> Fixed<Self> {
        let payload = InFlight::NOTHING.into_raw();
        let vacant = Self { wr_id: first, payload, tag: 0, next: std::ptr::null_mut() };
        let before = old.map_or(0, Fixed::len);
        let places = Fixed::of(vacant, before.max(count as usize));
        for (index, number) in (0..places.len()).zip(0..) {
            let after = if number + 1 < count { index + 1 } else { 0 };
            // SAFETY: there are as many of the new ones, and `before` of the old ones.
            unsafe {
                let wr_id = match old {
                    Some(old) if index < before => (*old.as_ptr().add(index)).wr_id,
                    _ => first.of_place(number),
                };
                let next = places.as_ptr().add(after);
                places.as_ptr().add(index).write(Self { wr_id, next, ..vacant });
            }
        }
        places
    }

    /// Puts a request in.
    ///
    /// # Safety
    /// A place of a table that nobody else uses, and vacant.
    #[inline]
    pub(super) unsafe fn fill(this: *mut Self, payload: InFlight, tag: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            (*this).payload = payload.into_raw();
            (*this).tag = tag;
        }
    }

    /// Takes the request out.
    ///
    /// # Safety
    /// A place of a table that nobody else uses, with a request in it.
    #[inline]
    pub(super) unsafe fn take(this: *mut Self) -> Entry {
        // SAFETY: the caller's promise: the payload was left here by `fill`, and is taken once, as the place is vacant then.
        unsafe {
            let entry = Entry { payload: InFlight::from_raw((*this).payload), tag: (*this).tag };
            Self::skip(this);
            entry
        }
    }

    /// Makes the number one that nobody was told.
    ///
    /// # Safety
    /// A place of a table that nobody else uses.
    #[inline]
    pub(super) unsafe fn skip(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { WrId::count_use(&raw mut (*this).wr_id) }
    }
}

/// The send queue's table. Send completions come in order, so one retires every entry up to it.
pub(super) struct SendRing {
    places: Fixed<Place>,
    /// How many of them are used: one more than requests can be in flight.
    count: usize,
    /// The place of the next request.
    head: *mut Place,
    /// The place of the oldest request in flight; the head, if none is.
    tail: *mut Place,
}

// SAFETY: what the places keep is Send, and owned.
unsafe impl Send for SendRing {}
// SAFETY: through a shared ring numbers are read only.
unsafe impl Sync for SendRing {}

/// The place of the next request.
pub(super) struct NextSend<'ring> {
    ring: &'ring mut SendRing,
    place: *mut Place,
}

impl NextSend<'_> {
    #[inline]
    pub(super) fn wr_id(&self) -> WrId {
        // SAFETY: a place of the ring.
        unsafe { (*self.place).wr_id }
    }

    /// Takes the request in.
    #[inline]
    pub(super) fn fill(self, payload: InFlight, tag: u64) {
        // SAFETY: a place of the ring, with nothing in it: the request is not in flight yet.
        unsafe {
            Place::fill(self.place, payload, tag);
            self.ring.head = (*self.place).next;
        }
    }

    /// The provider was told the number, and refused the request.
    pub(super) fn refused(self) {
        // SAFETY: a place of the ring.
        unsafe { Place::skip(self.place) }
    }
}

impl SendRing {
    /// The most requests a ring can tell apart.
    pub(super) const MAX: u32 = (1 << WrId::PLACE_BITS) - 1;

    pub(super) fn new(queue: QueueId, capacity: u32) -> Self {
        let count = capacity.min(Self::MAX) + 1;
        let places = Place::table(WrId::first(queue, Requests::Sends), count, None);
        let first = places.as_ptr();
        Self { places, count: count as usize, head: first, tail: first }
    }

    /// Makes an empty ring as long as this. The numbers of the places go on, those beyond the length included, so that a completion from before
    /// matches nothing.
    pub(super) fn resize(&mut self, capacity: u32) {
        debug_assert_eq!(self.head, self.tail);
        let count = capacity.min(Self::MAX) + 1;
        self.places = Place::table(WrId::first(self.queue(), Requests::Sends), count, Some(&self.places));
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
        self.distance(self.tail, self.head)
    }

    #[allow(clippy::cast_possible_truncation, reason = "fewer than 2^20")]
    pub(super) fn room(&self) -> u32 {
        self.capacity() - self.in_flight() as u32
    }

    #[allow(clippy::cast_possible_truncation, reason = "fewer than 2^20")]
    pub(super) fn capacity(&self) -> u32 {
        (self.count - 1) as u32
    }

    /// Whose it is.
    #[inline]
    pub(super) fn queue(&self) -> QueueId {
        // SAFETY: a place of the ring; every number says whose it is.
        unsafe { (*self.head).wr_id }.queue()
    }

    /// The place of the next request, if there is room.
    #[inline]
    pub(super) fn next(&mut self) -> Option<NextSend<'_>> {
        // SAFETY: a place of the ring.
        if unsafe { (*self.head).next } == self.tail {
            return None;
        }
        Some(NextSend { place: self.head, ring: self })
    }

    /// How far a batch can go that begins now and has so many requests at most, while nothing is retired.
    pub(super) fn limit(&self, max: usize) -> Limit {
        let from_head = max.min(self.room() as usize);
        // SAFETY: both are of the ring, and so is a place that lies less than its length after the head, counted from the first again.
        unsafe {
            let first = self.places.as_ptr();
            let index = self.distance(first, self.head) + from_head;
            Limit(first.add(if index < self.count { index } else { index - self.count }))
        }
    }

    /// As [`next`](Self::next), in a batch.
    #[inline]
    pub(super) fn next_within(&mut self, limit: &Limit) -> Option<NextSend<'_>> {
        if self.head == limit.0 {
            return None;
        }
        Some(NextSend { place: self.head, ring: self })
    }

    /// Takes in a request that was posted with the `wr_id` of [`next`](Self::next), whose place was there.
    pub(super) fn push(&mut self, payload: InFlight, tag: u64) {
        if let Some(next) = self.next() {
            next.fill(payload, tag);
        }
    }

    /// Takes the newest request out again: it was never posted.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        if self.head == self.tail {
            return None;
        }
        let first = self.places.as_ptr();
        let index = self.distance(first, self.head).checked_sub(1).unwrap_or(self.count - 1);
        // SAFETY: the place before the head. Its request was in flight, and is not any more.
        unsafe {
            self.head = first.add(index);
            Some(Place::take(self.head))
        }
    }

    /// Takes out the request with this `wr_id`, if it is the oldest in flight.
    #[inline]
    pub(super) fn retire_oldest(&mut self, wr_id: WrId) -> Option<Entry> {
        // SAFETY: a place of the ring. Nobody was told the number of a vacant one: so it is in flight.
        unsafe {
            if (*self.tail).wr_id != wr_id {
                return None;
            }
            debug_assert!(self.tail != self.head);
            Some(self.take_oldest())
        }
    }

    /// # Safety
    /// There is a request in flight.
    #[inline]
    unsafe fn take_oldest(&mut self) -> Entry {
        let oldest = self.tail;
        // SAFETY: it was in flight, and is not any more.
        unsafe {
            self.tail = (*oldest).next;
            Place::take(oldest)
        }
    }

    /// Takes out everything older than the request with this `wr_id`, so that it is the oldest; the buffers go back to their pools. `false`
    /// for what is none of the ring's requests in flight.
    #[inline(never)]
    pub(super) fn retire_older(&mut self, wr_id: WrId) -> bool {
        if wr_id.place() >= self.count {
            return false;
        }
        // SAFETY: one of the ring.
        let place = unsafe { self.places.as_ptr().add(wr_id.place()) };
        // SAFETY: as above.
        let is_here = unsafe { (*place).wr_id } == wr_id;
        if !is_here || self.distance(self.tail, place) >= self.in_flight() {
            return false;
        }
        while self.tail != place {
            // SAFETY: as far as the place all are in flight.
            drop(unsafe { self.take_oldest() });
        }
        true
    }

    /// Empties the ring, oldest first.
    pub(super) fn drain(&mut self) -> Vec<Entry> {
        let mut all = Vec::new();
        while self.tail != self.head {
            // SAFETY: there is one.
            all.push(unsafe { self.take_oldest() });
        }
        all
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        drop(self.drain());
    }
}

impl fmt::Debug for SendRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRing").field("room", &self.room()).field("capacity", &self.capacity()).finish()
    }
}

/// How far a batch can go: up to this place.
#[derive(Debug)]
pub(super) struct Limit(*mut Place);

// SAFETY: the pointer is compared only.
unsafe impl Send for Limit {}
// SAFETY: as above.
unsafe impl Sync for Limit {}
