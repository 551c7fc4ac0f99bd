//! The trait of the tables, and a table of either kind.

use super::request::Request;
use super::ring::Ring;
use super::slab::RecvSlab;
use super::slot::Vacant;
use crate::wr_id::WrId;

/// A table of requests in flight.
pub(crate) trait RequestTable: Send + Sync {
    /// Returns the table as one of either kind.
    fn as_any(&mut self) -> AnyTable<'_>;

    /// Returns `true` if the request with this `wr_id` is in flight.
    fn holds(&self, wr_id: WrId) -> bool;

    /// Adds the requests in flight that own no memory. They may use memory that the queue holds.
    fn unowned(&self, found: &mut Vec<WrId>);

    /// Returns `true` if a request without memory of its own has failed, and the device may still
    /// access the memory that it used.
    fn has_failed_unowned(&self) -> bool;
}

impl RequestTable for Ring {
    #[inline]
    fn as_any(&mut self) -> AnyTable<'_> {
        AnyTable::Ring(self)
    }

    fn holds(&self, wr_id: WrId) -> bool {
        Self::holds(self, wr_id)
    }

    fn unowned(&self, found: &mut Vec<WrId>) {
        Self::unowned(self, found);
    }

    fn has_failed_unowned(&self) -> bool {
        Self::has_failed_unowned(self)
    }
}

impl RequestTable for RecvSlab {
    #[inline]
    fn as_any(&mut self) -> AnyTable<'_> {
        AnyTable::Slab(self)
    }

    fn holds(&self, wr_id: WrId) -> bool {
        Self::holds(self, wr_id)
    }

    fn unowned(&self, found: &mut Vec<WrId>) {
        Self::unowned(self, found);
    }

    fn has_failed_unowned(&self) -> bool {
        Self::has_failed_unowned(self)
    }
}

/// A table of either kind. Calls to it can be inlined, unlike those of a trait object.
pub(crate) enum AnyTable<'table> {
    Ring(&'table mut Ring),
    Slab(&'table mut RecvSlab),
}

impl AnyTable<'_> {
    /// Returns the slot of the next request, or `None` if the table is full.
    #[inline]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_>> {
        match self {
            Self::Ring(ring) => ring.vacant(),
            Self::Slab(slab) => slab.vacant(),
        }
    }

    /// Removes the newest request, which has this `wr_id` and was not posted after all.
    pub(crate) fn take_back(&mut self, wr_id: WrId) -> Option<Request> {
        match self {
            Self::Ring(ring) => ring.take_back(wr_id),
            Self::Slab(slab) => slab.take_back(wr_id),
        }
    }

    /// Returns the number of requests that can be in flight.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Ring(ring) => ring.capacity(),
            Self::Slab(slab) => slab.capacity(),
        }
    }
}
