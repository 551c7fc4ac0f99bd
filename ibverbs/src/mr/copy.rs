//! Copies into and out of memory that a device may change at any time.
//!
//! The copies are those of `memcpy`, called through a pointer that the compiler cannot follow. So
//! the compiler assumes nothing about the bytes and cannot repeat, split or omit a copy. The
//! accesses are plain instructions of the processor, as those of an `asm!` block: beside an access
//! of a device or of another thread, each byte is the old or the new one, and no other byte is
//! read or written. Volatile accesses would be a data race beside the atomic accesses of another
//! thread, and atomic accesses of words take up to three times as long as `memcpy`.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

static MEMCPY: Memcpy = libc::memcpy;

/// Returns `memcpy`. The read is volatile, so that the compiler does not know that it is this one.
#[inline]
fn memcpy() -> Memcpy {
    // SAFETY: the static is initialised and never changes.
    unsafe { ptr::read_volatile(&raw const MEMCPY) }
}

/// Copies bytes out of the memory.
///
/// # Safety
/// The `into.len()` bytes at `from` must be in live memory to which no reference exists.
#[inline]
pub(crate) unsafe fn copy_out(from: *const u8, into: &mut [u8]) {
    if !into.is_empty() {
        // SAFETY: guaranteed by the caller. A reference to `into` exists, so the ranges do not
        // overlap. C allows no dangling pointers, which those of empty slices are.
        unsafe { memcpy()(into.as_mut_ptr().cast(), from.cast(), into.len()) };
    }
}

/// Copies bytes into the memory.
///
/// # Safety
/// Those of [`copy_out`], for the `from.len()` bytes at `into`.
#[inline]
pub(crate) unsafe fn copy_in(into: *mut u8, from: &[u8]) {
    if !from.is_empty() {
        // SAFETY: as in `copy_out`.
        unsafe { memcpy()(into.cast(), from.as_ptr().cast(), from.len()) };
    }
}
