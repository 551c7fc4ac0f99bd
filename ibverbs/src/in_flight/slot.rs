//! Slots of the tables of requests.

use super::request::{InFlight, Owned, Request};
use crate::wr_id::WrId;

/// A slot of a table: one request in flight, or none.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Identity of the request in flight, or of the next one if there is none.
    pub(crate) wr_id: WrId,
    state: State,
    tag: u64,
}

#[derive(Debug)]
enum State {
    /// A request is in flight, with the value that it owns.
    InFlight(Owned),
    /// The request completed before an older one. The slot becomes vacant after that one retires.
    Hole,
    Vacant,
}

impl Slot {
    pub(crate) fn new(wr_id: WrId) -> Self {
        Self {
            wr_id,
            state: State::Vacant,
            tag: 0,
        }
    }

    #[inline]
    pub(crate) fn is_vacant(&self) -> bool {
        matches!(self.state, State::Vacant)
    }

    pub(crate) fn is_hole(&self) -> bool {
        matches!(self.state, State::Hole)
    }

    /// Returns `true` if the request with this identity is in flight here.
    pub(crate) fn holds(&self, wr_id: WrId) -> bool {
        self.wr_id == wr_id && matches!(self.state, State::InFlight(_))
    }

    /// Returns `true` if an [unsignaled](InFlight::Marker) request is in flight.
    pub(crate) fn is_unsignaled(&self) -> bool {
        matches!(self.state, State::InFlight(Owned(Some(InFlight::Marker))))
    }

    /// Returns `true` if a request that uses borrowed memory is in flight.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(&self.state, State::InFlight(owned) if owned.is_lent())
    }

    /// Returns the identity of the request in flight if it owns no memory.
    pub(crate) fn unowned(&self) -> Option<WrId> {
        let is_unowned = matches!(
            self.state,
            State::InFlight(Owned(None | Some(InFlight::Marker)))
        );
        is_unowned.then_some(self.wr_id)
    }

    /// Stores the request that was posted with this slot's `wr_id`.
    #[inline]
    pub(crate) fn fill(&mut self, Request { owned, tag }: Request) {
        debug_assert!(self.is_vacant());
        // The old state is `Vacant`. Forgetting it omits the code to drop it.
        std::mem::forget(std::mem::replace(&mut self.state, State::InFlight(owned)));
        self.tag = tag;
    }

    /// Removes the completed request with this identity, if it is in flight here.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) fn take(&mut self, wr_id: WrId) -> Option<Request> {
        if self.wr_id != wr_id {
            return None;
        }
        // Set first, so that the compiler need not keep the `wr_id`.
        self.wr_id = wr_id.next_generation();
        // One comparison separates buffers and requests without a value from all other states.
        let owned = match self.state {
            State::InFlight(Owned(None | Some(InFlight::Buf(_)))) => self.vacate()?,
            _ => self.take_rare()?,
        };
        Some(Request {
            owned,
            tag: self.tag,
        })
    }

    /// Removes the value of the completed request, if one is in flight. Its loan or binding ends.
    #[cold]
    #[inline(never)]
    fn take_rare(&mut self) -> Option<Owned> {
        self.vacate().map(Owned::completed)
    }

    /// Removes the value of the request in flight, if there is one.
    #[inline]
    fn vacate(&mut self) -> Option<Owned> {
        if !matches!(self.state, State::InFlight(_)) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Vacant) {
            State::InFlight(owned) => Some(owned),
            State::Hole | State::Vacant => None,
        }
    }

    /// Removes the value of the request in flight, which stays in flight without one. Its loan or
    /// binding does not end.
    pub(crate) fn detach(&mut self) -> Option<Request> {
        let State::InFlight(owned) = &mut self.state else {
            return None;
        };
        let owned = Owned::new(Some(owned.take()?));
        let tag = self.tag;
        Some(Request { owned, tag })
    }

    /// Turns the vacant slot of a request that completed before an older one into a hole.
    pub(crate) fn make_hole(&mut self) {
        debug_assert!(self.is_vacant());
        self.state = State::Hole;
    }

    /// Turns a hole into a vacant slot. Returns `false` if the slot is not a hole.
    pub(crate) fn close_hole(&mut self) -> bool {
        let is_hole = self.is_hole();
        if is_hole {
            self.state = State::Vacant;
        }
        is_hole
    }

    /// Removes the request in flight, which was not posted after all.
    pub(crate) fn take_not_posted(&mut self) -> Option<Request> {
        let owned = self.vacate()?;
        self.skip_wr_id();
        Some(Request {
            owned,
            tag: self.tag,
        })
    }

    /// Changes the `wr_id` of a vacant slot: a post with it failed.
    pub(crate) fn skip_wr_id(&mut self) {
        self.wr_id = self.wr_id.after_failed_post();
    }
}

/// The vacant slot of the next request.
///
/// Its [`wr_id`](Self::wr_id) is passed to the provider. Then it is [filled](Self::fill), or
/// [skipped](Self::skip) if the provider refused the request.
pub(crate) struct Vacant<'table> {
    slot: &'table mut Slot,
    /// Advances when the slot is filled.
    cursor: &'table mut usize,
}

impl<'table> Vacant<'table> {
    #[inline]
    pub(crate) fn new(slot: &'table mut Slot, cursor: &'table mut usize) -> Self {
        Self { slot, cursor }
    }

    #[inline]
    pub(crate) fn wr_id(&self) -> WrId {
        self.slot.wr_id
    }

    /// Stores a request that was posted, or may have been.
    #[inline]
    pub(crate) fn fill(self, request: Request) {
        self.slot.fill(request);
        *self.cursor += 1;
    }

    /// Changes the `wr_id`, because the provider has seen it.
    pub(crate) fn skip(self) {
        self.slot.skip_wr_id();
    }
}
