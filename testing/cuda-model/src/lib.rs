//! A model of libcuda for tests: the functions that `gpu-memory` calls, with the types of `cuda.h`.
//!
//! The memory of the model is a file, and its dma-buf is a `udmabuf` of the kernel
//! (`/dev/udmabuf`). An address in this memory is not one of the process: a program that accesses
//! it with the CPU crashes, as with a GPU. Allocations begin in the middle of a page.
//!
//! | variable | meaning |
//! |---|---|
//! | `CUDA_MODEL_GPUS=N` | number of GPUs, 1 by default |
//! | `CUDA_MODEL_NO_DMABUF=1` | the GPUs cannot export memory |
//! | `CUDA_MODEL_CONTENT=DIR` | exported memory that is freed is written to a file `PROCESS-NUMBER` in this directory |
#![allow(unsafe_code, reason = "the functions of a C library")]
#![allow(
    clippy::missing_panics_doc,
    reason = "a panic ends the test that made the call"
)]

use std::collections::BTreeMap;
use std::env;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fs::{self, File};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use test_support::udmabuf::{self, PAGE};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const NOT_SUPPORTED: c_int = 801;

const DMA_BUF_SUPPORTED: c_int = 124;
const DMA_BUF_FD: c_int = 1;

/// Name of the GPUs.
const NAME: &[u8] = b"NVIDIA Model\0";
/// Position of an allocation in its first page.
const START: u64 = 512;
/// Address of the first allocation. A process has no memory at such addresses.
const FIRST_ADDRESS: u64 = 0x00f0_0000_0000_0000;

/// The allocations by address.
struct Memory {
    next: u64,
    freed: u32,
    allocations: BTreeMap<u64, Allocation>,
}

struct Allocation {
    /// The memory, from the beginning of the first page.
    file: File,
    len: u64,
    /// Position and length of the exported part.
    exported: Option<(u64, u64)>,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    next: FIRST_ADDRESS,
    freed: 0,
    allocations: BTreeMap::new(),
});

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
        (offset.checked_add(len)? <= allocation.len).then_some((allocation, START + offset))
    }
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
    let pages = (START + len).next_multiple_of(PAGE);
    let Ok(file) = udmabuf::memory(pages) else {
        return OUT_OF_MEMORY;
    };
    let mut memory = memory();
    let start = memory.next + START;
    memory.next += pages + PAGE;
    let allocation = Allocation {
        file,
        len,
        exported: None,
    };
    memory.allocations.insert(start, allocation);
    // SAFETY: as the function's.
    unsafe { *address = start };
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
