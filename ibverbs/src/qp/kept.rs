//! What a request in flight keeps from being freed.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::loan::{Loan, Loans};
use crate::mr::{Buf, BufList};
use crate::mw::Bound;

/// What a posted request keeps from being freed, as one pointer with its kind in the lowest bits: null for nothing, none of them for a
/// buffer.
///
/// Most requests keep one of these two. The others are dealt with, and everything is dropped, by calls that are never inlined and take it by
/// value: so the common ones stay in a register.
pub struct InFlight(*mut ());

// SAFETY: it owns one of the kinds, which are all Send.
unsafe impl Send for InFlight {}
// SAFETY: nothing is reached through a shared one.
unsafe impl Sync for InFlight {}

/// What it is, taken apart.
#[allow(dead_code, reason = "a loan, and a window that is being bound, are kept to be dropped")]
enum Kind {
    /// Nothing: inline data, no data, or memory that the queue pair holds anyway.
    Nothing,
    /// A buffer.
    Buf(Buf),
    /// Several buffers.
    List(BufList),
    /// Memory that a scope borrowed.
    Lent(Loan),
    /// A memory window that is being bound: kept alive, with its region.
    Bind(Arc<Bound>),
    /// A memory window that is being invalidated: a success makes it unbound.
    Invalidate(Arc<Bound>),
}

const KIND: usize = 7;
const LIST: usize = 1;
const LENT: usize = 2;
const BIND: usize = 3;
const INVALIDATE: usize = 4;

// What the pointers point at leaves the bits of the kind free.
const _: () = assert!(align_of::<Bound>() > KIND && align_of::<AtomicUsize>() > KIND);
const _: () = assert!(Buf::ALIGN > KIND && BufList::ALIGN > KIND);

impl InFlight {
    pub(super) const NOTHING: Self = Self(ptr::null_mut());

    #[inline]
    pub(super) fn buf(buf: Buf) -> Self {
        Self(buf.into_raw())
    }

    fn of_kind(pointer: *const (), kind: usize) -> Self {
        Self(pointer.cast_mut().map_addr(|addr| addr | kind))
    }

    pub(super) fn list(list: BufList) -> Self {
        Self::of_kind(list.into_raw(), LIST)
    }

    pub(super) fn lent(loans: Loans) -> Self {
        Self::of_kind(Arc::into_raw(loans.begin()).cast(), LENT)
    }

    pub(super) fn bind(bound: Arc<Bound>) -> Self {
        Self::of_kind(Arc::into_raw(bound).cast(), BIND)
    }

    pub(super) fn invalidate(bound: Arc<Bound>) -> Self {
        Self::of_kind(Arc::into_raw(bound).cast(), INVALIDATE)
    }

    /// As a plain value, for a table. Who has it owns what it stands for.
    #[inline]
    pub(super) fn into_raw(self) -> *mut () {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// `raw` is from [`into_raw`](Self::into_raw), and is used once.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *mut ()) -> Self {
        Self(raw)
    }

    /// Whether it is neither nothing nor a buffer.
    #[inline]
    fn is_rare(&self) -> bool {
        self.0.addr() & KIND != 0
    }

    #[inline]
    fn into_kind(self) -> Kind {
        let raw = self.into_raw();
        let pointer = raw.map_addr(|addr| addr & !KIND);
        // SAFETY: self was made of such a value, and is gone.
        unsafe {
            match raw.addr() & KIND {
                0 if raw.is_null() => Kind::Nothing,
                0 => Kind::Buf(Buf::from_raw(NonNull::new_unchecked(raw))),
                LIST => Kind::List(BufList::from_raw(pointer)),
                LENT => Kind::Lent(Loan(Arc::from_raw(pointer.cast()))),
                BIND => Kind::Bind(Arc::from_raw(pointer.cast())),
                _ => Kind::Invalidate(Arc::from_raw(pointer.cast())),
            }
        }
    }

    /// Lets the buffer, if it is one, show its first `len` bytes.
    #[inline]
    pub(super) fn showing(self, len: usize) -> Self {
        if self.is_rare() {
            return self;
        }
        match self.into_buf() {
            Some(mut buf) => {
                buf.set_len(len);
                Self::buf(buf)
            }
            None => Self::NOTHING,
        }
    }

    /// What is left when the request is done: a loan has ended, and a binding needs no keeping alive.
    #[inline]
    pub(super) fn settled(self) -> Self {
        if self.is_rare() { settle(self) } else { self }
    }

    #[inline]
    pub(super) fn into_buf(self) -> Option<Buf> {
        if self.is_rare() {
            return None;
        }
        // SAFETY: what is not rare was made of a buffer, or is null; and it is gone.
        NonNull::new(self.into_raw()).map(|raw| unsafe { Buf::from_raw(raw) })
    }

    pub(super) fn into_list(self) -> Option<BufList> {
        match self.into_kind() {
            Kind::List(list) => Some(list),
            _ => None,
        }
    }

    /// The window that was being invalidated.
    pub(super) fn into_invalidated(self) -> Option<Arc<Bound>> {
        match self.into_kind() {
            Kind::Invalidate(bound) => Some(bound),
            _ => None,
        }
    }

    /// All buffers, one by one.
    pub(super) fn into_bufs(self) -> Vec<Buf> {
        match self.into_kind() {
            Kind::Buf(buf) => vec![buf],
            Kind::List(list) => list.into_bufs(),
            Kind::Nothing | Kind::Lent(_) | Kind::Bind(_) | Kind::Invalidate(_) => Vec::new(),
        }
    }
}

impl Drop for InFlight {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_null() {
            end(self.0);
        }
    }
}

/// Drops what the value stands for, which is gone then. Cold, so that the way to the call is not prepared before each loop that retires.
#[cold]
#[inline(never)]
fn end(raw: *mut ()) {
    drop(InFlight(raw).into_kind());
}

#[cold]
#[inline(never)]
fn settle(rare: InFlight) -> InFlight {
    match rare.into_kind() {
        Kind::Nothing | Kind::Lent(_) | Kind::Bind(_) => InFlight::NOTHING,
        Kind::Buf(buf) => InFlight::buf(buf),
        Kind::List(list) => InFlight::list(list),
        Kind::Invalidate(bound) => InFlight::invalidate(bound),
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.0).finish()
    }
}
