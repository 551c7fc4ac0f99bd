//! The number of heaps. This program has one test, because it measures the process.
#![cfg(all(target_env = "gnu", not(miri)))]

use test_support::process::memory;

/// Returns the address space of this process in bytes.
fn address_space() -> u64 {
    memory(std::process::id(), "VmSize")
}

/// Returns the address space that is used while another thread allocates.
fn with_another_thread() -> u64 {
    std::thread::scope(|scope| {
        let allocates = scope.spawn(|| {
            let allocated = std::hint::black_box(vec![1_u8; 1000]);
            let used = address_space();
            drop(allocated);
            used
        });
        allocates.join().unwrap()
    })
}

#[test]
fn threads_share_a_heap() {
    const HEAP: u64 = 64 * 1024 * 1024;
    let alone = address_space();
    assert!(with_another_thread() >= alone + HEAP, "glibc creates heaps");
    // The heap of the thread that has ended is used again until the number is limited.
    ibverbs::set_max_heaps(1);
    let before = address_space();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let used = with_another_thread();
                assert!(used < before + HEAP / 2, "{before}, then {used}");
            });
        }
    });
}
