//! The heap of the C library, which Rust uses as well.
#![allow(unsafe_code)]

/// Returns unused memory of the heap to the system.
///
/// The tables of queues and the objects of a provider are large, and the C library keeps freed
/// memory for later allocations. A program that stays idle after it has destroyed many queue pairs
/// can return it. Does nothing if the C library is not glibc.
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
