//! The places of the tables of what is in flight.
//!
//! They own the buffers that the device may touch, and decide by number alone whether a completion
//! is of one of theirs: each place keeps the number of the request in it, so that one comparison
//! asks for queue, direction and request.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::kept::InFlight;
use super::likely::less_likely;
use rdma_sys::ibv_wc;

use crate::cq::WcFields;
use crate::fixed::Fixed;
use crate::identity::WrId;

/// A request that is done.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) payload: InFlight,
    pub(crate) tag: u64,
}

impl Entry {
    /// What is left of it when it has completed.
    pub(crate) fn settled(self) -> Self {
        Self {
            payload: self.payload.settled(),
            ..self
        }
    }

    /// Lets its buffer show what was received, if that is what became of it.
    #[inline]
    pub(crate) fn received(self, wc: &ibv_wc) -> Self {
        if !wc.status().is_success() {
            less_likely();
            return self;
        }
        if self.payload.is_buf() {
            self.payload.show(wc.byte_len as usize);
        }
        self
    }
}

/// A place of a table.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The number of the request in flight here, marked if it keeps what is rare. While the place
    /// is vacant, that of the next one: a number that nobody was told yet.
    wr_id: WrId,
    /// What is kept: owned while a request is in flight here.
    payload: NonNull<()>,
    tag: u64,
    /// In a ring the place after this; in a slab the next vacant one.
    pub(crate) next: *mut Place,
}

impl Place {
    /// So many places, each followed by the next in memory, and the last by the first. `first` is a
    /// number of the first place. Those of an old table keep their numbers, and stay, were
    /// there more: they are unused then.
    pub(crate) fn table(first: WrId, count: u32, old: Option<&Fixed<Self>>) -> Fixed<Self> {
        let payload = InFlight::NOTHING.into_raw();
        let vacant = Self {
            wr_id: first,
            payload,
            tag: 0,
            next: std::ptr::null_mut(),
        };
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
                places.as_ptr().add(index).write(Self {
                    wr_id,
                    next,
                    ..vacant
                });
            }
        }
        places
    }

    /// The number, without its mark.
    ///
    /// # Safety
    /// A place of a table that nobody else uses; so for all that follow.
    #[inline]
    pub(crate) unsafe fn number(this: *const Self) -> WrId {
        // SAFETY: the caller's promise.
        unsafe { (*this).wr_id }.unmarked()
    }

    /// As [`number`](Self::number), where there is no mark: of a vacant place.
    #[inline]
    pub(crate) unsafe fn next_number(this: *const Self) -> WrId {
        // SAFETY: the caller's promise.
        unsafe { (*this).wr_id }
    }

    /// Whether the request of this number is in flight here, and keeps nothing that is rare. Nobody
    /// was told the number of a vacant place, and none that is marked: so this is one
    /// comparison.
    #[inline]
    pub(crate) unsafe fn has_common(this: *const Self, wr_id: WrId) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (*this).wr_id == wr_id }
    }

    /// Puts a request in.
    ///
    /// # Safety
    /// As [`number`](Self::number), and it is vacant.
    #[inline]
    pub(crate) unsafe fn fill(this: *mut Self, payload: InFlight, tag: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            if payload.is_rare() {
                (*this).wr_id = (*this).wr_id.marked();
            }
            (*this).payload = payload.into_raw();
            (*this).tag = tag;
        }
    }

    /// Takes the request out.
    ///
    /// # Safety
    /// As [`number`](Self::number), with a request in it.
    pub(crate) unsafe fn take(this: *mut Self) -> Entry {
        // SAFETY: the caller's promise.
        unsafe {
            let entry = Self::take_marked(this);
            Self::skip(this);
            entry
        }
    }

    /// As [`take`](Self::take), of a request that was never posted.
    pub(crate) unsafe fn take_unposted(this: *mut Self) -> Entry {
        // SAFETY: as there.
        unsafe {
            let entry = Self::take_marked(this);
            Self::skip_unposted(this);
            entry
        }
    }

    /// Takes the request out, and leaves its number.
    unsafe fn take_marked(this: *mut Self) -> Entry {
        // SAFETY: as `take`: the payload was left here by `fill`, and is taken once, as the place
        // is vacant then.
        unsafe {
            Self::unmark(this);
            Entry {
                payload: InFlight::from_raw((*this).payload),
                tag: (*this).tag,
            }
        }
    }

    /// As [`take`](Self::take), of a request that [keeps nothing rare](Self::has_common).
    #[inline]
    pub(crate) unsafe fn take_common(this: *mut Self) -> Entry {
        // SAFETY: as `take`; what is not marked is not rare.
        unsafe {
            let entry = Entry {
                payload: InFlight::common((*this).payload),
                tag: (*this).tag,
            };
            Self::skip(this);
            entry
        }
    }

    /// Makes the number one that nobody was told.
    #[inline]
    unsafe fn skip(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { WrId::count_use(&raw mut (*this).wr_id) }
    }

    /// As [`skip`](Self::skip), where the number is of a request that was never posted.
    unsafe fn skip_unposted(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { (*this).wr_id = (*this).wr_id.never_posted() }
    }

    /// Makes a vacant place a hole between others, where it stays until they are vacant too:
    /// marked, with nothing kept.
    pub(crate) unsafe fn leave_hole(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            (*this).wr_id = (*this).wr_id.marked();
            (*this).payload = InFlight::NOTHING.into_raw();
        }
    }

    /// Whether it is such a hole.
    pub(crate) unsafe fn is_hole(this: *const Self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (*this).wr_id.is_marked() && (*this).payload == InFlight::NOTHING.into_raw() }
    }

    /// Makes a hole a vacant place again.
    pub(crate) unsafe fn unmark(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { (*this).wr_id = Self::number(this) }
    }
}

/// Where requests are taken in.
///
/// # Safety
/// `next_place` is vacant. It is in flight after `advance`, until a request is taken out of it or
/// after `retreat`.
pub(crate) unsafe trait Table: Send + Sync {
    /// The place of the next request, if there is room.
    fn next_place(&mut self) -> Option<*mut Place>;

    /// Takes that place away from the vacant ones.
    ///
    /// # Safety
    /// It is that place, and is filled before anything else is asked of the table, or given back by
    /// `retreat`.
    unsafe fn advance(&mut self, place: *mut Place);

    /// Makes the place vacant again that `advance` took.
    ///
    /// # Safety
    /// It was the last thing that was asked of the table.
    unsafe fn retreat(&mut self, place: *mut Place);

    /// Takes the newest request, which has this number and was never posted, out again.
    fn take_back(&mut self, wr_id: WrId) -> Option<Entry>;

    /// How many requests can be in flight.
    fn capacity(&self) -> u32;
}

/// The place of the next request. Dropped, it is vacant again, with another number, as the provider
/// may have been told this one.
pub(crate) struct Next<'table, T: Table + ?Sized> {
    table: &'table mut T,
    place: *mut Place,
}

impl<'table, T: Table + ?Sized> Next<'table, T> {
    /// Of this table, if there is room.
    #[inline]
    pub(crate) fn of(table: &'table mut T) -> Option<Self> {
        let place = table.next_place()?;
        // SAFETY: that place.
        Some(unsafe { Self::at(table, place) })
    }

    /// # Safety
    /// It is the place of the table's next request.
    #[inline]
    pub(crate) unsafe fn at(table: &'table mut T, place: *mut Place) -> Self {
        // SAFETY: the caller's promise; `fill` and `drop` do the rest. Before the provider is
        // called, as what it is told by then need not be kept over the call.
        unsafe { table.advance(place) };
        Self { table, place }
    }

    #[inline]
    pub(crate) fn wr_id(&self) -> WrId {
        // SAFETY: a vacant place of the table.
        unsafe { Place::next_number(self.place) }
    }

    /// Takes the request in.
    #[inline]
    pub(crate) fn fill(self, payload: InFlight, tag: u64) {
        // SAFETY: a place of the table, with nothing in it.
        unsafe { Place::fill(self.place, payload, tag) };
        std::mem::forget(self);
    }
}

impl<T: Table + ?Sized> Drop for Next<'_, T> {
    fn drop(&mut self) {
        // SAFETY: a place of the table, which was not filled.
        unsafe {
            Place::skip_unposted(self.place);
            self.table.retreat(self.place);
        }
    }
}
