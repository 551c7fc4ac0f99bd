//! Copies into and out of memory that a device may change at any moment.
//!
//! Every access is a relaxed atomic access to an aligned word of 8 bytes, whatever the bytes asked
//! for: threads of this process may then copy at once without a data race (volatile accesses would
//! be one), and no access mixes sizes. It costs what a plain word costs. Bytes written to a part of
//! a word go in by compare-and-swap, so that its other bytes keep what a device put there
//! meanwhile.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// The word that holds the byte at `offset`.
///
/// # Safety
/// `base` is aligned to 8; all of the word is within live memory that is accessed as words only.
unsafe fn word<'a>(base: *mut u8, offset: usize) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(base.add(offset - offset % WORD).cast()) }
}

/// Copies out the bytes from `offset` on.
///
/// # Safety
/// `base` is aligned to 8, and all words that hold the bytes are within live memory that is
/// accessed as words only.
pub(crate) unsafe fn copy_out(base: *mut u8, mut offset: usize, into: &mut [u8]) {
    let (head, rest) = into.split_at_mut(head_of(offset, into.len()));
    if !head.is_empty() {
        // SAFETY: the caller's promise; the word holds the byte at `offset`.
        let bytes = unsafe { word(base, offset) }
            .load(Ordering::Relaxed)
            .to_ne_bytes();
        let from = offset % WORD;
        head.copy_from_slice(&bytes[from..from + head.len()]);
        offset += head.len();
    }
    let mut words = rest.chunks_exact_mut(WORD);
    for eight in &mut words {
        // SAFETY: as above.
        let number = unsafe { word(base, offset) }.load(Ordering::Relaxed);
        eight.copy_from_slice(&number.to_ne_bytes());
        offset += WORD;
    }
    let tail = words.into_remainder();
    if !tail.is_empty() {
        // SAFETY: as above.
        let bytes = unsafe { word(base, offset) }
            .load(Ordering::Relaxed)
            .to_ne_bytes();
        tail.copy_from_slice(&bytes[..tail.len()]);
    }
}

/// Copies in the bytes from `offset` on.
///
/// # Safety
/// As [`copy_out`].
pub(crate) unsafe fn copy_in(base: *mut u8, mut offset: usize, from: &[u8]) {
    let (head, rest) = from.split_at(head_of(offset, from.len()));
    if !head.is_empty() {
        // SAFETY: the caller's promise; the word holds the byte at `offset`.
        merge(unsafe { word(base, offset) }, offset % WORD, head);
        offset += head.len();
    }
    let (words, tail) = rest.as_chunks_of_words();
    for eight in words {
        // SAFETY: as above.
        unsafe { word(base, offset) }.store(u64::from_ne_bytes(*eight), Ordering::Relaxed);
        offset += WORD;
    }
    if !tail.is_empty() {
        // SAFETY: as above.
        merge(unsafe { word(base, offset) }, 0, tail);
    }
}

/// How many bytes come before the first whole word.
fn head_of(offset: usize, len: usize) -> usize {
    ((WORD - offset % WORD) % WORD).min(len)
}

/// Replaces some bytes of a word.
fn merge(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let merged = |number: u64| {
        let mut all = number.to_ne_bytes();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(all)
    };
    let mut seen = word.load(Ordering::Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(seen, merged(seen), Ordering::Relaxed, Ordering::Relaxed)
    {
        seen = now;
    }
}

trait Chunks {
    fn as_chunks_of_words(&self) -> (&[[u8; WORD]], &[u8]);
}

impl Chunks for [u8] {
    /// `slice::as_chunks`, which the oldest compiler supported lacks.
    fn as_chunks_of_words(&self) -> (&[[u8; WORD]], &[u8]) {
        let (whole, rest) = self.split_at(self.len() - self.len() % WORD);
        // SAFETY: an array of bytes has the alignment and initialisation of a byte, and `whole` has
        // so many of them.
        (
            unsafe { std::slice::from_raw_parts(whole.as_ptr().cast(), whole.len() / WORD) },
            rest,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mr::alloc::Allocation;
    use crate::mr::options::Backing;

    #[test]
    fn every_offset_and_length_copies_just_its_bytes() {
        // Every place in a word, and every rest before, between and after whole words; and more
        // where it costs nothing.
        let (offsets, lens) = if cfg!(miri) { (9, 18) } else { (17, 40) };
        for offset in 0..offsets {
            for len in 0..lens.min(40 - offset) {
                let memory = Allocation::new(40, Backing::Heap).expect("memory");
                let base = memory.start().as_ptr();
                let bytes: Vec<u8> = (1..).take(len).collect();
                let mut all = [0xff; 40];
                // SAFETY: all ranges lie within the 40 bytes, which are words.
                unsafe {
                    copy_in(base, 0, &all);
                    copy_in(base, offset, &bytes);
                    copy_out(base, 0, &mut all);
                }
                let mut expected = [0xff; 40];
                expected[offset..offset + len].copy_from_slice(&bytes);
                assert_eq!(all, expected, "{len} bytes at {offset}");
                let mut back = vec![0; len];
                // SAFETY: as above.
                unsafe { copy_out(base, offset, &mut back) };
                assert_eq!(back, bytes, "{len} bytes at {offset}");
            }
        }
    }

    #[test]
    fn threads_that_write_parts_of_one_word_lose_nothing() {
        const ROUNDS: u8 = if cfg!(miri) { 10 } else { 50 };
        let memory = Allocation::new(16, Backing::Heap).expect("memory");
        let memory = &memory;
        std::thread::scope(|scope| {
            for part in 0..5_u8 {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let offset = usize::from(part) * 3;
                        // SAFETY: 15 of 16 bytes, in whole words.
                        unsafe {
                            copy_in(memory.start().as_ptr(), offset, &[part * ROUNDS + round; 3]);
                        };
                    }
                });
            }
        });
        let mut all = [0; 15];
        // SAFETY: as above.
        unsafe { copy_out(memory.start().as_ptr(), 0, &mut all) };
        for part in 0..5_u8 {
            assert_eq!(
                all[usize::from(part) * 3..][..3],
                [part * ROUNDS + ROUNDS - 1; 3]
            );
        }
    }
}
