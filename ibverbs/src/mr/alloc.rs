//! The allocation behind a region: raw memory that never moves and is never a `Box`.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_sys::{ibv_alloc_buf, ibv_buf, ibv_free_buf};

use super::caller::CallerMemory;
use super::options::Backing;
use crate::convert::non_null;
use crate::error::{Errno, Error, ErrorKind, Result, call_failed};
use crate::pd::ProtectionDomain;
use crate::raw::AsRaw;

const PAGE: usize = 4096;
/// Size of the words in which memory is copied.
const WORD: usize = 8;

/// Memory to which references only exist while a buffer in it is borrowed.
///
/// Except for caller memory, it starts at a multiple of 8 bytes, and the 8-byte word of its last
/// byte belongs to it.
pub(crate) struct Allocation {
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
    /// `true` once the memory was registered in several domains.
    shared: AtomicBool,
}

/// The source of the memory, which determines how it is freed.
enum Origin {
    Heap(Layout),
    Mapped(usize),
    /// `None` after the memory was returned to the caller.
    Caller(Option<CallerMemory>),
    Provider(ProviderBuffer),
}

/// Memory from `ibv_alloc_buf`. The protection domain outlives it.
struct ProviderBuffer {
    raw: NonNull<ibv_buf>,
    _pd: ProtectionDomain,
}

impl Drop for ProviderBuffer {
    fn drop(&mut self) {
        // SAFETY: the buffer was returned by `ibv_alloc_buf`, is freed once, and its memory is no
        // longer used: it is dropped with its allocation.
        unsafe { ibv_free_buf(self.raw.as_ptr()) }
    }
}

// SAFETY: this is plain memory with one owner. The types built on it control access to its parts.
unsafe impl Send for Allocation {}
// SAFETY: a shared Allocation only gives out a pointer.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(crate) fn new(pd: &ProtectionDomain, len: usize, backing: Backing) -> Result<Self> {
        match backing {
            Backing::Provider if len > 0 => Self::of_provider(pd, len),
            backing => Self::of_process(len, backing),
        }
    }

    /// Allocates memory that does not depend on a device.
    pub(crate) fn of_process(len: usize, backing: Backing) -> Result<Self> {
        if len == 0 {
            return Err(invalid_len(len));
        }
        match backing {
            Backing::Heap => Self::heap(len),
            Backing::Pages => Self::mapped(len, PAGE, 0, "allocate less memory"),
            Backing::HugePages(size) => {
                Self::mapped(len, size.bytes(), size.map_flags(), size.help())
            }
            Backing::Caller(memory) => Self::caller(len, memory),
            Backing::Provider => Err(invalid_len(len)),
        }
    }

    fn of_provider(pd: &ProtectionDomain, len: usize) -> Result<Self> {
        let size = len.checked_next_multiple_of(WORD);
        let size = size.ok_or_else(|| invalid_len(len))?;
        let mut buf = ptr::null_mut();
        let what = || format!("{size} bytes on {}", pd.context().device_name());
        let start: NonNull<u8> = non_null("ibv_alloc_buf", what, || {
            // SAFETY: the domain is alive and the handle is writable.
            unsafe { ibv_alloc_buf(pd.as_raw(), size, &raw mut buf) }
        })?
        .cast();
        let raw = NonNull::new(buf).ok_or_else(|| invalid_len(len))?;
        let buffer = ProviderBuffer {
            raw,
            _pd: pd.clone(),
        };
        // SAFETY: the memory has `size` bytes, and nothing else refers to it yet.
        unsafe { start.write_bytes(0, size) };
        Ok(Self {
            start,
            len,
            origin: Origin::Provider(buffer),
            shared: AtomicBool::new(false),
        })
    }

    fn heap(len: usize) -> Result<Self> {
        let layout = Layout::from_size_align(len, PAGE)
            .map_err(|_| invalid_len(len))?
            .pad_to_align();
        // SAFETY: the size of the layout is not zero.
        let start =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| invalid_len(len))?;
        Ok(Self {
            start,
            len,
            origin: Origin::Heap(layout),
            shared: AtomicBool::new(false),
        })
    }

    fn mapped(len: usize, page: usize, flags: i32, help: &'static str) -> Result<Self> {
        let size = len
            .checked_next_multiple_of(page)
            .ok_or_else(|| invalid_len(len))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: a new anonymous mapping at an address chosen by the kernel affects no other
        // memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED.cast() => Ok(Self {
                start,
                len,
                origin: Origin::Mapped(size),
                shared: AtomicBool::new(false),
            }),
            _ => Err(call_failed("mmap", Errno::last(), format!("{size} bytes")).with_help(help)),
        }
    }

    fn caller(len: usize, memory: CallerMemory) -> Result<Self> {
        if memory.len() < len {
            let what = format!("{len} bytes of caller memory, which has {}", memory.len());
            return Err(Error::new(ErrorKind::InvalidInput, "allocate", what));
        }
        Ok(Self {
            start: memory.start(),
            len,
            origin: Origin::Caller(Some(memory)),
            shared: AtomicBool::new(false),
        })
    }

    /// Returns `true` if the pages of the memory are returned to the kernel, and not to an
    /// allocator of the process, when it is dropped.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.origin, Origin::Mapped(_))
    }

    /// Returns the memory of the caller, if this is such memory.
    pub(crate) fn caller_memory(&self) -> Option<&CallerMemory> {
        match &self.origin {
            Origin::Caller(memory) => memory.as_ref(),
            _ => None,
        }
    }

    /// Returns the memory of the caller, if this is such memory.
    pub(crate) fn into_caller_memory(mut self) -> Option<CallerMemory> {
        match &mut self.origin {
            Origin::Caller(memory) => memory.take(),
            _ => None,
        }
    }

    /// Returns the buffer of the provider that the memory belongs to, if it does. Such memory must
    /// be registered in the protection domain that it was allocated for.
    pub(crate) fn provider_buffer(&self) -> Option<NonNull<ibv_buf>> {
        match &self.origin {
            Origin::Provider(buffer) => Some(buffer.raw),
            _ => None,
        }
    }

    /// Records that the memory is registered in several domains.
    pub(crate) fn set_shared(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the memory was ever registered in several domains.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if every 8-byte word that contains a byte of the memory belongs to it
    /// completely.
    pub(crate) fn is_whole_words(&self) -> bool {
        !matches!(self.origin, Origin::Caller(_))
            || (self.start.addr().get() % 8 == 0 && self.len % 8 == 0)
    }
}

fn invalid_len(len: usize) -> Error {
    Error::new(ErrorKind::InvalidInput, "allocate", format!("{len} bytes"))
        .with_help("use at least 1 byte and not more than the memory of the system")
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated in `heap` with this layout and freed once.
            Origin::Heap(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            // SAFETY: mapped in `mapped` with this size and unmapped once. Unmapping a whole
            // mapping cannot fail.
            Origin::Mapped(size) => unsafe {
                libc::munmap(self.start.as_ptr().cast(), size);
            },
            // They are freed with the field.
            Origin::Caller(_) | Origin::Provider(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_whole_words() {
        for len in [1, 7, 4096, 4097] {
            let memory = Allocation::of_process(len, Backing::Heap).expect("heap");
            assert!(memory.is_whole_words());
            // SAFETY: the allocation has `len` initialized bytes.
            let bytes =
                unsafe { std::slice::from_raw_parts(memory.start().as_ptr(), memory.len()) };
            assert!(bytes == vec![0; len]);
        }
    }

    #[test]
    fn invalid_lengths_are_rejected_with_help() {
        let error = Allocation::of_process(0, Backing::Pages)
            .err()
            .expect("no bytes");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.help().is_some());
        assert!(Allocation::of_process(usize::MAX, Backing::Heap).is_err());
        assert!(Allocation::of_process(usize::MAX, Backing::Pages).is_err());
        // More than the address space. Miri has no limit and would abort.
        if cfg!(not(miri)) {
            assert!(Allocation::of_process(1 << 60, Backing::Pages).is_err());
        }
    }

    #[test]
    fn owner_is_dropped_with_caller_memory() {
        let owner = std::sync::Arc::new(());
        let bytes = Box::into_raw(Box::new([7_u8; 16]));
        let start = NonNull::new(bytes.cast::<u8>()).expect("allocated");
        // SAFETY: the memory is freed at the end of the test and not used before that.
        let memory = unsafe { CallerMemory::new(start, 16, std::sync::Arc::clone(&owner)) };
        assert!(
            Allocation::of_process(17, Backing::Caller(memory)).is_err(),
            "too long"
        );
        assert_eq!(std::sync::Arc::strong_count(&owner), 1);
        // SAFETY: as above; the first CallerMemory was dropped.
        let memory = unsafe { CallerMemory::new(start, 16, std::sync::Arc::clone(&owner)) };
        let allocation = Allocation::of_process(15, Backing::Caller(memory)).expect("fits");
        assert!(
            !allocation.is_whole_words(),
            "the last word is not complete"
        );
        assert_eq!(std::sync::Arc::strong_count(&owner), 2);
        drop(allocation);
        assert_eq!(std::sync::Arc::strong_count(&owner), 1);
        // SAFETY: the pointer comes from `Box::into_raw` above, and nothing uses it any more.
        drop(unsafe { Box::from_raw(bytes) });
    }
}
