//! The return of unused memory. This program has one test, because it measures the process.
#![cfg(all(target_env = "gnu", not(miri)))]

use test_support::process::memory;

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    memory(std::process::id(), "VmRSS")
}

#[test]
fn memory_of_a_thread_is_returned() {
    const BLOCK: usize = 64 * 1024;
    const TOTAL: usize = 32 * 1024 * 1024;
    ibverbs::set_heap_trim_threshold(128 * 1024);
    // Without the fixed threshold, this free would raise it to 64 MiB.
    drop(std::hint::black_box(vec![1_u8; TOTAL - BLOCK]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let before = resident();
            let blocks: Vec<_> = (0..TOTAL / BLOCK).map(|_| vec![1_u8; BLOCK]).collect();
            // No allocation follows the blocks, so the end of the heap is unused after this.
            drop(std::hint::black_box(blocks));
            ibverbs::trim_heap();
            let kept = resident().saturating_sub(before);
            assert!(kept < TOTAL as u64 / 32, "{kept} of {TOTAL} bytes kept");
        });
    });
}
