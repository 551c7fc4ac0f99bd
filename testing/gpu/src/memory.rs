//! Memory of the host that kernels access.
#![allow(unsafe_code, reason = "maps memory and registers it with CUDA")]

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use crate::cuda::Cuda;

const PAGE: usize = 4096;

/// Pages of the process that are registered with CUDA.
#[derive(Debug)]
pub struct Registered<'a> {
    cuda: &'a Cuda,
    starts: Vec<*mut c_void>,
}

impl<'a> Registered<'a> {
    /// Registers the pages of these addresses and lengths. Each page is registered once.
    ///
    /// # Panics
    /// Panics if CUDA fails.
    ///
    /// # Safety
    /// The memory stays mapped while the result exists.
    pub unsafe fn new(cuda: &'a Cuda, ranges: &[(*const c_void, usize)]) -> Self {
        let pages: BTreeSet<usize> = ranges
            .iter()
            .flat_map(|&(start, len)| {
                let first = start.expose_provenance();
                first / PAGE..(first + len).div_ceil(PAGE)
            })
            .collect();
        let mut starts = Vec::new();
        let mut rest: Vec<usize> = pages.into_iter().collect();
        while let Some(&first) = rest.first() {
            let count = (0..)
                .zip(&rest)
                .take_while(|(index, page)| first + index == **page)
                .count();
            let start = ptr::with_exposed_provenance_mut(first * PAGE);
            cuda.register_host(start, count * PAGE);
            starts.push(start);
            rest.drain(..count);
        }
        Self { cuda, starts }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        for &start in &self.starts {
            self.cuda.unregister_host(start);
        }
    }
}

/// Memory of the host for `count` values, which a kernel can access. It is zeroed at first.
#[derive(Debug)]
pub struct HostMemory<'a, T: Copy> {
    start: *mut T,
    count: usize,
    len: usize,
    registered: Option<Registered<'a>>,
    values: PhantomData<T>,
}

impl<'a, T: Copy> HostMemory<'a, T> {
    /// Maps and registers the memory.
    ///
    /// # Panics
    /// Panics if there is not enough memory, or if CUDA fails.
    pub fn new(cuda: &'a Cuda, count: usize) -> Self {
        let len = (count * size_of::<T>()).max(1).next_multiple_of(PAGE);
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, both, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "memory");
        // SAFETY: the memory is unmapped after the registration is dropped.
        let registered = unsafe { Registered::new(cuda, &[(start, len)]) };
        Self {
            start: start.cast(),
            count,
            len,
            registered: Some(registered),
            values: PhantomData,
        }
    }

    /// Returns the address for kernels.
    pub fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    /// Writes a value.
    ///
    /// # Panics
    /// Panics if there is no such index.
    pub fn set(&mut self, index: usize, value: T) {
        assert!(index < self.count, "{index} of {}", self.count);
        // SAFETY: the index is inside, and no kernel runs: launching one waits for its end.
        unsafe { self.start.add(index).write_volatile(value) }
    }

    /// Reads a value.
    ///
    /// # Panics
    /// Panics if there is no such index.
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.count, "{index} of {}", self.count);
        // SAFETY: as in `set`. The memory was zeroed or written by `set`, and kernels write
        // integers.
        unsafe { self.start.add(index).read_volatile() }
    }
}

impl<T: Copy> Drop for HostMemory<'_, T> {
    fn drop(&mut self) {
        self.registered = None;
        // SAFETY: the mapping belongs to `self`.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}
