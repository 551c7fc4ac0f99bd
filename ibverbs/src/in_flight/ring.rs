//! The table of a queue whose requests complete in order, or nearly so: a send queue, or the
//! receive queue of a queue pair.

use std::fmt;

use super::request::Request;
use super::slot::{RequestTable, Slot, Vacant};
use crate::identity::QueueId;
use crate::wr_id::{RequestKind, WrId};

/// The conclusion that a completion permits about the earlier requests of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionOrder {
    /// All of them have completed too. Unsignaled ones have no completions of their own.
    InOrder,
    /// Nothing. Every request has a completion of its own.
    Any,
}

/// A ring of slots, from the oldest request in flight to the newest.
pub(crate) struct Ring {
    queue: QueueId,
    kind: RequestKind,
    order: CompletionOrder,
    slots: Slots,
    /// Slots of a ring that was made shorter, kept for their generations.
    unused: Vec<Slot>,
    /// Index of the slot for the next request, or the number of slots, which stands for index 0.
    /// The slot is vacant unless the ring is full.
    next: usize,
    /// Index of the oldest request in flight, or of the next request if none is in flight. The
    /// number of slots stands for index 0.
    oldest: usize,
    /// Number of vacant slots from the oldest request to the newest: requests that completed
    /// before an older one. They can be used again when the older one has retired.
    holes: usize,
}

impl RequestTable for Ring {
    #[inline]
    fn vacant(&mut self) -> Option<Vacant<'_>> {
        let slot = self.slots.at(&mut self.next)?;
        if !slot.is_vacant() {
            return None;
        }
        Some(Vacant::new(slot, &mut self.next))
    }

    fn take_back(&mut self, wr_id: WrId) -> Option<Request> {
        let request = self.pop();
        debug_assert_eq!(self.next, wr_id.slot());
        request
    }

    fn capacity(&self) -> u32 {
        u32::try_from(self.slots.0.len()).unwrap_or(u32::MAX)
    }
}

impl Ring {
    /// Maximum number of requests in a ring.
    pub(crate) const MAX: u32 = WrId::MAX_SLOTS;

    pub(crate) fn new(
        queue: QueueId,
        kind: RequestKind,
        order: CompletionOrder,
        capacity: u32,
    ) -> Self {
        let mut ring = Self {
            queue,
            kind,
            order,
            slots: Slots(Vec::new()),
            unused: Vec::new(),
            next: 0,
            oldest: 0,
            holes: 0,
        };
        ring.resize(capacity);
        ring
    }

    /// Changes the capacity of an empty ring. All slots keep their generations, so earlier
    /// completions still match nothing.
    pub(crate) fn resize(&mut self, capacity: u32) {
        debug_assert!(self.is_empty());
        let capacity = capacity.min(Self::MAX);
        self.slots.0.append(&mut self.unused);
        let slots = (0..capacity).map(|slot| Slot::new(WrId::new(self.queue, self.kind, slot)));
        self.slots.0.extend(slots.skip(self.slots.0.len()));
        self.unused = self.slots.0.split_off(capacity as usize);
        (self.next, self.oldest) = (0, 0);
    }

    /// Returns the slot of the oldest request in flight. It is vacant if none is in flight.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn oldest(&mut self) -> Option<&mut Slot> {
        self.slots.at(&mut self.oldest)
    }

    /// Returns `true` if no request is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots_free() == self.slots.0.len()
    }

    /// Returns the number of requests that can be posted.
    pub(crate) fn slots_free(&self) -> usize {
        let len = self.slots.0.len();
        let oldest = if self.oldest == len { 0 } else { self.oldest };
        let is_empty = self.slots.0.get(oldest).is_none_or(Slot::is_vacant);
        match oldest.checked_sub(self.next) {
            _ if is_empty => len,
            Some(vacant) => vacant,
            None => len - (self.next - oldest),
        }
    }

    /// Removes the newest request, which was not posted after all.
    pub(crate) fn pop(&mut self) -> Option<Request> {
        let newest = self
            .next
            .checked_sub(1)
            .or(self.slots.0.len().checked_sub(1))?;
        let request = self.slots.0[newest].take_not_posted()?;
        self.next = newest;
        Some(request)
    }

    /// Retires the request with this `wr_id`. If requests complete in order, all older ones retire
    /// with it, and their buffers return to their pools. Otherwise the older ones stay in flight.
    ///
    /// Returns `None` if no such request is in flight.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) fn retire(&mut self, wr_id: WrId) -> Option<Request> {
        let Some(request) = self.retire_oldest(wr_id) else {
            return self.retire_later(wr_id);
        };
        if self.holes > 0 {
            self.skip_holes();
        }
        Some(request)
    }

    /// Retires a request that is not the oldest.
    #[cold]
    #[inline(never)]
    fn retire_later(&mut self, wr_id: WrId) -> Option<Request> {
        if !self.slots.0.get(wr_id.slot())?.holds(wr_id) {
            return None;
        }
        match self.order {
            CompletionOrder::InOrder => {
                while self.oldest()?.wr_id != wr_id {
                    drop(self.take_oldest());
                }
                self.retire_oldest(wr_id)
            }
            CompletionOrder::Any => {
                self.holes += 1;
                self.slots.0[wr_id.slot()].take(wr_id)
            }
        }
    }

    /// Retires the request with this `wr_id` if it is the oldest.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn retire_oldest(&mut self, wr_id: WrId) -> Option<Request> {
        let request = self.oldest()?.take(wr_id)?;
        self.oldest += 1;
        Some(request)
    }

    /// Removes the oldest request.
    fn take_oldest(&mut self) -> Option<Request> {
        let wr_id = self.oldest()?.wr_id;
        self.retire_oldest(wr_id)
    }

    /// Advances the oldest request beyond holes.
    #[cold]
    #[inline(never)]
    fn skip_holes(&mut self) {
        while self.holes > 0 && self.oldest().is_some_and(|slot| slot.is_vacant()) {
            self.oldest += 1;
            self.holes -= 1;
        }
    }

    /// Removes all requests, oldest first.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        while let Some(request) = self.take_oldest() {
            requests.push(request);
            self.skip_holes();
        }
        requests
    }
}

/// The slots of a ring.
struct Slots(Vec<Slot>);

impl Slots {
    /// Returns the slot at this index. The number of slots stands for index 0.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn at(&mut self, index: &mut usize) -> Option<&mut Slot> {
        if *index >= self.0.len() {
            return self.first(index);
        }
        Some(&mut self.0[*index])
    }

    /// Sets the index to 0 and returns its slot.
    #[cold]
    #[inline(never)]
    fn first(&mut self, index: &mut usize) -> Option<&mut Slot> {
        *index = 0;
        self.0.first_mut()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("slots_free", &self.slots_free())
            .field("capacity", &self.slots.0.len())
            .finish()
    }
}
