//! The driver API of CUDA, from `libcuda.so.1`.
//!
//! The functions and constants are those of `cuda.h`. Every call first makes the primary context of
//! the GPU current, because contexts belong to threads.
#![allow(unsafe_code, reason = "calls functions of a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, OnceLock};

use libloading::Library;

use crate::error::{Error, Result};

const LIBRARY: &str = "libcuda.so.1";

/// `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`.
const DMA_BUF_SUPPORTED: c_int = 124;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF_FD: c_int = 1;

/// `CUDA_ERROR_INVALID_DEVICE`.
const INVALID_DEVICE: c_int = 101;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: c_int = 100;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: c_int = 2;

const INSTALL_DRIVER: &str = "install the driver of the GPU, which has libcuda (Debian: libcuda1; Ubuntu: libnvidia-compute)";
const CHECK_GPU: &str = "check with `nvidia-smi` that the GPU is visible and its driver is loaded";
const NEEDS_DMA_BUF: &str = "dma-buf needs NVIDIA's open kernel modules (nvidia-open), a driver for CUDA 11.7 or newer, and Linux 5.12 or newer";

/// A GPU (`CUdevice`).
type DeviceHandle = c_int;
/// A context (`CUcontext`).
type ContextHandle = *mut c_void;
/// An address in the memory of a GPU (`CUdeviceptr`).
type Address = c_ulonglong;

/// Declares the functions of the library, and loads them.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($type:ty),*);)*) => {
        /// The functions of the library. It stays loaded until the process ends.
        struct Functions {
            _library: Library,
            $($field: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Functions {
            fn load() -> Result<Self> {
                // SAFETY: loading libcuda runs its initialization, which has no preconditions.
                let library = unsafe { Library::new(LIBRARY) }.map_err(|error| {
                    Error::new(format!("memory of a GPU: {error}")).with_help(INSTALL_DRIVER)
                })?;
                $(
                    // SAFETY: `cuda.h` declares the function with this type. The library is not
                    // unloaded, because it is kept beside the pointer.
                    let $field = *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                        .map_err(|_| missing($name))?;
                )*
                Ok(Self {
                    _library: library,
                    $($field,)*
                })
            }
        }
    };
}

functions! {
    init = "cuInit": fn(c_uint);
    error_name = "cuGetErrorName": fn(c_int, *mut *const c_char);
    error_string = "cuGetErrorString": fn(c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut DeviceHandle, c_int);
    device_name = "cuDeviceGetName": fn(*mut c_char, c_int, DeviceHandle);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, DeviceHandle);
    retain = "cuDevicePrimaryCtxRetain": fn(*mut ContextHandle, DeviceHandle);
    release = "cuDevicePrimaryCtxRelease_v2": fn(DeviceHandle);
    set_current = "cuCtxSetCurrent": fn(ContextHandle);
    synchronize = "cuCtxSynchronize": fn();
    alloc = "cuMemAlloc_v2": fn(*mut Address, usize);
    free = "cuMemFree_v2": fn(Address);
    set_bytes = "cuMemsetD8_v2": fn(Address, u8, usize);
    copy_to = "cuMemcpyHtoD_v2": fn(Address, *const c_void, usize);
    copy_from = "cuMemcpyDtoH_v2": fn(*mut c_void, Address, usize);
    export = "cuMemGetHandleForAddressRange":
        fn(*mut c_void, Address, usize, c_int, c_ulonglong);
}

fn missing(name: &str) -> Error {
    Error::new(format!("{LIBRARY} has no function {name}")).with_help(NEEDS_DMA_BUF)
}

/// Returns the functions of the library. A failure to load it is not kept, so that a process that
/// runs for long finds a driver that is installed later.
fn functions() -> Result<&'static Functions> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let loaded = Functions::load()?;
    Ok(FUNCTIONS.get_or_init(|| loaded))
}

impl Functions {
    /// Converts a result of the function `name`.
    fn check(&self, name: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let text = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = ptr::null();
            // SAFETY: the function writes an address, or NULL for an unknown error.
            let _ = unsafe { function(status, &raw mut text) };
            if text.is_null() {
                return None;
            }
            // SAFETY: the address is that of a constant string of the library.
            let text = unsafe { CStr::from_ptr(text) };
            Some(text.to_string_lossy().into_owned())
        };
        let kind = text(self.error_name).unwrap_or_else(|| format!("error {status}"));
        let what = text(self.error_string).map_or_else(String::new, |what| format!(" ({what})"));
        let error = Error::new(format!("{name}: {kind}{what}"));
        Err(match status {
            NO_DEVICE | INVALID_DEVICE => error.with_help(CHECK_GPU),
            OUT_OF_MEMORY => error.with_help("use smaller buffers, or end other users of the GPU"),
            _ => error,
        })
    }
}

/// The primary context of a GPU.
pub(crate) struct Context {
    functions: &'static Functions,
    device: DeviceHandle,
    handle: ContextHandle,
}

// SAFETY: a context can be current in any thread, and in several at the same time. The driver API
// locks what its calls share.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the GPU with this number. Also returns its name.
    pub(crate) fn new(number: u32) -> Result<(Self, String)> {
        let functions = functions()?;
        // SAFETY: the flags must be 0.
        functions.check("cuInit", unsafe { (functions.init)(0) })?;
        let mut count = 0;
        // SAFETY: the function writes a number.
        let status = unsafe { (functions.device_count)(&raw mut count) };
        functions.check("cuDeviceGetCount", status)?;
        let index = c_int::try_from(number).ok().filter(|n| *n < count);
        let Some(index) = index else {
            // `cuInit` fails if there is none.
            let available = match count {
                1 => "cuda:0".to_owned(),
                _ => format!("cuda:0 to cuda:{}", count - 1),
            };
            let text = format!("no GPU cuda:{number}; available: {available}");
            return Err(Error::new(text).with_help(CHECK_GPU));
        };
        let mut device = 0;
        // SAFETY: the function writes a number.
        let status = unsafe { (functions.device_get)(&raw mut device, index) };
        functions.check("cuDeviceGet", status)?;
        let name = device_name(functions, device)?;
        let mut supported = 0;
        // SAFETY: the function writes a number. An older driver does not know the attribute.
        let status =
            unsafe { (functions.device_attribute)(&raw mut supported, DMA_BUF_SUPPORTED, device) };
        if status != 0 || supported == 0 {
            let text = format!("GPU cuda:{number} ({name}) cannot export its memory as a dma-buf");
            return Err(Error::new(text).with_help(NEEDS_DMA_BUF));
        }
        let mut handle = ptr::null_mut();
        // SAFETY: the function writes an address.
        let status = unsafe { (functions.retain)(&raw mut handle, device) };
        functions.check("cuDevicePrimaryCtxRetain", status)?;
        let context = Self {
            functions,
            device,
            handle,
        };
        Ok((context, name))
    }

    fn make_current(&self) -> Result<()> {
        // SAFETY: the context is retained until `self` is dropped.
        let status = unsafe { (self.functions.set_current)(self.handle) };
        self.functions.check("cuCtxSetCurrent", status)
    }

    /// Waits until the work of the current context is done.
    fn synchronize(&self) -> Result<()> {
        // SAFETY: the call has no arguments.
        let status = unsafe { (self.functions.synchronize)() };
        self.functions.check("cuCtxSynchronize", status)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context was retained once. Allocations keep it alive, so none is left.
        let _ = unsafe { (self.functions.release)(self.device) };
    }
}

fn device_name(functions: &Functions, device: DeviceHandle) -> Result<String> {
    let mut name = [0_u8; 256];
    // SAFETY: the array has 256 bytes.
    let status = unsafe { (functions.device_name)(name.as_mut_ptr().cast(), 256, device) };
    functions.check("cuDeviceGetName", status)?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

/// Allocated memory of a GPU.
pub(crate) struct Allocation {
    context: Arc<Context>,
    /// Address that the driver returned.
    allocated: Address,
    /// Address of the first byte that is used.
    address: Address,
    len: u64,
}

impl Allocation {
    /// Allocates `len` bytes, the first at a multiple of `alignment`.
    pub(crate) fn new(context: &Arc<Context>, len: u64, alignment: u64) -> Result<Self> {
        let mut memory = Self::unaligned(context, len)?;
        if memory.address % alignment != 0 {
            // A small allocation can begin in the middle of a page. Its first whole page then
            // begins at most one granule later. Larger ones begin with a page, and the padding
            // could double the memory that the GPU uses for them.
            drop(memory);
            memory = Self::unaligned(context, len.saturating_add(alignment))?;
            memory.address = memory.address.next_multiple_of(alignment);
            memory.len = len;
        }
        Ok(memory)
    }

    fn unaligned(context: &Arc<Context>, len: u64) -> Result<Self> {
        context.make_current()?;
        let functions = context.functions;
        let mut address = 0;
        // SAFETY: the function writes an address, and a context is current.
        let status = unsafe { (functions.alloc)(&raw mut address, size(len)) };
        functions.check(&format!("cuMemAlloc of {len} bytes"), status)?;
        Ok(Self {
            context: Arc::clone(context),
            allocated: address,
            address,
            len,
        })
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Makes the context current for an access to `count` bytes at `offset`, and returns their
    /// address. Fails if they are not inside.
    fn access(&self, operation: &str, offset: u64, count: u64) -> Result<Address> {
        let end = offset.checked_add(count);
        if end.is_none_or(|end| end > self.len) {
            return Err(Error::new(format!(
                "{operation} of {count} bytes at {offset}: the buffer has {} bytes",
                self.len
            )));
        }
        self.context.make_current()?;
        Ok(self.address + offset)
    }

    /// Fills the memory with 0.
    pub(crate) fn zero(&self) -> Result<()> {
        let address = self.access("zeroing", 0, self.len)?;
        let functions = self.context.functions;
        // SAFETY: `access` checked the range, which belongs to this allocation.
        let status = unsafe { (functions.set_bytes)(address, 0, size(self.len)) };
        functions.check("cuMemsetD8", status)?;
        self.context.synchronize()
    }

    /// Copies bytes to the memory.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let address = self.access("write", offset, bytes.len() as u64)?;
        let functions = self.context.functions;
        let from = bytes.as_ptr().cast();
        // SAFETY: `access` checked the range, which belongs to this allocation; the function reads
        // `bytes` only.
        let status = unsafe { (functions.copy_to)(address, from, bytes.len()) };
        functions.check("cuMemcpyHtoD", status)?;
        // The copy may continue after the call.
        self.context.synchronize()
    }

    /// Copies bytes from the memory.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let address = self.access("read", offset, bytes.len() as u64)?;
        let functions = self.context.functions;
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: `access` checked the range, which belongs to this allocation; the function writes
        // `bytes` only, and has written them when it returns.
        let status = unsafe { (functions.copy_from)(to, address, bytes.len()) };
        functions.check("cuMemcpyDtoH", status)
    }

    /// Exports the memory as a dma-buf.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        let address = self.access("export", 0, self.len)?;
        let functions = self.context.functions;
        let mut fd: c_int = -1;
        let handle = (&raw mut fd).cast();
        // SAFETY: `access` checked the range, which belongs to this allocation. For this type of
        // handle the function writes a file descriptor. The flags must be 0.
        let status = unsafe { (functions.export)(handle, address, size(self.len), DMA_BUF_FD, 0) };
        let result = functions.check("cuMemGetHandleForAddressRange", status);
        result.map_err(|error| error.with_help(NEEDS_DMA_BUF))?;
        if fd < 0 {
            let text = "cuMemGetHandleForAddressRange: returned no file descriptor";
            return Err(Error::new(text).with_help(NEEDS_DMA_BUF));
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: the memory was allocated in this context and is freed once.
            let _ = unsafe { (self.context.functions.free)(self.allocated) };
        }
    }
}

/// Converts a size in memory. The crate supports 64-bit hosts, as CUDA does.
fn size(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
