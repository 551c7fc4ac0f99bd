//! Copies into and out of memory that a device may change at any time.
//!
//! Every access is a relaxed atomic access to an aligned 8-byte word, so threads of this process
//! can copy concurrently without a data race (volatile accesses would be one), and accesses never
//! mix sizes. This costs as much as plain word accesses. A part of a word is written with
//! compare-and-swap, which preserves concurrent writes of a device to its other bytes.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Returns the word that contains the byte at `offset`.
///
/// # Safety
/// `base` must be aligned to 8. The whole word must be in live memory that is accessed as words
/// only.
unsafe fn word<'a>(base: *mut u8, offset: usize) -> &'a AtomicU64 {
    // SAFETY: guaranteed by the caller.
    unsafe { AtomicU64::from_ptr(base.add(offset - offset % WORD).cast()) }
}

/// Copies bytes starting at `offset` out of the memory.
///
/// # Safety
/// `base` must be aligned to 8. All words that contain the bytes must be in live memory that is
/// accessed as words only.
pub(crate) unsafe fn copy_out(base: *mut u8, mut offset: usize, into: &mut [u8]) {
    let (head, rest) = into.split_at_mut(head_len(offset, into.len()));
    if !head.is_empty() {
        // SAFETY: guaranteed by the caller, for the word that contains the byte at `offset`.
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

/// Copies bytes into the memory, starting at `offset`.
///
/// # Safety
/// The same conditions as for [`copy_out`].
pub(crate) unsafe fn copy_in(base: *mut u8, mut offset: usize, from: &[u8]) {
    let (head, rest) = from.split_at(head_len(offset, from.len()));
    if !head.is_empty() {
        // SAFETY: guaranteed by the caller, for the word that contains the byte at `offset`.
        merge(unsafe { word(base, offset) }, offset % WORD, head);
        offset += head.len();
    }
    let (words, tail) = as_chunks_of_words(rest);
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

/// Returns the number of bytes before the first whole word.
fn head_len(offset: usize, len: usize) -> usize {
    ((WORD - offset % WORD) % WORD).min(len)
}

/// Replaces some bytes of a word atomically.
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

/// `slice::as_chunks`, which the oldest supported compiler lacks.
fn as_chunks_of_words(bytes: &[u8]) -> (&[[u8; WORD]], &[u8]) {
    let (words, rest) = bytes.split_at(bytes.len() - bytes.len() % WORD);
    // SAFETY: `words` is `words.len() / WORD` arrays long, and an array of bytes has the alignment
    // of a byte.
    let words = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() / WORD) };
    (words, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mr::alloc::Allocation;
    use crate::mr::options::Backing;

    #[test]
    fn copies_exactly_the_bytes_of_any_range() {
        // Covers every position in a word and every remainder before, between and after whole
        // words; without Miri also longer ranges.
        let (offsets, lens) = if cfg!(miri) { (9, 18) } else { (17, 40) };
        let memory = Allocation::of_process(40, Backing::Heap).expect("memory");
        let base = memory.start().as_ptr();
        let source: Vec<u8> = (1..=40).collect();
        for offset in 0..offsets {
            for len in 0..lens.min(40 - offset) {
                let bytes = &source[..len];
                let mut all = [0xff; 40];
                // SAFETY: all ranges are within the 40 bytes, which are whole words.
                unsafe {
                    copy_in(base, 0, &all);
                    copy_in(base, offset, bytes);
                    copy_out(base, 0, &mut all);
                }
                let mut expected = [0xff; 40];
                expected[offset..offset + len].copy_from_slice(bytes);
                assert_eq!(all, expected, "{len} bytes at {offset}");
                let mut back = [0; 40];
                // SAFETY: as above.
                unsafe { copy_out(base, offset, &mut back[..len]) };
                assert_eq!(back[..len], *bytes, "{len} bytes at {offset}");
            }
        }
    }

    #[test]
    fn concurrent_partial_word_writes_are_not_lost() {
        const ROUNDS: u8 = if cfg!(miri) { 10 } else { 50 };
        let memory = Allocation::of_process(16, Backing::Heap).expect("memory");
        let memory = &memory;
        std::thread::scope(|scope| {
            for part in 0..5_u8 {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let offset = usize::from(part) * 3;
                        // SAFETY: the ranges are within 15 of the 16 bytes, which are whole words.
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
