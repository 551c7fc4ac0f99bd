//! Runs the fuzzing targets of the other crates, and checks how much memory they take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[doc(hidden)]
pub use libfuzzer_sys;

/// Memory in bytes that a target may take for an input of any length: the page of a report has
/// several plots.
const MEMORY: usize = 64 << 20;
/// Memory in bytes that a target may take for each byte of its input. One byte of a list of CPUs
/// or hosts can stand for thousands of them.
const MEMORY_PER_BYTE: usize = 16 << 10;

/// Defines the entry point of a program: `fuzz::target!(PATH)`.
#[macro_export]
macro_rules! target {
    ($target:path) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::run($target, data));
    };
}

/// Calls a target.
///
/// # Panics
/// Panics if the target does, or takes too much memory.
pub fn run(target: fn(&[u8]), data: &[u8]) {
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    target(data);
    let taken = PEAK.load(Relaxed).saturating_sub(before);
    assert!(
        taken <= MEMORY + data.len() * MEMORY_PER_BYTE,
        "{taken} bytes of memory for an input of {} bytes",
        data.len()
    );
}

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The allocator of the system, which counts.
struct Counting;

fn count(len: usize) {
    PEAK.fetch_max(USED.fetch_add(len, Relaxed) + len, Relaxed);
}

// SAFETY: all calls are passed on to the allocator of the system with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: upheld by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: upheld by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        USED.fetch_sub(layout.size(), Relaxed);
        count(len);
        // SAFETY: upheld by the caller.
        unsafe { System.realloc(memory, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
