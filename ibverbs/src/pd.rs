//! Protection domains.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_alloc_pd, ibv_dealloc_pd, ibv_pd};

use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::errno::non_null;
use crate::error::Result;
use crate::mr::{Buf, Pool, Sink};
use crate::qp::{QpOptions, QueuePair, Transport};
use crate::raw::AsRaw;

/// A protection domain: memory and queue pairs work together when they are of the same one. Cloning it is cheap.
///
/// # References
/// [`ibv_alloc_pd(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_pd.3.html)
#[derive(Clone)]
pub struct ProtectionDomain(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_pd>,
    context: Context,
}

// SAFETY: a domain is a handle; libibverbs' functions on it are thread safe.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner goes; regions and queue pairs held an Arc of this, so none is left.
        let returned = unsafe { ibv_dealloc_pd(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::count();
        }
    }
}

impl ProtectionDomain {
    pub(crate) fn alloc(context: Context) -> Result<Self> {
        let raw = non_null(
            "ibv_alloc_pd",
            || context.device_name().into(),
            || {
                // SAFETY: the context is open while `context` is held.
                unsafe { ibv_alloc_pd(context.as_raw()) }
            },
        )?;
        Ok(Self(Arc::new(Inner { raw, context })))
    }

    /// The open device that the domain belongs to.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Whether both are the same domain.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Registers `count` buffers of `size` bytes each, zeroed, as one memory region.
    ///
    /// # Errors
    /// [`ErrorKind::LockedMemory`](crate::ErrorKind::LockedMemory) says what the limit is and how to raise it.
    pub fn pool(&self, count: usize, size: usize) -> Result<Pool> {
        Pool::register(self, count, size)
    }

    /// Registers a single buffer of `size` bytes, zeroed.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn buf(&self, size: usize) -> Result<Buf> {
        self.pool(1, size)?.take().ok_or_else(Pool::no_piece)
    }

    /// Registers `size` bytes that can be received into by any number of requests at once, and that nobody can read.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn sink(&self, size: usize) -> Result<Sink> {
        Sink::register(self, size)
    }

    /// Creates a queue pair of transport `T`, in state RESET.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) when a size is above what the device has,
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) when a completion queue is of another device.
    ///
    /// # References
    /// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html),
    /// [`ibv_create_qp_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    pub fn create_qp<T: Transport>(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        options: QpOptions,
    ) -> Result<QueuePair<T>> {
        QueuePair::create(self, send_cq, recv_cq, options)
    }
}

impl AsRaw for ProtectionDomain {
    type Raw = ibv_pd;

    fn as_raw(&self) -> *mut ibv_pd {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("device", &self.0.context.device_name()).finish()
    }
}
