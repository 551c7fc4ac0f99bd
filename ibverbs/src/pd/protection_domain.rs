//! Protection domains.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::{ibv_alloc_pd, ibv_dealloc_pd, ibv_pd};

use crate::convert::non_null;
use crate::device::Context;
use crate::error::Result;
use crate::raw::{AsRaw, as_raw};

/// A protection domain. Queue pairs can only use memory and address handles of their own domain.
///
/// Cloning is cheap; all clones refer to the same domain.
///
/// # Example
/// ```no_run
/// let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let pool = pd.pool(64, 4096)?; // buffers without remote access
/// let shared = pd.shared(4096, ibverbs::AccessFlags::REMOTE_READ)?; // memory that peers can read
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_alloc_pd")]
#[derive(Clone)]
pub struct ProtectionDomain(Arc<AllocatedDomain>);

struct AllocatedDomain {
    raw: NonNull<ibv_pd>,
    context: Context,
    /// Number of queue pairs that exist in the domain.
    queue_pairs: Mutex<usize>,
}

// SAFETY: a domain is a handle, and the libibverbs functions on it are thread-safe.
unsafe impl Send for AllocatedDomain {}
// SAFETY: as for Send.
unsafe impl Sync for AllocatedDomain {}

impl Drop for AllocatedDomain {
    fn drop(&mut self) {
        // SAFETY: this is the last reference: every region and queue pair holds an Arc of it, so
        // none exists.
        let returned = unsafe { ibv_dealloc_pd(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with_parent(&self.context);
        }
    }
}

impl Context {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// Fails if the device has no free protection domain (`max_pd`).
    #[doc(alias = "ibv_alloc_pd")]
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
                // SAFETY: `context` keeps the context open.
                unsafe { ibv_alloc_pd(context.as_raw()) }
            },
        )?;
        Ok(Self(Arc::new(AllocatedDomain {
            raw,
            context,
            queue_pairs: Mutex::new(0),
        })))
    }

    /// Returns the open device to which the domain belongs.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Returns the number of queue pairs in the domain, including those that could not be
    /// destroyed. While the caller has it, no new one can be used.
    pub(crate) fn queue_pairs(&self) -> MutexGuard<'_, usize> {
        let locked = self.0.queue_pairs.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a queue pair of the domain until the returned value is dropped, after the queue pair
    /// was destroyed.
    pub(crate) fn attach_queue_pair(&self) -> AttachedQueuePair {
        *self.queue_pairs() += 1;
        AttachedQueuePair(self.clone())
    }

    /// Returns a key that is unique among the domains that exist.
    #[inline]
    pub(crate) fn key(&self) -> DomainKey {
        DomainKey(Arc::as_ptr(&self.0).addr())
    }

    /// Returns `true` if both are the same domain.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Identifies a domain. Domains that exist at the same time have different keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainKey(usize);

/// Held by every queue pair of a domain. Reclaiming memory with remote access relies on the count.
#[derive(Debug)]
pub(crate) struct AttachedQueuePair(ProtectionDomain);

impl Drop for AttachedQueuePair {
    fn drop(&mut self) {
        *self.0.queue_pairs() -= 1;
    }
}

as_raw!(ProtectionDomain: ibv_pd, 0.raw);

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("device", &self.0.context.device_name())
            .finish()
    }
}
