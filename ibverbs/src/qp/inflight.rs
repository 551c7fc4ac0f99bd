//! What is in flight: a ring for sends, a slab for receives.
//!
//! Plain data structures without a line of `unsafe`: they own the buffers that the device may touch, and decide by number alone
//! whether a completion is one of theirs.

use super::lent::Loan;
use super::window::WindowInFlight;
use crate::identity::WrId;
use crate::mr::{Buf, BufList};

/// What a posted request keeps from being freed.
#[derive(Debug)]
pub enum InFlight {
    /// Nothing: inline data, no data, or memory that the queue pair holds anyway.
    Nothing,
    /// A buffer.
    Buf(Buf),
    /// Several buffers.
    List(BufList),
    /// Memory that a scope borrowed.
    Lent(Loan),
    /// A memory window.
    Window(WindowInFlight),
}

impl InFlight {
    /// What is left when the request is done: a loan has ended, and a binding needs no keeping alive.
    #[inline]
    pub(super) fn settled(self) -> Self {
        match self {
            Self::Lent(_) | Self::Window(WindowInFlight::Bind(_)) => Self::Nothing,
            other => other,
        }
    }

    pub(super) fn into_list(self) -> Option<BufList> {
        match self {
            Self::List(list) => Some(list),
            Self::Nothing | Self::Buf(_) | Self::Lent(_) | Self::Window(_) => None,
        }
    }

    /// All buffers, one by one.
    pub(super) fn into_bufs(self) -> Vec<Buf> {
        match self {
            Self::Nothing | Self::Lent(_) | Self::Window(_) => Vec::new(),
            Self::Buf(buf) => vec![buf],
            Self::List(list) => list.into_bufs(),
        }
    }

    pub(super) fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Buf(buf) => Some(buf),
            Self::Nothing | Self::List(_) | Self::Lent(_) | Self::Window(_) => None,
        }
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) payload: InFlight,
    pub(super) tag: u64,
}

const VACANT: Entry = Entry { payload: InFlight::Nothing, tag: 0 };

/// The send queue's table. Send completions come in order, so one retires every entry up to it.
#[derive(Debug)]
pub(super) struct SendRing {
    entries: Box<[Entry]>,
    capacity: u32,
    /// Sequence number of the next request; the entry is the number modulo the ring.
    head: u32,
    /// Sequence number of the oldest request in flight.
    tail: u32,
}

impl SendRing {
    /// The most requests a ring can tell apart: half the numbers that fit into a `wr_id`.
    pub(super) const MAX: u32 = 1 << 30;

    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity.min(Self::MAX);
        let entries = (0..capacity.next_power_of_two()).map(|_| VACANT).collect();
        Self { entries, capacity, head: 0, tail: 0 }
    }

    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.capacity - self.head.wrapping_sub(self.tail)
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// What the next request pushed will carry in its `wr_id`.
    #[inline]
    pub(super) fn next_number(&self) -> u32 {
        self.head
    }

    /// Takes a request in. The caller has checked that there is room.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        // What was there is vacant: forgetting it says that there is nothing to drop.
        std::mem::forget(std::mem::replace(self.entry(self.head), entry));
        self.head = self.head.wrapping_add(1);
    }

    /// Takes the newest request out again: it was never posted.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        if self.head == self.tail {
            return None;
        }
        self.head = self.head.wrapping_sub(1);
        Some(std::mem::replace(self.entry(self.head), VACANT))
    }

    /// Takes out the request with this number and everything older, whose buffers go back to their pools.
    #[inline]
    pub(super) fn retire(&mut self, number: u32) -> Option<Entry> {
        let older = number.wrapping_sub(self.tail) & WrId::TABLE_MASK;
        if older >= self.head.wrapping_sub(self.tail) {
            return None; // stale, or never posted
        }
        for _ in 0..older {
            let payload = std::mem::replace(&mut self.entry(self.tail).payload, InFlight::Nothing);
            drop(payload);
            self.tail = self.tail.wrapping_add(1);
        }
        let place = self.entry(self.tail);
        let entry = Entry { payload: std::mem::replace(&mut place.payload, InFlight::Nothing), tag: place.tag };
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Empties the ring, oldest first.
    pub(super) fn drain(&mut self) -> Vec<Entry> {
        let mut all = Vec::new();
        while self.tail != self.head {
            all.push(std::mem::replace(self.entry(self.tail), VACANT));
            self.tail = self.tail.wrapping_add(1);
        }
        all
    }

    #[inline]
    fn entry(&mut self, number: u32) -> &mut Entry {
        let mask = self.entries.len() - 1;
        &mut self.entries[number as usize & mask]
    }
}

/// A place of the receive table.
#[derive(Debug)]
struct Slot {
    /// `None` when the slot is free.
    entry: Option<Entry>,
    /// Counts the uses of the slot, so that a completion of an earlier use does not match.
    generation: u32,
    /// The next free slot, while this one is free.
    next_free: u32,
}

/// The receive queue's table: completions may come in any order.
#[derive(Debug)]
pub(super) struct RecvSlab {
    slots: Box<[Slot]>,
    free: u32,
    room: u32,
}

const SLOT_BITS: u32 = 20;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

impl RecvSlab {
    /// The most receives a slab can tell apart.
    pub(super) const MAX: u32 = 1 << SLOT_BITS;

    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity.min(Self::MAX);
        let slots = (0..capacity).map(|index| Slot { entry: None, generation: 0, next_free: index + 1 }).collect();
        Self { slots, free: 0, room: capacity }
    }

    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.room
    }

    #[allow(clippy::cast_possible_truncation, reason = "a slab has at most 2^20 slots")]
    pub(super) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// What the next receive inserted will carry in its `wr_id`; `None` when the slab is full.
    #[inline]
    pub(super) fn next_number(&self) -> Option<u32> {
        let slot = self.slots.get(self.free as usize)?;
        Some((slot.generation << SLOT_BITS | self.free) & WrId::TABLE_MASK)
    }

    /// Takes a receive in, under the number that `next_number` told.
    #[inline]
    pub(super) fn insert(&mut self, entry: Entry) {
        if let Some(slot) = self.slots.get_mut(self.free as usize) {
            slot.entry = Some(entry);
            self.free = slot.next_free;
            self.room -= 1;
        }
    }

    /// Takes out the receive with this number.
    #[inline]
    pub(super) fn retire(&mut self, number: u32) -> Option<Entry> {
        let index = number & SLOT_MASK;
        let slot = self.slots.get_mut(index as usize)?;
        if (slot.generation ^ number >> SLOT_BITS) & (WrId::TABLE_MASK >> SLOT_BITS) != 0 {
            return None; // a completion of an earlier use of the slot
        }
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = self.free;
        self.free = index;
        self.room += 1;
        Some(entry)
    }

    /// Empties the slab.
    pub(super) fn drain(&mut self) -> Vec<Entry> {
        let all = self.slots.iter_mut().filter_map(|slot| slot.entry.take()).collect();
        *self = Self::new(0);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u64) -> Entry {
        Entry { payload: InFlight::Nothing, tag }
    }

    #[test]
    fn one_send_completion_retires_all_before_it() {
        let mut ring = SendRing::new(5);
        for tag in 0..5 {
            ring.push(entry(tag));
        }
        assert_eq!(ring.room(), 0);
        assert_eq!(ring.retire(3).expect("in flight").tag, 3);
        assert_eq!(ring.room(), 4);
        assert!(ring.retire(3).is_none(), "a completion retires once");
        assert!(ring.retire(1).is_none(), "what a later one retired is gone");
        assert!(ring.retire(5).is_none(), "never posted");
        assert_eq!(ring.retire(4).expect("in flight").tag, 4);
    }

    #[test]
    fn a_ring_works_across_the_wrap_of_its_numbers() {
        let mut ring = SendRing::new(3);
        ring.head = u32::MAX - 1;
        ring.tail = ring.head;
        for tag in 0..20 {
            let number = ring.next_number() & WrId::TABLE_MASK;
            ring.push(entry(tag));
            assert_eq!(ring.retire(number).expect("in flight").tag, tag);
            assert_eq!(ring.room(), 3);
        }
    }

    #[test]
    fn an_aborted_send_leaves_the_ring_as_it_was() {
        let mut ring = SendRing::new(2);
        ring.push(entry(1));
        ring.push(entry(2));
        assert_eq!(ring.pop().expect("newest").tag, 2);
        assert_eq!(ring.retire(0).expect("oldest").tag, 1);
        assert!(ring.pop().is_none());
    }

    #[test]
    fn receives_retire_in_any_order_and_once() {
        let mut slab = RecvSlab::new(3);
        let numbers: Vec<u32> = (0..3)
            .map(|tag| {
                let number = slab.next_number().expect("room");
                slab.insert(entry(tag));
                number
            })
            .collect();
        assert_eq!(slab.next_number(), None);
        assert_eq!(slab.retire(numbers[1]).expect("posted").tag, 1);
        assert!(slab.retire(numbers[1]).is_none());
        let again = slab.next_number().expect("one is free");
        assert_ne!(again, numbers[1], "the generation tells uses of a slot apart");
        slab.insert(entry(9));
        assert!(slab.retire(numbers[1]).is_none(), "stale");
        assert_eq!(slab.retire(again).expect("posted").tag, 9);
        assert_eq!(slab.drain().len(), 2);
    }
}
