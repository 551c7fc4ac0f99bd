//! What is in flight: a ring for sends here, a slab for receives in `slab`.
//!
//! They own the buffers that the device may touch, and decide by number alone whether a completion is one of theirs. The number is the whole
//! `wr_id`, so that one comparison asks for queue, direction and request; cut to the size of the table it always leads to a place in it.

#![allow(unsafe_code)]

use std::fmt;

use super::kept::InFlight;
use crate::fixed::Fixed;
use crate::identity::{Direction, QueueId, WrId};

/// A request that is done.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) payload: InFlight,
    pub(super) tag: u64,
}

/// One step of the table's bits.
pub(super) const STEP: u64 = 1 << WrId::TABLE_SHIFT;

/// Where the place of a `wr_id` lies in a table of places of this size, in bytes, before it is cut to the table.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "it is cut to the table")]
pub(super) fn offset<Place>(wr_id: u64) -> usize {
    const { assert!(size_of::<Place>().is_power_of_two()) };
    (wr_id >> (WrId::TABLE_SHIFT - size_of::<Place>().trailing_zeros())) as usize
}

/// What cuts an offset to a table of so many places, a power of two.
pub(super) fn mask_of<Place>(count: usize) -> usize {
    (count - 1) * size_of::<Place>()
}

/// A place of the send queue's table. What it keeps is owned while a request is in flight there.
#[derive(Clone, Copy)]
struct Place {
    payload: *mut (),
    tag: u64,
}

/// The send queue's table. Send completions come in order, so one retires every entry up to it.
pub(super) struct SendRing {
    /// A power of two of them.
    places: Fixed<Place>,
    mask: usize,
    /// How many requests may be in flight, times [`STEP`]; as many places at most.
    span: u64,
    /// The `wr_id` of the next request.
    head: u64,
    /// The `wr_id` of the oldest request in flight.
    tail: u64,
}

// SAFETY: what the places keep is Send, and owned.
unsafe impl Send for SendRing {}
// SAFETY: through a shared ring numbers are read only.
unsafe impl Sync for SendRing {}

/// The place of the next request.
pub(super) struct NextSend<'ring> {
    ring: &'ring mut SendRing,
    wr_id: u64,
}

impl NextSend<'_> {
    #[inline]
    pub(super) fn wr_id(&self) -> WrId {
        WrId(self.wr_id)
    }

    /// Takes the request in.
    #[inline]
    pub(super) fn fill(self, payload: InFlight, tag: u64) {
        let place = self.ring.place(self.wr_id);
        // SAFETY: a place of the ring, with nothing in it: the request is not in flight yet.
        unsafe { place.write(Place { payload: payload.into_raw(), tag }) };
        self.ring.head = self.wr_id.wrapping_add(STEP);
    }
}

impl SendRing {
    /// The most requests a ring can tell apart: half the numbers that fit into a `wr_id`.
    pub(super) const MAX: u32 = 1 << 30;

    pub(super) fn new(queue: QueueId, capacity: u32) -> Self {
        let capacity = capacity.min(Self::MAX);
        let count = capacity.next_power_of_two() as usize;
        let vacant = Place { payload: InFlight::NOTHING.into_raw(), tag: 0 };
        let first = WrId::first(queue, Direction::Send).0;
        let span = u64::from(capacity) * STEP;
        Self { places: Fixed::of(vacant, count), mask: mask_of::<Place>(count), span, head: first, tail: first }
    }

    /// Makes an empty ring as long as this. The numbers go on, so that a completion from before matches nothing.
    pub(super) fn resize(&mut self, capacity: u32) {
        debug_assert_eq!(self.head, self.tail);
        let capacity = capacity.min(Self::MAX);
        let count = capacity.next_power_of_two() as usize;
        self.places = Fixed::of(Place { payload: InFlight::NOTHING.into_raw(), tag: 0 }, count);
        self.mask = mask_of::<Place>(count);
        self.span = u64::from(capacity) * STEP;
    }

    /// Where the request with this `wr_id` has its place.
    #[inline]
    fn place(&self, wr_id: u64) -> *mut Place {
        // SAFETY: cut to the table.
        unsafe { self.places.as_ptr().byte_add(offset::<Place>(wr_id) & self.mask) }
    }

    #[inline]
    fn in_flight(&self) -> u64 {
        self.head.wrapping_sub(self.tail)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "at most 2^30")]
    pub(super) fn room(&self) -> u32 {
        ((self.span - self.in_flight()) / STEP) as u32
    }

    #[allow(clippy::cast_possible_truncation, reason = "at most 2^30")]
    pub(super) fn capacity(&self) -> u32 {
        (self.span / STEP) as u32
    }

    /// The place of the next request, if there is room.
    #[inline]
    pub(super) fn next(&mut self) -> Option<NextSend<'_>> {
        if self.in_flight() >= self.span {
            return None;
        }
        Some(NextSend { wr_id: self.head, ring: self })
    }

    /// How far a batch can go that begins now and has so many requests at most, while nothing is retired.
    pub(super) fn limit(&self, max: usize) -> Limit {
        let room = u64::from(self.room()).min(max as u64);
        Limit { start: self.head, end: self.head.wrapping_add(room * STEP) }
    }

    /// As [`next`](Self::next), in a batch.
    #[inline]
    pub(super) fn next_within(&mut self, limit: &Limit) -> Option<NextSend<'_>> {
        if self.head == limit.end {
            return None;
        }
        Some(NextSend { wr_id: self.head, ring: self })
    }

    /// How many requests were taken in since the batch began.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "at most 2^30")]
    pub(super) fn count_since(&self, limit: &Limit) -> usize {
        (self.head.wrapping_sub(limit.start) / STEP) as usize
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
        self.head = self.head.wrapping_sub(STEP);
        // SAFETY: it was in flight, and is not any more.
        Some(unsafe { self.take(self.head) })
    }

    /// Takes out the request with this `wr_id`, if it is the oldest in flight.
    #[inline]
    pub(super) fn retire_oldest(&mut self, wr_id: WrId) -> Option<Entry> {
        if wr_id.0 != self.tail || self.tail == self.head {
            return None;
        }
        self.tail = wr_id.0.wrapping_add(STEP);
        // SAFETY: it was in flight, and is not any more.
        Some(unsafe { self.take(wr_id.0) })
    }

    /// Takes out everything older than the request with this `wr_id`, so that it is the oldest; the buffers go back to their pools. `false`
    /// for what is none of the ring's requests in flight.
    #[inline(never)]
    pub(super) fn retire_older(&mut self, wr_id: WrId) -> bool {
        // Rotated, a difference in queue or direction is above every number of requests.
        let older = wr_id.0.wrapping_sub(self.tail).rotate_right(WrId::TABLE_SHIFT);
        if older >= self.in_flight() / STEP {
            return false;
        }
        for _ in 0..older {
            let oldest = self.tail;
            self.tail = oldest.wrapping_add(STEP);
            // SAFETY: it was in flight, and is not any more.
            drop(unsafe { self.take(oldest) });
        }
        true
    }

    /// Empties the ring, oldest first.
    pub(super) fn drain(&mut self) -> Vec<Entry> {
        let mut all = Vec::new();
        while let Some(entry) = self.retire_oldest(WrId(self.tail)) {
            all.push(entry);
        }
        all
    }

    /// Goes on as if so many requests had been posted and retired.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, requests: u64) {
        self.head = self.head.wrapping_add(requests.wrapping_mul(STEP));
        self.tail = self.head;
    }

    /// # Safety
    /// The request was taken in, and is taken out once.
    #[inline]
    unsafe fn take(&self, wr_id: u64) -> Entry {
        // SAFETY: a place of the ring, with what the request left there.
        unsafe {
            let Place { payload, tag } = self.place(wr_id).read();
            Entry { payload: InFlight::from_raw(payload), tag }
        }
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

/// Where a batch began, and how far it can go.
#[derive(Debug)]
pub(super) struct Limit {
    start: u64,
    end: u64,
}
