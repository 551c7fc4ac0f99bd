//! An open device.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use rdma_sys::{ibv_close_device, ibv_context, ibv_open_device};

use super::list::Device;
use crate::convert::non_null;
use crate::error::Result;
use crate::raw::AsRaw;

/// An open device: what domains, queues and channels are made on. Cloning it is cheap and refers to
/// the same opening.
///
/// # Example
/// ```no_run
/// let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// println!("{} queue pairs", context.query_device()?.max_qp);
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_open_device(3)`](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_context>,
    device: Device,
    soft_roce: OnceLock<bool>,
}

// SAFETY: libibverbs' contexts may be used from any thread, several at once (ibv_open_device(3),
// "thread safe").
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner goes; every child held an Arc of this, so none is left.
        let returned = unsafe { ibv_close_device(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with(&self.device);
        }
    }
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// [`PermissionDenied`](crate::ErrorKind::PermissionDenied) without rights to
    /// `/dev/infiniband/uverbs*`, [`NotFound`](crate::ErrorKind::NotFound) when the device went
    /// away or its node is missing.
    ///
    /// # References
    /// [`ibv_open_device(3)`](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    pub fn open(&self) -> Result<Context> {
        Context::open(self.clone())
    }
}

impl Context {
    fn open(device: Device) -> Result<Self> {
        crate::fork::opening();
        let raw = non_null(
            "ibv_open_device",
            || device.name().into(),
            || {
                // SAFETY: the device is alive while `device` is.
                unsafe { ibv_open_device(device.as_raw()) }
            },
        )?;
        crate::trace::opened(device.name());
        Ok(Self(Arc::new(Inner {
            raw,
            device,
            soft_roce: OnceLock::new(),
        })))
    }

    /// The device that is open.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Whether it is Soft-RoCE, whose provider needs to be treated with care in places
    /// (ci/DRIVERS.md). The kernel is asked once.
    pub(crate) fn is_soft_roce(&self) -> Result<bool> {
        if let Some(&known) = self.0.soft_roce.get() {
            return Ok(known);
        }
        let asked = self.query_device()?.is_soft_roce();
        Ok(*self.0.soft_roce.get_or_init(|| asked))
    }

    /// The name of the device that is open.
    pub fn device_name(&self) -> &str {
        self.0.device.name()
    }

    /// Completion vectors (interrupts) that completion queues can be spread over: 0 to this, less
    /// one.
    ///
    /// # Example
    /// A completion queue for each processor that takes interrupts:
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::CqOptions;
    /// let cqs = (0..context.num_comp_vectors())
    ///     .map(|comp_vector| {
    ///         context.create_cq(CqOptions {
    ///             comp_vector,
    ///             ..CqOptions::default()
    ///         })
    ///     })
    ///     .collect::<ibverbs::Result<Vec<_>>>()?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    pub fn num_comp_vectors(&self) -> u32 {
        // SAFETY: the context is open; the library sets the number when it opens.
        let vectors = unsafe { (*self.as_raw()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(0)
    }
}

impl AsRaw for Context {
    type Raw = ibv_context;

    fn as_raw(&self) -> *mut ibv_context {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.device_name())
            .finish()
    }
}
