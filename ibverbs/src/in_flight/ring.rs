//! The table of a queue whose requests complete in order, or nearly so: a send queue, or the
//! receive queue of a queue pair.

use std::fmt;

use super::request::Request;
use super::slot::{Slot, Vacant};
use crate::identity::QueueId;
use crate::wr_id::{RequestKind, WrId};

/// The conclusion that a completion permits about the earlier requests of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionOrder {
    /// All of them have completed too. Unsignaled ones have no completions of their own.
    InOrder,
    /// The unsignaled ones have completed too. Each signaled one has a completion of its own.
    Unsignaled,
    /// Nothing. Every request has a completion of its own.
    Any,
}

/// A ring of slots, from the oldest request in flight to the newest.
pub(crate) struct Ring {
    queue: QueueId,
    kind: RequestKind,
    order: CompletionOrder,
    slots: Vec<Slot>,
    /// Slots of a ring that was made shorter, kept for their generations.
    unused: Vec<Slot>,
    /// Values of failed requests whose memory the device may still access, oldest first.
    kept: Vec<Request>,
    /// `true` if a request without a value has failed in this way.
    has_failed_unowned: bool,
    /// Index of the slot for the next request, in `0..=len`; `len` means that the wrap to 0 is
    /// pending. The slot is vacant unless the ring is full.
    next: usize,
    /// Index of the oldest request in flight or of a hole before it, or of the next request if none
    /// is in flight. In `0..=len`, like `next`.
    oldest: usize,
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
            slots: Vec::new(),
            unused: Vec::new(),
            kept: Vec::new(),
            has_failed_unowned: false,
            next: 0,
            oldest: 0,
        };
        ring.resize(capacity);
        ring
    }

    /// Changes the capacity of an empty ring. All slots keep their generations, so earlier
    /// completions still match nothing.
    pub(crate) fn resize(&mut self, capacity: u32) {
        debug_assert!(self.is_empty());
        self.oldest(); // closes the holes
        let capacity = capacity.min(Self::MAX);
        self.slots.append(&mut self.unused);
        let slots = (0..capacity).map(|slot| Slot::new(WrId::new(self.queue, self.kind, slot)));
        self.slots.extend(slots.skip(self.slots.len()));
        self.unused = self.slots.split_off(capacity as usize);
        (self.next, self.oldest) = (0, 0);
    }

    /// Returns the slot of the next request, or `None` if the table is full.
    #[inline]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_>> {
        while !self.slots.get(self.next).is_some_and(Slot::is_vacant) {
            if !self.make_room() {
                return None;
            }
        }
        Some(Vacant::new(self.slots.get_mut(self.next)?, &mut self.next))
    }

    /// Removes the newest request, which has this `wr_id` and was not posted after all.
    pub(crate) fn take_back(&mut self, wr_id: WrId) -> Option<Request> {
        let request = self.pop();
        debug_assert_eq!(self.next, wr_id.slot());
        request
    }

    /// Returns the number of requests that can be in flight.
    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Returns `true` if no request is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots_free() == self.slots.len()
    }

    /// Returns the number of requests that can be posted.
    pub(crate) fn slots_free(&self) -> usize {
        let slots = &self.slots;
        let wrapped = |index| if index < slots.len() { index } else { 0 };
        let mut oldest = wrapped(self.oldest);
        while slots.get(oldest).is_some_and(Slot::is_hole) {
            oldest = wrapped(oldest + 1);
        }
        let is_empty = slots.get(oldest).is_none_or(Slot::is_vacant);
        match oldest.checked_sub(self.next) {
            _ if is_empty => slots.len(),
            Some(vacant) => vacant,
            None => slots.len() - (self.next - oldest),
        }
    }

    /// Removes the newest request, which was not posted after all.
    pub(crate) fn pop(&mut self) -> Option<Request> {
        let newest = self
            .next
            .checked_sub(1)
            .or(self.slots.len().checked_sub(1))?;
        let request = self.slots[newest].take_not_posted()?;
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
        match self.retire_oldest(wr_id) {
            Some(request) => Some(request),
            None => self.retire_later(wr_id),
        }
    }

    /// Retires the request with this `wr_id` if it is at the index `oldest`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn retire_oldest(&mut self, wr_id: WrId) -> Option<Request> {
        let slot = if self.oldest < self.slots.len() {
            &mut self.slots[self.oldest]
        } else {
            self.wrap_oldest()?
        };
        let request = slot.take(wr_id)?;
        self.oldest += 1;
        Some(request)
    }

    /// Sets `oldest` to the first slot and returns it.
    #[cold]
    #[inline(never)]
    fn wrap_oldest(&mut self) -> Option<&mut Slot> {
        self.oldest = 0;
        self.slots.first_mut()
    }

    /// Retires a request that is not at the index `oldest`.
    #[cold]
    #[inline(never)]
    fn retire_later(&mut self, wr_id: WrId) -> Option<Request> {
        if let Some(wr_id) = wr_id.without_failure() {
            return self.retire_failed(wr_id);
        }
        if !self.slots.get(wr_id.slot())?.holds(wr_id) {
            return None;
        }
        match self.order {
            CompletionOrder::InOrder => {
                while self.oldest()?.wr_id != wr_id {
                    drop(self.take_oldest());
                }
            }
            CompletionOrder::Unsignaled => self.retire_unsignaled_before(wr_id.slot()),
            CompletionOrder::Any => {}
        }
        if self.oldest()?.wr_id == wr_id {
            return self.retire_oldest(wr_id);
        }
        let slot = &mut self.slots[wr_id.slot()];
        let request = slot.take(wr_id);
        slot.make_hole();
        request
    }

    /// Retires a request that failed, although the device may still access its memory: its value,
    /// and those of the requests that retire with it, are kept.
    fn retire_failed(&mut self, wr_id: WrId) -> Option<Request> {
        let last = wr_id.slot();
        if !self.slots.get(last)?.holds(wr_id) {
            return None;
        }
        let mut index = last;
        if self.order == CompletionOrder::InOrder {
            self.oldest(); // closes the holes
            index = self.oldest;
        }
        loop {
            match self.slots[index].detach() {
                Some(request) => self.kept.push(request),
                None => self.has_failed_unowned = true,
            }
            if index == last {
                return self.retire(wr_id);
            }
            index = (index + 1) % self.slots.len();
        }
    }

    /// See [`RequestTable::holds`](super::RequestTable::holds).
    pub(crate) fn holds(&self, wr_id: WrId) -> bool {
        let slot = self.slots.get(wr_id.slot());
        slot.is_some_and(|slot| slot.holds(wr_id))
    }

    /// Returns `true` if a request that uses borrowed memory is in flight, or has failed and its
    /// loan is kept.
    pub(crate) fn has_lent(&self) -> bool {
        self.slots.iter().any(Slot::is_lent) || self.kept.iter().any(Request::is_lent)
    }

    /// See [`RequestTable::unowned`](super::RequestTable::unowned).
    pub(crate) fn unowned(&self, found: &mut Vec<WrId>) {
        found.extend(self.slots.iter().filter_map(Slot::unowned));
    }

    /// See [`RequestTable::has_failed_unowned`](super::RequestTable::has_failed_unowned).
    pub(crate) fn has_failed_unowned(&self) -> bool {
        self.has_failed_unowned
    }

    /// Returns `true` if no request is in flight, and no value of a failed one is kept.
    pub(crate) fn is_done(&self) -> bool {
        self.is_empty() && self.kept.is_empty()
    }

    /// Retires the unsignaled requests that are older than the one in flight at `index`.
    fn retire_unsignaled_before(&mut self, mut index: usize) {
        self.oldest(); // closes the holes
        while index != self.oldest {
            index = index.checked_sub(1).unwrap_or(self.slots.len() - 1);
            let slot = &mut self.slots[index];
            if slot.is_hole() {
                return; // the completion that left it retired all unsignaled ones before
            }
            if slot.is_unsignaled() {
                slot.take(slot.wr_id);
                slot.make_hole();
            }
        }
    }

    /// Closes the holes before the oldest request in flight and returns its slot, which is vacant
    /// if none is in flight.
    fn oldest(&mut self) -> Option<&Slot> {
        loop {
            if self.oldest == self.slots.len() {
                self.oldest = 0;
            }
            if !self.slots.get_mut(self.oldest)?.close_hole() {
                return self.slots.get(self.oldest);
            }
            self.oldest += 1;
        }
    }

    /// Removes the oldest request.
    fn take_oldest(&mut self) -> Option<Request> {
        let wr_id = self.oldest()?.wr_id;
        self.retire_oldest(wr_id)
    }

    /// Makes the slot of the next request vacant if it is a hole before the oldest request, or
    /// continues at the first slot. Returns `false` if the ring is full.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self) -> bool {
        self.oldest();
        if self.next == self.slots.len() {
            self.next = 0;
        }
        self.slots.get(self.next).is_some_and(Slot::is_vacant)
    }

    /// Removes all requests, oldest first, and before them the values that are kept.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let mut requests = std::mem::take(&mut self.kept);
        requests.extend(std::iter::from_fn(|| self.take_oldest()));
        requests
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("slots_free", &self.slots_free())
            .field("capacity", &self.slots.len())
            .finish()
    }
}
