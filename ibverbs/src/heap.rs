//! The heap of the C library, which Rust uses as well.
#![allow(unsafe_code)]

/// Returns unused memory of the heap to the system.
///
/// The tables of queues and the objects of a provider are large, and the C library keeps freed
/// memory for later allocations. A program that stays idle after it has destroyed many queue pairs
/// can return it. Does nothing if the C library is not glibc.
///
/// This does not return the unused memory at the end of the heap of a thread: see
/// [`set_heap_trim_threshold`].
///
/// # Example
/// ```
/// # let queue_pairs: Vec<u8> = vec![];
/// drop(queue_pairs);
/// ibverbs::trim_heap();
/// ```
///
/// # References
/// [malloc_trim(3)](https://man7.org/linux/man-pages/man3/malloc_trim.3.html)
pub fn trim_heap() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    // SAFETY: `malloc_trim` has no preconditions and takes the locks of the heap itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Sets how much unused memory the C library keeps at the end of each heap, in bytes.
///
/// glibc begins with 128 KiB and raises this threshold to up to 64 MiB when a program frees a large
/// allocation. Each thread can have a heap of its own, so a program with many threads can keep
/// hundreds of megabytes that [`trim_heap`] does not return. A fixed threshold ends the increase,
/// also for the size from which an allocation has a mapping of its own (`M_MMAP_THRESHOLD`).
///
/// Applies to later frees: a program that wants to return its memory calls this when it starts.
/// Does nothing if the C library is not glibc.
///
/// # Example
/// ```
/// ibverbs::set_heap_trim_threshold(128 * 1024);
/// ```
///
/// # References
/// [mallopt(3)](https://man7.org/linux/man-pages/man3/mallopt.3.html), `M_TRIM_THRESHOLD`
pub fn set_heap_trim_threshold(bytes: u32) {
    #[cfg(all(target_env = "gnu", not(miri)))]
    set_option(libc::M_TRIM_THRESHOLD, bytes);
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    let _ = bytes;
}

/// Sets how many heaps (arenas) the C library creates at most.
///
/// glibc creates a heap for each new thread, up to eight for each processor, and reserves 64 to 128
/// MiB of address space for it. If the address space is limited (`ulimit -v`), little is left for
/// other threads, and an allocation that fails there ends a Rust program. With a `count` of 1, all
/// threads share the main heap.
///
/// Applies to heaps that are created later: call this before the first thread is started. Does
/// nothing if the C library is not glibc.
///
/// # Example
/// ```
/// ibverbs::set_max_heaps(1);
/// ```
///
/// # References
/// [mallopt(3)](https://man7.org/linux/man-pages/man3/mallopt.3.html), `M_ARENA_MAX`
pub fn set_max_heaps(count: u32) {
    #[cfg(all(target_env = "gnu", not(miri)))]
    set_option(libc::M_ARENA_MAX, count);
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    let _ = count;
}

/// Sets an option of the heap, `M_TRIM_THRESHOLD` or `M_ARENA_MAX`.
#[cfg(all(target_env = "gnu", not(miri)))]
fn set_option(option: libc::c_int, value: u32) {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    // SAFETY: `mallopt` takes the lock of the main heap. It stores the value in a word: the
    // threshold, which `free` changes in any thread while it is not fixed, or the number of heaps,
    // which new threads read.
    unsafe {
        libc::mallopt(option, value);
    }
}
