//! A model of libcuda for tests: the functions that `gpu-memory` and the tests of `testing/gpu`
//! call, with the types of `cuda.h`.
//!
//! The memory of the model is a file, and its dma-buf is a `udmabuf` of the kernel
//! (`/dev/udmabuf`). An address in this memory is not one of the process: a program that accesses
//! it with the CPU crashes, as with a GPU. Small allocations begin in the middle of a page, as on
//! an H100. Kernels are the functions of `testing/gpu/kernels.c`, compiled for the processor. They
//! run when they are launched, in the calling thread.
//!
//! The model does what a driver may do at worst. New memory is not zeroed. Writes of `cuMemsetD8`
//! and `cuMemcpyHtoD` arrive when the context is synchronized, or before the next read by
//! `cuMemcpyDtoH`. Memory is only found in its own context. The process aborts if memory is freed
//! before its dma-buf is closed, or if a context is released before its memory.
//!
//! | variable | meaning |
//! |---|---|
//! | `CUDA_MODEL_GPUS=N` | number of GPUs, 1 by default |
//! | `CUDA_MODEL_MEMORY=N` | memory of a GPU in bytes, 256 MiB by default |
//! | `CUDA_MODEL_NO_DMABUF=1` | the GPUs cannot export memory; `unknown`: their driver does not know whether they can; `silent`: an export succeeds without a descriptor |
//! | `CUDA_MODEL_FILES=1` | exports are not dma-bufs but the file, at the position of the first byte; for kernels without `/dev/udmabuf` |
//! | `CUDA_MODEL_FAIL=NAME` | the function of this name, without `_v2`, fails with the unnamed error 999 |
//! | `CUDA_MODEL_CONTENT=DIR` | exported memory that is freed is written to a file `PROCESS-NUMBER` in this directory |
#![allow(unsafe_code, reason = "the functions of a C library")]
#![allow(
    clippy::missing_panics_doc,
    reason = "a panic ends the test that made the call"
)]

mod kernels;
mod memory;
// Not from the crate test-support, which would change the signals of programs that load this one.
#[allow(dead_code, unreachable_pub, reason = "shared with test-support")]
#[path = "../../test-support/src/udmabuf.rs"]
mod udmabuf;

use std::env;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use memory::{Allocation, Mapping, Memory, Write, fill, memory};
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
const UNKNOWN: c_int = 999;

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

thread_local! {
    /// The current context. No context is 0.
    static CONTEXT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn gpus() -> c_int {
    let number = env::var("CUDA_MODEL_GPUS").map(|text| text.parse());
    number.map_or(1, |number| number.expect("a number of GPUs"))
}

/// Returns `true` if the function `name` is to fail.
fn fails(name: &str) -> bool {
    env::var_os("CUDA_MODEL_FAIL").is_some_and(|failing| failing == name)
}

fn total_memory() -> u64 {
    let bytes = env::var("CUDA_MODEL_MEMORY").map(|text| text.parse());
    bytes.map_or(256 << 20, |bytes| bytes.expect("a number of bytes"))
}

/// Runs `work`, if the current context exists, for the function `name`.
fn with_context(name: &str, work: impl FnOnce(&mut Memory) -> c_int) -> c_int {
    let mut memory = memory();
    if fails(name) {
        UNKNOWN
    } else if memory.contexts.contains_key(&CONTEXT.get()) {
        work(&mut memory)
    } else {
        INVALID_CONTEXT
    }
}

/// Runs `work` on the bytes, if they are memory of the current context.
fn with_bytes(
    name: &str,
    address: u64,
    len: usize,
    work: impl FnOnce(&mut Allocation, u64) -> c_int,
) -> c_int {
    with_context(name, |memory| match memory.find(address, len as u64) {
        Some((allocation, at)) if allocation.context == CONTEXT.get() => work(allocation, at),
        _ => INVALID_VALUE,
    })
}

/// Writes at the next synchronization, if the bytes are memory of the current context.
fn write_later(name: &str, address: u64, len: usize, write: Write) -> c_int {
    let status = with_bytes(name, address, len, |_, _| SUCCESS);
    if status == SUCCESS {
        memory().pending.push((address, write));
    }
    status
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
    if fails("cuDeviceGetCount") {
        return UNKNOWN;
    }
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
    if fails("cuDeviceGet") {
        return UNKNOWN;
    }
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
    if fails("cuDeviceGetName") {
        return UNKNOWN;
    }
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
    let missing = env::var("CUDA_MODEL_NO_DMABUF").unwrap_or_default();
    // SAFETY: as the function's.
    unsafe { *value = c_int::from(missing != "1") };
    if missing == "unknown" {
        return INVALID_VALUE;
    }
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
    if fails("cuDevicePrimaryCtxRetain") {
        return UNKNOWN;
    }
    let handle = context_of(device);
    *memory().contexts.entry(handle).or_default() += 1;
    // SAFETY: as the function's. The handle is only a number.
    unsafe { *context = std::ptr::without_provenance_mut(handle) };
    SUCCESS
}

/// Returns the handle of the primary context of a GPU.
fn context_of(device: c_int) -> usize {
    usize::try_from(device).map_or(1, |device| device + 1)
}

/// `cuDevicePrimaryCtxRelease`
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    let mut memory = memory();
    let context = context_of(device);
    let Some(count) = memory.contexts.get_mut(&context) else {
        return INVALID_CONTEXT;
    };
    *count -= 1;
    if *count == 0 {
        memory.contexts.remove(&context);
        let mut allocations = memory.allocations.values();
        let is_used = allocations.any(|allocation| allocation.context == context);
        assert!(!is_used, "the context is released before its memory");
    }
    SUCCESS
}

/// `cuDevicePrimaryCtxGetState`
///
/// # Safety
/// `flags` and `is_active` are valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    is_active: *mut c_int,
) -> c_int {
    let is_retained = memory().contexts.contains_key(&context_of(device));
    // SAFETY: as the function's.
    unsafe { (*flags, *is_active) = (0, c_int::from(is_retained)) };
    SUCCESS
}

/// `cuCtxSetCurrent`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    if fails("cuCtxSetCurrent") {
        return UNKNOWN;
    }
    CONTEXT.set(context.addr());
    SUCCESS
}

/// `cuCtxSynchronize`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    with_context("cuCtxSynchronize", |memory| {
        memory.synchronize();
        SUCCESS
    })
}

/// `cuMemAlloc`
///
/// # Safety
/// `address` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut c_ulonglong, len: usize) -> c_int {
    with_context("cuMemAlloc", |memory| {
        let len = len as u64;
        let start = if len < LARGE { START } else { 0 };
        let pages = (start + len).next_multiple_of(PAGE);
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
            context: CONTEXT.get(),
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
    })
}

/// `cuMemFree`
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: c_ulonglong) -> c_int {
    with_context("cuMemFree", |memory| {
        memory.synchronize();
        let Some(allocation) = memory.allocations.remove(&address) else {
            return INVALID_VALUE;
        };
        memory.freed += 1;
        let Some(exported) = &allocation.exported else {
            return SUCCESS;
        };
        let is_open = exported.is_open();
        assert!(!is_open, "memory is freed before its dma-buf is closed");
        if let Ok(directory) = env::var("CUDA_MODEL_CONTENT") {
            let mut content = vec![0; usize::try_from(exported.len).expect("a size in memory")];
            let read = allocation.file.read_exact_at(&mut content, exported.at);
            read.expect("the memory");
            let path = format!("{directory}/{}-{}", std::process::id(), memory.freed);
            fs::write(path, content).expect("the directory of the content");
        }
        SUCCESS
    })
}

/// `cuMemsetD8`
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8_v2(address: c_ulonglong, byte: u8, len: usize) -> c_int {
    let write = move |file: &File, at| fill(file, at, byte, len);
    write_later("cuMemsetD8", address, len, Box::new(write))
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
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec();
    let write = move |file: &File, at| file.write_all_at(&bytes, at);
    write_later("cuMemcpyHtoD", to, len, Box::new(write))
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
    if env::var_os("CUDA_MODEL_NO_DMABUF").is_some() {
        return SUCCESS;
    }
    let name = "cuMemGetHandleForAddressRange";
    with_bytes(name, address, len, |allocation, at| {
        let Ok(descriptor) = allocation.export(at, len as u64) else {
            return NOT_SUPPORTED;
        };
        // SAFETY: as the function's.
        unsafe { *handle.cast::<c_int>() = descriptor };
        SUCCESS
    })
}

/// `cuMemcpyDtoH`
///
/// # Safety
/// `to` is valid for writing `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: c_ulonglong, len: usize) -> c_int {
    // It waits for the calls before it, which are in the same stream.
    memory().synchronize();
    // SAFETY: as the function's.
    unsafe { read("cuMemcpyDtoH", to, from, len) }
}

/// # Safety
/// `to` is valid for writing `len` bytes.
unsafe fn read(name: &str, to: *mut c_void, from: u64, len: usize) -> c_int {
    // SAFETY: as the function's; the memory may be uninitialized, and is only written.
    unsafe { std::ptr::write_bytes(to.cast::<u8>(), 0, len) };
    // SAFETY: as the function's, and the bytes are initialized.
    let bytes = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
    with_bytes(name, from, len, |allocation, at| {
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
    with_context("cuMemGetInfo", |memory| {
        let all = total_memory();
        let unused = all.saturating_sub(memory.used());
        let size = |bytes| usize::try_from(bytes).expect("a size in memory");
        // SAFETY: as the function's.
        unsafe { (*free, *total) = (size(unused), size(all)) };
        SUCCESS
    })
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
    unsafe { read("cuMemcpyDtoHAsync", to, from, len) }
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
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) };
    with_bytes("cuMemcpyHtoDAsync", to, len, |allocation, at| {
        let written = allocation.file.write_all_at(bytes, at);
        written.expect("memory of the model");
        SUCCESS
    })
}
