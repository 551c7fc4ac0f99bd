//! What a request in flight keeps from being freed.

#![allow(unsafe_code)]

use std::fmt;
use std::hint::assert_unchecked;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::loan::{Loan, Loans};
use crate::mr::{Buf, BufList};
use crate::mw::Bound;

/// What a posted request keeps from being freed, as one pointer with its kind in the lowest bits:
/// none of them for a buffer, so that one look tells it from all others.
///
/// Most requests keep nothing or a buffer. The others are dealt with, and everything is dropped, by
/// calls that are never inlined and take it by value: so the common ones stay in a register.
pub struct InFlight(NonNull<()>);

// SAFETY: it owns one of the kinds, which are all Send.
unsafe impl Send for InFlight {}
// SAFETY: nothing is reached through a shared one.
unsafe impl Sync for InFlight {}

/// What it is, taken apart.
#[allow(
    dead_code,
    reason = "a loan, and a window that is being bound, are kept to be dropped"
)]
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
const NOTHING: NonZero<usize> = NonZero::new(5).unwrap();

// What the pointers point at leaves the bits of the kind free.
const _: () = assert!(align_of::<Bound>() > KIND && align_of::<AtomicUsize>() > KIND);
const _: () = assert!(Buf::ALIGN > KIND && BufList::ALIGN > KIND);

impl InFlight {
    pub(crate) const NOTHING: Self =
        // SAFETY: not zero.
        Self(unsafe { NonNull::new_unchecked(ptr::without_provenance_mut(NOTHING.get())) });

    #[inline]
    pub(crate) fn buf(buf: Buf) -> Self {
        let raw = buf.into_raw();
        // SAFETY: it points at what is aligned to more, see above.
        unsafe { assert_unchecked(raw.addr().get() & KIND == 0) };
        Self(raw)
    }

    fn of_kind(pointer: NonNull<()>, kind: usize) -> Self {
        Self(pointer.map_addr(|addr| addr | kind))
    }

    fn of_arc<T>(arc: Arc<T>, kind: usize) -> Self {
        // SAFETY: an Arc's pointer is not null.
        Self::of_kind(
            unsafe { NonNull::new_unchecked(Arc::into_raw(arc).cast_mut().cast()) },
            kind,
        )
    }

    pub(crate) fn list(list: BufList) -> Self {
        Self::of_kind(list.into_raw(), LIST)
    }

    pub(crate) fn lent(loans: Loans) -> Self {
        Self::of_arc(loans.begin(), LENT)
    }

    pub(crate) fn bind(bound: Arc<Bound>) -> Self {
        Self::of_arc(bound, BIND)
    }

    pub(crate) fn invalidate(bound: Arc<Bound>) -> Self {
        Self::of_arc(bound, INVALIDATE)
    }

    /// As a plain value, for a table. Who has it owns what it stands for.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<()> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// `raw` is from [`into_raw`](Self::into_raw), and is used once.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self(raw)
    }

    /// As [`from_raw`](Self::from_raw), where it is known that it [is not rare](Self::is_rare).
    ///
    /// # Safety
    /// As there, and it is not.
    #[inline]
    pub(crate) unsafe fn common(raw: NonNull<()>) -> Self {
        let common = Self(raw);
        // SAFETY: the caller's promise.
        unsafe { assert_unchecked(!common.is_rare()) };
        common
    }

    /// Whether it is neither nothing nor a buffer.
    #[inline]
    pub(crate) fn is_rare(&self) -> bool {
        !self.is_buf() && self.0.addr() != NOTHING
    }

    #[inline]
    pub(crate) fn is_buf(&self) -> bool {
        self.0.addr().get() & KIND == 0
    }

    fn into_kind(self) -> Kind {
        let raw = self.into_raw();
        let pointer = raw.as_ptr().map_addr(|addr| addr & !KIND);
        // SAFETY: self was made of such a value, and is gone.
        unsafe {
            match raw.addr().get() & KIND {
                0 => Kind::Buf(Buf::from_raw(raw)),
                LIST => Kind::List(BufList::from_raw(pointer)),
                LENT => Kind::Lent(Loan(Arc::from_raw(pointer.cast()))),
                BIND => Kind::Bind(Arc::from_raw(pointer.cast())),
                INVALIDATE => Kind::Invalidate(Arc::from_raw(pointer.cast())),
                _ => Kind::Nothing,
            }
        }
    }

    /// Lets the buffer, if it is one, show its first `len` bytes.
    #[inline]
    pub(crate) fn show(&self, len: usize) {
        if self.is_buf() {
            // SAFETY: it was made of a buffer, which it still owns after this.
            let mut buf = ManuallyDrop::new(unsafe { Buf::from_raw(self.0) });
            buf.set_len(len);
        }
    }

    /// As [`show`](Self::show), of a request that is being posted.
    #[inline]
    pub(crate) fn showing(self, len: usize) -> Self {
        self.show(len);
        self
    }

    /// What is left when the request is done: a loan has ended, and a binding needs no keeping
    /// alive.
    pub(crate) fn settled(self) -> Self {
        match self.into_kind() {
            Kind::Nothing | Kind::Lent(_) | Kind::Bind(_) => Self::NOTHING,
            Kind::Buf(buf) => Self::buf(buf),
            Kind::List(list) => Self::list(list),
            Kind::Invalidate(bound) => Self::invalidate(bound),
        }
    }

    /// The buffer, if it is one.
    #[inline]
    pub(crate) fn into_buf(self) -> Result<Buf, Self> {
        if !self.is_buf() {
            return Err(self);
        }
        // SAFETY: it was made of a buffer, and is gone.
        Ok(unsafe { Buf::from_raw(self.into_raw()) })
    }

    pub(crate) fn into_list(self) -> Option<BufList> {
        match self.into_kind() {
            Kind::List(list) => Some(list),
            _ => None,
        }
    }

    /// The window that was being invalidated.
    pub(crate) fn into_invalidated(self) -> Option<Arc<Bound>> {
        match self.into_kind() {
            Kind::Invalidate(bound) => Some(bound),
            _ => None,
        }
    }

    /// All buffers, one by one.
    pub(crate) fn into_bufs(self) -> Vec<Buf> {
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
        if self.0.addr() != NOTHING {
            end(self.0);
        }
    }
}

/// Drops what the value stands for, which is gone then. Cold, so that the way to the call is not
/// prepared before each loop that retires.
#[cold]
#[inline(never)]
fn end(raw: NonNull<()>) {
    drop(InFlight(raw).into_kind());
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.0).finish()
    }
}
