//! Protection domains.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdma_sys::{ibv_alloc_pd, ibv_dealloc_pd, ibv_pd};

use crate::convert::non_null;
use crate::device::Context;
use crate::error::Result;
use crate::raw::AsRaw;

/// A protection domain: memory and queue pairs work together when they are of the same one. Cloning
/// it is cheap.
///
/// # Example
/// ```no_run
/// let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let pool = pd.pool(64, 4096)?; // buffers that only this side reaches
/// let shared = pd.shared(4096, ibverbs::AccessFlags::REMOTE_READ)?; // memory that peers reach
///
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_alloc_pd(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_pd.3.html)
#[derive(Clone)]
pub struct ProtectionDomain(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_pd>,
    context: Context,
    /// How many queue pairs of the domain exist.
    queue_pairs: AtomicUsize,
}

// SAFETY: a domain is a handle; libibverbs' functions on it are thread safe.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner goes; regions and queue pairs held an Arc of this, so none is
        // left.
        let returned = unsafe { ibv_dealloc_pd(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with(&self.context);
        }
    }
}

impl Context {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// Fails when the device has no more of them (`max_pd`).
    ///
    /// # References
    /// [`ibv_alloc_pd(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_pd.3.html)
    pub fn alloc_pd(&self) -> Result<ProtectionDomain> {
        ProtectionDomain::alloc(self.clone())
    }
}

impl ProtectionDomain {
    fn alloc(context: Context) -> Result<Self> {
        let raw = non_null(
            "ibv_alloc_pd",
            || context.device_name().into(),
            || {
                // SAFETY: the context is open while `context` is held.
                unsafe { ibv_alloc_pd(context.as_raw()) }
            },
        )?;
        Ok(Self(Arc::new(Inner {
            raw,
            context,
            queue_pairs: AtomicUsize::new(0),
        })))
    }

    /// The open device that the domain belongs to.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// How many queue pairs of the domain exist, those that could not be destroyed included.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.0.queue_pairs.load(Ordering::Acquire)
    }

    /// Counts a queue pair of the domain until what is returned is dropped: after the queue pair
    /// was destroyed.
    pub(crate) fn attach_queue_pair(&self) -> AttachedQueuePair {
        self.0.queue_pairs.fetch_add(1, Ordering::AcqRel);
        AttachedQueuePair(self.clone())
    }

    /// A number that no other domain has while this one exists.
    #[inline]
    pub(crate) fn key(&self) -> DomainKey {
        DomainKey(Arc::as_ptr(&self.0).addr())
    }

    /// Whether both are the same domain.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Which domain: two that exist at the same time have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainKey(usize);

/// What every queue pair of a domain keeps while it exists; memory that peers could reach relies on
/// the count.
#[derive(Debug)]
pub(crate) struct AttachedQueuePair(ProtectionDomain);

impl Drop for AttachedQueuePair {
    fn drop(&mut self) {
        self.0.0.queue_pairs.fetch_sub(1, Ordering::AcqRel);
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
        f.debug_struct("ProtectionDomain")
            .field("device", &self.0.context.device_name())
            .finish()
    }
}
