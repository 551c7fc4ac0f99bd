//! A model of libcuda for tests: the functions that `gpu-memory` and the tests of `testing/gpu`
//! call, with the types of `cuda.h`.
//!
//! The memory of the model is a file, and its dma-buf is a `udmabuf` of the kernel
//! (`/dev/udmabuf`). An address in this memory is not one of the process: a program that accesses
//! it with the CPU crashes, as with a GPU. Small allocations begin in the middle of a page, as on
//! an H100. Kernels are the functions of `testing/gpu/kernels.c`, compiled for the processor. They
//! run when they are launched, in the calling thread.
//!
//! | variable | meaning |
//! |---|---|
//! | `CUDA_MODEL_GPUS=N` | number of GPUs, 1 by default |
//! | `CUDA_MODEL_MEMORY=N` | memory of a GPU in bytes, 256 MiB by default |
//! | `CUDA_MODEL_NO_DMABUF=1` | the GPUs cannot export memory |
//! | `CUDA_MODEL_CONTENT=DIR` | exported memory that is freed is written to a file `PROCESS-NUMBER` in this directory |
#![allow(unsafe_code, reason = "the functions of a C library")]
#![allow(
    clippy::missing_panics_doc,
    reason = "a panic ends the test that made the call"
)]

mod kernels;
// Not from the crate test-support, which would change the signals of programs that load this one.
#[allow(dead_code, unreachable_pub, reason = "shared with test-support")]
#[path = "../../test-support/src/udmabuf.rs"]
mod udmabuf;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use udmabuf::PAGE;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const NOT_FOUND: c_int = 500;
const ALREADY_REGISTERED: c_int = 712;
const NOT_REGISTERED: c_int = 713;
const NOT_SUPPORTED: c_int = 801;

const DMA_BUF_SUPPORTED: c_int = 124;
const DMA_BUF_FD: c_int = 1;

/// Name of the GPUs.
const NAME: &[u8] = b"NVIDIA Model\0";
/// Position of a small allocation in its first page.
const START: u64 = 512;
/// Length from which allocations begin with a page.
const LARGE: u64 = 1 << 20;
/// Distance of allocations, which is also the alignment of large ones.
const DISTANCE: u64 = 2 << 20;
/// Address of the first allocation. A process has no memory at such addresses.
const FIRST_ADDRESS: u64 = 0x00f0_0000_0000_0000;

/// The allocations by address.
struct Memory {
    next: u64,
    freed: u32,
    allocations: BTreeMap<u64, Allocation>,
    /// Host memory that was registered: the ends of the ranges, by their starts.
    registered: BTreeMap<usize, usize>,
}

struct Allocation {
    /// The memory, from the beginning of the first page.
    file: File,
    /// Position of the first byte in the file.
    start: u64,
    len: u64,
    /// The memory as kernels see it.
    mapping: Mapping,
    /// Position and length of the exported part.
    exported: Option<(u64, u64)>,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    next: FIRST_ADDRESS,
    freed: 0,
    allocations: BTreeMap::new(),
    registered: BTreeMap::new(),
});

/// A mapping of the pages of an allocation.
struct Mapping {
    address: *mut c_void,
    len: usize,
}

// SAFETY: the mapping belongs to the process, and the model does not access its memory itself.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: &File, len: u64) -> std::io::Result<Self> {
        let len = usize::try_from(len).expect("a size in memory");
        let (both, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), len, both, shared, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { address, len })
    }

    /// Returns the address of a byte.
    fn at(&self, offset: u64) -> *mut c_void {
        let offset = usize::try_from(offset).expect("a size in memory");
        self.address.wrapping_byte_add(offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is not used any more: kernels run only while they are launched.
        unsafe { libc::munmap(self.address, self.len) };
    }
}

fn memory() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static HAS_CONTEXT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn gpus() -> c_int {
    let number = env::var("CUDA_MODEL_GPUS").map(|text| text.parse());
    number.map_or(1, |number| number.expect("a number of GPUs"))
}

impl Memory {
    /// Returns the allocation that has these bytes, and their position in its file.
    fn find(&mut self, address: u64, len: u64) -> Option<(&mut Allocation, u64)> {
        let (start, allocation) = self.allocations.range_mut(..=address).next_back()?;
        let offset = address - start;
        let at = allocation.start + offset;
        (offset.checked_add(len)? <= allocation.len).then_some((allocation, at))
    }

    /// Returns the number of bytes in use, in whole pages.
    fn used(&self) -> u64 {
        let pages = |one: &Allocation| one.mapping.len as u64;
        self.allocations.values().map(pages).sum()
    }
}

fn total_memory() -> u64 {
    let bytes = env::var("CUDA_MODEL_MEMORY").map(|text| text.parse());
    bytes.map_or(256 << 20, |bytes| bytes.expect("a number of bytes"))
}

/// Runs `work` on the bytes, if the calling thread has a context and they are allocated.
fn with_bytes(address: u64, len: usize, work: impl FnOnce(&mut Allocation, u64) -> c_int) -> c_int {
    if !HAS_CONTEXT.get() {
        return INVALID_CONTEXT;
    }
    memory()
        .find(address, len as u64)
        .map_or(INVALID_VALUE, |(allocation, at)| work(allocation, at))
}

/// `cuInit`
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_int {
    if gpus() > 0 { SUCCESS } else { NO_DEVICE }
}

/// `cuGetErrorName`
///
/// # Safety
/// `text` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: c_int, text: *mut *const c_char) -> c_int {
    let name = match error {
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        ALREADY_REGISTERED => c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        NOT_REGISTERED => c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        _ => return INVALID_VALUE,
    };
    // SAFETY: as the function's.
    unsafe { *text = name.as_ptr() };
    SUCCESS
}

/// `cuGetErrorString`
///
/// # Safety
/// `text` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: as the function's.
    unsafe { *text = c"error of the model".as_ptr() };
    SUCCESS
}

/// `cuDeviceGetCount`
///
/// # Safety
/// `count` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: as the function's.
    unsafe { *count = gpus() };
    SUCCESS
}

/// `cuDeviceGet`
///
/// # Safety
/// `device` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, number: c_int) -> c_int {
    if !(0..gpus()).contains(&number) {
        return INVALID_DEVICE;
    }
    // SAFETY: as the function's.
    unsafe { *device = number };
    SUCCESS
}

/// `cuDeviceGetName`
///
/// # Safety
/// `name` is valid for writing `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) -> c_int {
    if usize::try_from(len).is_ok_and(|len| len < NAME.len()) {
        return INVALID_VALUE;
    }
    // SAFETY: as the function's, and the length is checked.
    unsafe { std::ptr::copy_nonoverlapping(NAME.as_ptr(), name.cast(), NAME.len()) };
    SUCCESS
}

/// `cuDeviceGetAttribute`
///
/// # Safety
/// `value` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    _device: c_int,
) -> c_int {
    if attribute != DMA_BUF_SUPPORTED {
        return INVALID_VALUE;
    }
    // SAFETY: as the function's.
    unsafe { *value = c_int::from(env::var_os("CUDA_MODEL_NO_DMABUF").is_none()) };
    SUCCESS
}

/// `cuDevicePrimaryCtxRetain`
///
/// # Safety
/// `context` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    device: c_int,
) -> c_int {
    let handle = usize::try_from(device + 1).unwrap_or(1);
    // SAFETY: as the function's. The handle is only a number.
    unsafe { *context = std::ptr::without_provenance_mut(handle) };
    SUCCESS
}

/// `cuDevicePrimaryCtxRelease`
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    let left = memory().allocations.len();
    assert_eq!(left, 0, "allocations that were not freed");
    SUCCESS
}

/// `cuCtxSetCurrent`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    HAS_CONTEXT.set(!context.is_null());
    SUCCESS
}

/// `cuCtxSynchronize`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    if HAS_CONTEXT.get() {
        SUCCESS
    } else {
        INVALID_CONTEXT
    }
}

/// `cuMemAlloc`
///
/// # Safety
/// `address` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut c_ulonglong, len: usize) -> c_int {
    if !HAS_CONTEXT.get() {
        return INVALID_CONTEXT;
    }
    let len = len as u64;
    let start = if len < LARGE { START } else { 0 };
    let pages = (start + len).next_multiple_of(PAGE);
    let mut memory = memory();
    if pages > total_memory().saturating_sub(memory.used()) {
        return OUT_OF_MEMORY;
    }
    let Ok(file) = udmabuf::memory(pages) else {
        return OUT_OF_MEMORY;
    };
    let Ok(mapping) = Mapping::new(&file, pages) else {
        return OUT_OF_MEMORY;
    };
    let first = memory.next + start;
    memory.next += (pages + PAGE).next_multiple_of(DISTANCE);
    let allocation = Allocation {
        file,
        start,
        len,
        mapping,
        exported: None,
    };
    memory.allocations.insert(first, allocation);
    // SAFETY: as the function's.
    unsafe { *address = first };
    SUCCESS
}

/// `cuMemFree`
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: c_ulonglong) -> c_int {
    if !HAS_CONTEXT.get() {
        return INVALID_CONTEXT;
    }
    let mut memory = memory();
    let Some(allocation) = memory.allocations.remove(&address) else {
        return INVALID_VALUE;
    };
    memory.freed += 1;
    let directory = env::var("CUDA_MODEL_CONTENT").ok();
    if let Some((directory, (at, len))) = directory.zip(allocation.exported) {
        let mut content = vec![0; usize::try_from(len).expect("a size in memory")];
        let read = allocation.file.read_exact_at(&mut content, at);
        read.expect("the memory");
        let path = format!("{directory}/{}-{}", std::process::id(), memory.freed);
        fs::write(path, content).expect("the directory of the content");
    }
    SUCCESS
}

/// `cuMemsetD8`
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8_v2(address: c_ulonglong, byte: u8, len: usize) -> c_int {
    with_bytes(address, len, |allocation, at| {
        let written = allocation.file.write_all_at(&vec![byte; len], at);
        written.expect("memory of the model");
        SUCCESS
    })
}

/// `cuMemcpyHtoD`
///
/// # Safety
/// `from` is valid for reading `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(
    to: c_ulonglong,
    from: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: as the function's.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) };
    with_bytes(to, len, |allocation, at| {
        let written = allocation.file.write_all_at(bytes, at);
        written.expect("memory of the model");
        SUCCESS
    })
}

/// `cuMemGetHandleForAddressRange`
///
/// # Safety
/// `handle` is valid for writing a file descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    address: c_ulonglong,
    len: usize,
    kind: c_int,
    flags: c_ulonglong,
) -> c_int {
    let is_aligned = address % PAGE == 0 && len as u64 % PAGE == 0 && len > 0;
    if kind != DMA_BUF_FD || flags != 0 || !is_aligned {
        return INVALID_VALUE;
    }
    with_bytes(address, len, |allocation, at| {
        let Ok(dmabuf) = udmabuf::export(&allocation.file, at, len as u64) else {
            return NOT_SUPPORTED;
        };
        allocation.exported = Some((at, len as u64));
        // SAFETY: as the function's.
        unsafe { *handle.cast::<c_int>() = dmabuf.into_raw_fd() };
        SUCCESS
    })
}

/// `cuMemcpyDtoH`
///
/// # Safety
/// `to` is valid for writing `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: c_ulonglong, len: usize) -> c_int {
    // SAFETY: as the function's; the memory may be uninitialized, and is only written.
    unsafe { std::ptr::write_bytes(to.cast::<u8>(), 0, len) };
    // SAFETY: as the function's, and the bytes are initialized.
    let bytes = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
    with_bytes(from, len, |allocation, at| {
        let read = allocation.file.read_exact_at(bytes, at);
        read.expect("memory of the model");
        SUCCESS
    })
}

/// `cuMemGetInfo`
///
/// # Safety
/// `free` and `total` are valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    if !HAS_CONTEXT.get() {
        return INVALID_CONTEXT;
    }
    let all = total_memory();
    let unused = all.saturating_sub(memory().used());
    let size = |bytes| usize::try_from(bytes).expect("a size in memory");
    // SAFETY: as the function's.
    unsafe { (*free, *total) = (size(unused), size(all)) };
    SUCCESS
}

/// `cuMemHostRegister`: kernels of the model can access all memory of the process.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(address: *mut c_void, len: usize, _flags: c_uint) -> c_int {
    let (start, end) = (address.addr(), address.addr() + len);
    let mut memory = memory();
    let before = memory.registered.range(..end).next_back();
    if len == 0 || before.is_some_and(|(_, &other)| other > start) {
        return if len == 0 {
            INVALID_VALUE
        } else {
            ALREADY_REGISTERED
        };
    }
    memory.registered.insert(start, end);
    SUCCESS
}

/// `cuMemHostUnregister`
#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(address: *mut c_void) -> c_int {
    match memory().registered.remove(&address.addr()) {
        Some(_) => SUCCESS,
        None => NOT_REGISTERED,
    }
}

/// `cuStreamCreate`: launched kernels have ended when the launch returns, so a stream has no state.
///
/// # Safety
/// `stream` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) -> c_int {
    // SAFETY: as the function's. The handle is only a number.
    unsafe { *stream = std::ptr::without_provenance_mut(1) };
    SUCCESS
}

/// `cuStreamSynchronize`
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(_stream: *mut c_void) -> c_int {
    SUCCESS
}

/// `cuMemcpyDtoHAsync`
///
/// # Safety
/// `to` is valid for writing `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: c_ulonglong,
    len: usize,
    _stream: *mut c_void,
) -> c_int {
    // SAFETY: as the function's.
    unsafe { cuMemcpyDtoH_v2(to, from, len) }
}

/// `cuMemcpyHtoDAsync`
///
/// # Safety
/// `from` is valid for reading `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: c_ulonglong,
    from: *const c_void,
    len: usize,
    _stream: *mut c_void,
) -> c_int {
    // SAFETY: as the function's.
    unsafe { cuMemcpyHtoD_v2(to, from, len) }
}
