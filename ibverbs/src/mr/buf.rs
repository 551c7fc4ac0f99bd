//! A buffer with one owner, cut from a registered region.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::ibv_sge;

use super::pool_inner::{Home, Piece};
use crate::pd::{DomainKey, ProtectionDomain};

/// A registered buffer with one owner: `&[u8]` and `&mut [u8]` while you own it.
///
/// Posting moves it into the queue pair; the completion of the request gives it back. Its memory is
/// registered for local access only, so no peer can reach it, and the device writes to it only
/// while it is posted.
///
/// The buffer shows its first `len()` bytes: all of it at first, what was received after a receive.
///
/// It is as large as a pointer: moving one into a request and back moves nothing else.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let mut buf = pd.buf(4096)?;
/// buf[..5].copy_from_slice(b"hello");
/// buf.set_len(5); // what a send sends
/// assert_eq!((&buf[..], buf.capacity()), (&b"hello"[..], 4096));
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
#[repr(transparent)]
pub struct Buf(NonNull<Piece>);

// SAFETY: a Buf is the one owner of its piece.
unsafe impl Send for Buf {}
// SAFETY: a shared Buf only reads.
unsafe impl Sync for Buf {}

impl Buf {
    /// What the address of [`into_raw`](Self::into_raw) is a multiple of.
    pub(crate) const ALIGN: usize = align_of::<Piece>();

    /// The buffer of a piece that is off the list and has none.
    pub(crate) fn of(home: Arc<Home>, index: u32) -> Self {
        let piece = NonNull::from(&home.pieces[index as usize]);
        let buf = Self(piece);
        buf.piece().len.set(buf.piece().whole.length);
        buf.piece().home.set(Arc::into_raw(home)); // the count is the piece's now
        buf
    }

    /// As a pointer, which owns the buffer.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<()> {
        ManuallyDrop::new(self).0.cast()
    }

    /// # Safety
    /// The pointer is from [`into_raw`](Self::into_raw), and is used once.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self(raw.cast())
    }

    #[inline]
    fn piece(&self) -> &Piece {
        // SAFETY: the piece lives as long as its Home, of which the Buf has a count.
        unsafe { self.0.as_ref() }
    }

    /// How many bytes the buffer can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.piece().whole.length as usize
    }

    /// Shows the first `len` bytes from now on, at most [`capacity`](Self::capacity). The bytes
    /// keep their values.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let piece = self.piece();
        piece.len.set(
            u32::try_from(len)
                .unwrap_or(u32::MAX)
                .min(piece.whole.length),
        );
    }

    /// What a send posts: the bytes shown.
    #[inline]
    pub(crate) fn shown(&self) -> ibv_sge {
        let piece = self.piece();
        ibv_sge {
            length: piece.len.get(),
            ..piece.whole
        }
    }

    /// What a receive posts: all of the buffer.
    #[inline]
    pub(crate) fn whole(&self) -> ibv_sge {
        self.piece().whole
    }

    #[inline]
    pub(crate) fn domain(&self) -> DomainKey {
        self.piece().domain
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        // SAFETY: the Buf has a count of its Home.
        unsafe { &*self.piece().home.get() }.region.pd()
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let piece = self.piece();
        // SAFETY: the piece is initialised (zeroed at registration), `len` is at most its size, and
        // while the Buf is owned neither a device nor another owner writes to it.
        unsafe { std::slice::from_raw_parts(piece.start.as_ptr(), piece.len.get() as usize) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let piece = self.piece();
        // SAFETY: as `deref`; the borrow is exclusive, and nobody reads the piece either.
        unsafe { std::slice::from_raw_parts_mut(piece.start.as_ptr(), piece.len.get() as usize) }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the one Buf of the piece, and it goes.
        unsafe { Piece::give_back(self.0) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
