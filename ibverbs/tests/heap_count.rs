//! The number of heaps. This program has one test, because it measures the process.
#![cfg(all(target_env = "gnu", not(miri)))]

/// Returns the address space of this process in bytes.
fn address_space() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.unwrap().parse::<usize>().unwrap() * 1024
}

/// Returns the address space that is used while another thread allocates.
fn with_another_thread() -> usize {
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
    const HEAP: usize = 64 * 1024 * 1024;
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
