//! The table of a shared receive queue, whose receives complete in any order.

use std::fmt;

use super::request::Request;
use super::slot::{Slot, Vacant};
use crate::identity::QueueId;
use crate::mr::Buf;
use crate::wr_id::{RequestKind, WrId};

/// A slab of receives in flight.
pub(crate) struct RecvSlab {
    slots: Vec<Slot>,
    /// Indices of all slots. The vacant ones are those from `in_flight` on.
    order: Vec<usize>,
    in_flight: usize,
    /// Values of failed receives whose memory the device may still access.
    kept: Vec<Request>,
    /// `true` if a receive without a value has failed in this way.
    has_failed_unowned: bool,
}

impl RecvSlab {
    /// Maximum number of receives in a slab.
    pub(crate) const MAX: u32 = WrId::MAX_SLOTS;

    pub(crate) fn new(queue: QueueId, kind: RequestKind, capacity: u32) -> Self {
        let capacity = capacity.min(Self::MAX);
        Self {
            slots: (0..capacity)
                .map(|slot| Slot::new(WrId::new(queue, kind, slot)))
                .collect(),
            order: (0..capacity as usize).collect(),
            in_flight: 0,
            kept: Vec::new(),
            has_failed_unowned: false,
        }
    }

    /// Returns the slot of the next request, or `None` if the table is full.
    #[inline]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_>> {
        let &index = self.order.get(self.in_flight)?;
        Some(Vacant::new(&mut self.slots[index], &mut self.in_flight))
    }

    /// Removes the newest request, which has this `wr_id` and was not posted after all.
    pub(crate) fn take_back(&mut self, wr_id: WrId) -> Option<Request> {
        let slot = &mut self.slots[wr_id.slot()];
        debug_assert!(slot.holds(wr_id));
        let request = slot.take_not_posted()?;
        self.vacate(wr_id.slot());
        Some(request)
    }

    /// Returns the number of requests that can be in flight.
    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of receives that can be posted.
    pub(crate) fn slots_free(&self) -> usize {
        self.slots.len() - self.in_flight
    }

    /// Retires the receive with this `wr_id`, or returns `None` if it is not in flight.
    #[inline]
    pub(crate) fn retire(&mut self, wr_id: WrId) -> Option<Request> {
        let Some(request) = self.slots.get_mut(wr_id.slot())?.take(wr_id) else {
            return self.retire_failed(wr_id);
        };
        self.vacate(wr_id.slot());
        Some(request)
    }

    /// Retires a receive that failed, although the device may still write to its memory: its value
    /// is kept.
    #[cold]
    #[inline(never)]
    fn retire_failed(&mut self, wr_id: WrId) -> Option<Request> {
        let wr_id = wr_id.without_failure()?;
        let slot = self.slots.get_mut(wr_id.slot())?;
        if slot.holds(wr_id) {
            match slot.detach() {
                Some(request) => self.kept.push(request),
                None => self.has_failed_unowned = true,
            }
        }
        self.retire(wr_id)
    }

    /// See [`RequestTable::holds`](super::RequestTable::holds).
    pub(crate) fn holds(&self, wr_id: WrId) -> bool {
        let slot = self.slots.get(wr_id.slot());
        slot.is_some_and(|slot| slot.holds(wr_id))
    }

    /// See [`RequestTable::unowned`](super::RequestTable::unowned).
    pub(crate) fn unowned(&self, found: &mut Vec<WrId>) {
        let slots = self.order[..self.in_flight].iter();
        found.extend(slots.filter_map(|&index| self.slots[index].unowned()));
    }

    /// See [`RequestTable::has_failed_unowned`](super::RequestTable::has_failed_unowned).
    pub(crate) fn has_failed_unowned(&self) -> bool {
        self.has_failed_unowned
    }

    /// Removes all receives. Their buffers are never used again: a device may still write to them
    /// until they are deregistered.
    pub(crate) fn discard_buffers(&mut self) {
        for index in self.order.drain(..self.in_flight) {
            let request = self.slots[index].take_not_posted();
            let bufs = request.map(Request::into_bufs).unwrap_or_default();
            bufs.into_iter().for_each(Buf::discard);
        }
        self.in_flight = 0;
        let kept = self.kept.drain(..).flat_map(Request::into_bufs);
        kept.for_each(Buf::discard);
    }

    #[inline]
    fn vacate(&mut self, index: usize) {
        self.in_flight -= 1;
        self.order[self.in_flight] = index;
    }
}

impl fmt::Debug for RecvSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvSlab")
            .field("slots_free", &self.slots_free())
            .field("capacity", &self.capacity())
            .finish()
    }
}
