//! Functions of libcuda.
#![allow(unsafe_code, reason = "calls functions of a C library")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use libloading::Library;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF_FD: c_int = 1;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CUmemAccess_flags`: reading and writing.
const READ_WRITE: c_int = 3;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`, and `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED_ON_DEVICE: c_int = 1;

/// A status of CUDA other than success.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CudaError(c_int);

impl CudaError {
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: Self = Self(801);
}

impl fmt::Debug for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INVALID_VALUE => f.write_str("CUDA_ERROR_INVALID_VALUE"),
            Self::NOT_SUPPORTED => f.write_str("CUDA_ERROR_NOT_SUPPORTED"),
            Self(number) => write!(f, "CUDA error {number}"),
        }
    }
}

/// A result of CUDA.
pub(crate) type Result<T> = std::result::Result<T, CudaError>;

fn check(status: c_int) -> Result<()> {
    if status == 0 {
        Ok(())
    } else {
        Err(CudaError(status))
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Default)]
struct AllocationProperties {
    kind: c_int,
    handle_types: c_int,
    location: [c_int; 2],
    win32: usize,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct AccessDescription {
    location: [c_int; 2],
    flags: c_int,
}

/// The first GPU of CUDA, with the kernels of this package. Its context is the one that
/// `gpu-memory` uses.
#[derive(Debug)]
pub struct Cuda {
    library: Library,
    context: *mut c_void,
    stream: *mut c_void,
    module: *mut c_void,
    /// Time of the last kernel, as seen by the caller.
    seconds: Cell<f64>,
}

/// Calls a function of libcuda: its name, its parameter types, its arguments.
macro_rules! call {
    ($self:expr, $name:literal, ($($type:ty),*), $($argument:expr),*) => {{
        let function = $self.function::<unsafe extern "C" fn($($type),*) -> c_int>($name);
        // SAFETY: `cuda.h` declares the function with these types, and the caller of this macro
        // passes what they require.
        check(unsafe { function($($argument),*) })
    }};
}

impl Cuda {
    /// Opens the GPU and loads the kernels.
    ///
    /// # Panics
    /// Panics if that fails: the tests need a GPU or its model.
    pub fn open() -> Self {
        // SAFETY: loading libcuda runs its initialization, which has no preconditions.
        let library = unsafe { Library::new("libcuda.so.1") }.expect("libcuda.so.1");
        let mut cuda = Self {
            library,
            context: ptr::null_mut(),
            stream: ptr::null_mut(),
            module: ptr::null_mut(),
            seconds: Cell::new(0.0),
        };
        call!(cuda, "cuInit", (c_uint), 0).expect("cuInit");
        let mut context = ptr::null_mut();
        let retained = call!(
            cuda,
            "cuDevicePrimaryCtxRetain",
            (*mut *mut c_void, c_int),
            &raw mut context,
            0
        );
        retained.expect("context");
        cuda.context = context;
        cuda.make_current();
        let mut stream = ptr::null_mut();
        let created = call!(
            cuda,
            "cuStreamCreate",
            (*mut *mut c_void, c_uint),
            &raw mut stream,
            NON_BLOCKING
        );
        created.expect("stream");
        cuda.stream = stream;
        let text = concat!(include_str!("../kernels.ptx"), "\0").as_ptr();
        let mut module = ptr::null_mut();
        let loaded = call!(
            cuda,
            "cuModuleLoadData",
            (*mut *mut c_void, *const u8),
            &raw mut module,
            text
        );
        loaded.expect("kernels");
        cuda.module = module;
        cuda
    }

    fn function<T: Copy>(&self, name: &str) -> T {
        self.optional(name)
            .unwrap_or_else(|| panic!("libcuda has no {name}"))
    }

    fn optional<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: `T` is the type that `cuda.h` declares, see `call!`. The library stays loaded
        // while `self` exists, and the functions are called at once.
        unsafe { self.library.get::<T>(name.as_bytes()) }
            .ok()
            .map(|symbol| *symbol)
    }

    /// Makes the context current in the calling thread.
    fn make_current(&self) {
        call!(self, "cuCtxSetCurrent", (*mut c_void), self.context).expect("context");
    }

    /// Returns the free and the total memory of the GPU in bytes.
    ///
    /// # Panics
    /// Panics if CUDA fails.
    pub fn memory(&self) -> (u64, u64) {
        self.make_current();
        let (mut free, mut total) = (0_usize, 0_usize);
        let types = call!(
            self,
            "cuMemGetInfo_v2",
            (*mut usize, *mut usize),
            &raw mut free,
            &raw mut total
        );
        types.expect("sizes");
        (free as u64, total as u64)
    }

    /// Returns the version of CUDA that the driver supports, such as 13000.
    ///
    /// # Panics
    /// Panics if CUDA fails.
    pub fn version(&self) -> i32 {
        let mut version = 0;
        if self
            .optional::<*const c_void>("cuDriverGetVersion")
            .is_some()
        {
            call!(self, "cuDriverGetVersion", (*mut c_int), &raw mut version).expect("version");
        }
        version
    }

    /// Returns the name of an error.
    pub fn name_of(&self, error: CudaError) -> String {
        let mut text: *const c_char = ptr::null();
        let named = call!(
            self,
            "cuGetErrorName",
            (c_int, *mut *const c_char),
            error.0,
            &raw mut text
        );
        if named.is_err() || text.is_null() {
            return format!("{error:?}");
        }
        // SAFETY: the address is that of a constant string of the library.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// Exports a range of addresses as a dma-buf.
    ///
    /// # Errors
    /// Returns the error of CUDA.
    ///
    /// # Panics
    /// Never panics: the driver returns a descriptor.
    pub fn export(&self, address: u64, len: u64, flags: u64) -> Result<OwnedFd> {
        self.make_current();
        let mut fd: c_int = -1;
        let len = usize::try_from(len).expect("64 bits");
        call!(
            self,
            "cuMemGetHandleForAddressRange",
            (*mut c_int, c_ulonglong, usize, c_int, c_ulonglong),
            &raw mut fd,
            address,
            len,
            DMA_BUF_FD,
            flags
        )?;
        assert!(fd >= 0, "a descriptor");
        // SAFETY: the descriptor is new and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Copies bytes of the GPU to the host.
    ///
    /// # Errors
    /// Returns the error of CUDA, for example if the addresses are not those of memory.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.make_current();
        let types = bytes.as_mut_ptr();
        call!(
            self,
            "cuMemcpyDtoH_v2",
            (*mut u8, c_ulonglong, usize),
            types,
            address,
            bytes.len()
        )
    }

    pub(crate) fn register_host(&self, start: *mut c_void, len: usize) {
        self.make_current();
        call!(
            self,
            "cuMemHostRegister_v2",
            (*mut c_void, usize, c_uint),
            start,
            len,
            0
        )
        .expect("registration of host memory");
    }

    pub(crate) fn unregister_host(&self, start: *mut c_void) {
        self.make_current();
        call!(self, "cuMemHostUnregister", (*mut c_void), start).expect("registered");
    }

    /// Runs a kernel with `blocks` blocks of `threads` threads, and waits until it has ended.
    ///
    /// # Panics
    /// Panics if CUDA fails, as it does if the kernel accessed an invalid address.
    ///
    /// # Safety
    /// The kernel accesses only memory that it may, with the argument at this address.
    pub unsafe fn launch(&self, name: &CStr, blocks: u32, threads: u32, argument: u64) {
        self.make_current();
        let mut kernel = ptr::null_mut();
        call!(
            self,
            "cuModuleGetFunction",
            (*mut *mut c_void, *mut c_void, *const c_char),
            &raw mut kernel,
            self.module,
            name.as_ptr()
        )
        .expect("kernel");
        let mut argument = argument;
        let mut arguments = [(&raw mut argument).cast::<c_void>()];
        let start = std::time::Instant::now();
        let launched = call!(
            self,
            "cuLaunchKernel",
            (
                *mut c_void,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                *mut c_void,
                *mut *mut c_void,
                *mut *mut c_void
            ),
            kernel,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            self.stream,
            arguments.as_mut_ptr(),
            ptr::null_mut()
        );
        launched.unwrap_or_else(|error| panic!("launch: {}", self.name_of(error)));
        let ended = call!(self, "cuStreamSynchronize", (*mut c_void), self.stream);
        ended.unwrap_or_else(|error| panic!("kernel: {}", self.name_of(error)));
        self.seconds.set(start.elapsed().as_secs_f64());
    }

    /// Returns the time from the launch to the end of the last kernel.
    pub fn seconds(&self) -> f64 {
        self.seconds.get()
    }

    /// Maps `count` allocations of virtual memory management beside each other. `None` if this
    /// libcuda has no such functions.
    ///
    /// # Errors
    /// Returns the error of CUDA.
    pub fn map_virtual(&self, count: usize) -> Option<Result<VirtualMemory<'_>>> {
        self.optional::<*const c_void>("cuMemCreate")?;
        self.make_current();
        Some(VirtualMemory::new(self, count))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // What is left ends with the process. Its functions may be needed until then.
        let _ = call!(self, "cuDevicePrimaryCtxRelease_v2", (c_int), 0);
    }
}

/// Memory of a GPU by virtual memory management (`cuMemCreate`, `cuMemMap`).
#[derive(Debug)]
pub struct VirtualMemory<'a> {
    cuda: &'a Cuda,
    address: c_ulonglong,
    granularity: usize,
    handles: Vec<c_ulonglong>,
}

impl<'a> VirtualMemory<'a> {
    fn new(cuda: &'a Cuda, count: usize) -> Result<Self> {
        let properties = AllocationProperties {
            kind: PINNED_ON_DEVICE,
            location: [PINNED_ON_DEVICE, 0],
            ..AllocationProperties::default()
        };
        let mut granularity = 0;
        call!(
            cuda,
            "cuMemGetAllocationGranularity",
            (*mut usize, *const AllocationProperties, c_int),
            &raw mut granularity,
            &raw const properties,
            0
        )?;
        let mut memory = Self {
            cuda,
            address: 0,
            granularity,
            handles: Vec::new(),
        };
        call!(
            cuda,
            "cuMemAddressReserve",
            (*mut c_ulonglong, usize, usize, c_ulonglong, c_ulonglong),
            &raw mut memory.address,
            granularity * count,
            0,
            0,
            0
        )?;
        for index in 0..count as u64 {
            let mut handle = 0;
            call!(
                cuda,
                "cuMemCreate",
                (
                    *mut c_ulonglong,
                    usize,
                    *const AllocationProperties,
                    c_ulonglong
                ),
                &raw mut handle,
                granularity,
                &raw const properties,
                0
            )?;
            memory.handles.push(handle);
            let at = memory.address + index * granularity as u64;
            call!(
                cuda,
                "cuMemMap",
                (c_ulonglong, usize, usize, c_ulonglong, c_ulonglong),
                at,
                granularity,
                0,
                handle,
                0
            )?;
        }
        let access = AccessDescription {
            location: [PINNED_ON_DEVICE, 0],
            flags: READ_WRITE,
        };
        call!(
            cuda,
            "cuMemSetAccess",
            (c_ulonglong, usize, *const AccessDescription, usize),
            memory.address,
            granularity * count,
            &raw const access,
            1
        )?;
        Ok(memory)
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length of one of the allocations.
    pub fn granularity(&self) -> u64 {
        self.granularity as u64
    }
}

impl Drop for VirtualMemory<'_> {
    fn drop(&mut self) {
        let cuda = self.cuda;
        let len = self.granularity * self.handles.len();
        call!(cuda, "cuMemUnmap", (c_ulonglong, usize), self.address, len).expect("mapped");
        for &handle in &self.handles {
            call!(cuda, "cuMemRelease", (c_ulonglong), handle).expect("created");
        }
        call!(
            cuda,
            "cuMemAddressFree",
            (c_ulonglong, usize),
            self.address,
            len
        )
        .expect("reserved");
    }
}
