//! Memory of GPUs as dma-bufs.
//!
//! [`Gpu`] is a GPU of this host, and [`GpuBuffer`] is memory of it. Its dma-buf is a file
//! descriptor with which another device, such as an RDMA adapter, can access the memory. The
//! library of the GPU's driver is loaded when a GPU is opened.
//!
//! ```no_run
//! use gpu_memory::Gpu;
//!
//! let gpu = Gpu::cuda(0)?;
//! let mut buffer = gpu.alloc(1 << 20)?;
//! buffer.write(0, b"hello")?;
//! println!("{}: {:?}", gpu.name(), buffer.dmabuf());
//! # Ok::<(), gpu_memory::Error>(())
//! ```

mod driver;
mod error;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use driver::{Allocation, Context};
pub use error::{Error, Result};

/// Granularity of the memory that is exported: the size of a page of a GPU, and a multiple of the
/// size of a page of any host.
const GRANULE: u64 = 64 << 10;

/// A GPU of this host. Clones refer to the same GPU.
///
/// # Example
/// ```no_run
/// for number in 0.. {
///     match gpu_memory::Gpu::cuda(number) {
///         Ok(gpu) => println!("{number}: {}", gpu.name()),
///         Err(_) => break,
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Gpu {
    context: Arc<Context>,
    name: String,
}

impl Gpu {
    /// Opens the GPU of CUDA with this number, from 0.
    ///
    /// # Errors
    /// Returns an error if libcuda is not installed, if there is no such GPU, or if its driver
    /// cannot export memory as a dma-buf. [`Error::help`] says what is needed.
    pub fn cuda(number: u32) -> Result<Self> {
        let (context, name) = Context::new(number)?;
        Ok(Self {
            context: Arc::new(context),
            name,
        })
    }

    /// Returns the name of the model, such as `NVIDIA H100 80GB HBM3`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Allocates at least `len` bytes of zeroed memory and exports them as a dma-buf.
    ///
    /// # Errors
    /// Returns an error if the GPU has not enough free memory, or if it cannot export the memory.
    pub fn alloc(&self, len: usize) -> Result<GpuBuffer> {
        let Some(rounded) = (len.max(1) as u64).checked_next_multiple_of(GRANULE) else {
            return Err(Error::new(format!("{len} bytes of memory: too large")));
        };
        let allocation = Allocation::new(&self.context, rounded, GRANULE)?;
        allocation.zero()?;
        let dmabuf = allocation.export()?;
        Ok(GpuBuffer { dmabuf, allocation })
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("name", &self.name).finish()
    }
}

/// Memory of a GPU.
///
/// Dropping it closes the dma-buf and frees the memory. The driver keeps the memory of a dma-buf
/// allocated while another device has it registered, or while a duplicate of its descriptor is open
/// (seen on an H100 with driver 580). A program should not rely on this with other drivers: the
/// buffer should outlive its registrations.
///
/// # Example
/// ```no_run
/// let mut buffer = gpu_memory::Gpu::cuda(0)?.alloc(4096)?;
/// buffer.write(0, b"hello")?;
/// let mut bytes = [0; 5];
/// buffer.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), gpu_memory::Error>(())
/// ```
pub struct GpuBuffer {
    /// Closed before the memory is freed.
    dmabuf: OwnedFd,
    allocation: Allocation,
}

impl GpuBuffer {
    /// Returns the length in bytes, which is a multiple of 64 KiB.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a buffer has at least one page"
    )]
    pub fn len(&self) -> u64 {
        self.allocation.len()
    }

    /// Returns the dma-buf of the whole buffer.
    pub fn dmabuf(&self) -> BorrowedFd<'_> {
        self.dmabuf.as_fd()
    }

    /// Returns the address of the first byte on the GPU (`CUdeviceptr`), with which kernels and
    /// functions of CUDA use the buffer.
    pub fn address(&self) -> u64 {
        self.allocation.address()
    }

    /// Copies bytes of the host to the buffer. They are in the memory of the GPU when this returns.
    ///
    /// # Errors
    /// Returns an error if the bytes do not fit at `offset`, or if the GPU fails.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.allocation.write(offset, bytes)
    }

    /// Copies bytes of the buffer to the host.
    ///
    /// # Errors
    /// Returns an error if the buffer has not as many bytes at `offset`, or if the GPU fails.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.allocation.read(offset, bytes)
    }
}

impl fmt::Debug for GpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuBuffer")
            .field("len", &self.len())
            .finish()
    }
}
