//! Thread domains and parent domains, for a queue pair that needs no provider locks because only
//! one thread at a time uses it.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::{
    ibv_alloc_parent_domain, ibv_alloc_td, ibv_dealloc_pd, ibv_dealloc_td,
    ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};

use super::protection_domain::ProtectionDomain;
use crate::convert::non_null;
use crate::device::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::raw::{AsRaw, as_raw};

/// A thread domain, which allows the provider to omit locks and to share doorbells, because one
/// thread at a time uses the objects in it.
///
/// In C, the program must ensure that. Here the types do: a thread domain becomes part of one
/// [`ParentDomain`], which is consumed by one queue pair, which posts through `&mut`. The queue
/// pair can be sent to another thread like any other. A [`ThreadGroup`](crate::group::ThreadGroup)
/// has a thread domain for many queues of one thread.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, Device, QpOptions, Rc};
///
/// let context = Device::by_name("mlx5_0")?.open()?;
/// let pd = context.alloc_pd()?;
/// let cq = context.create_cq(CqOptions::default())?;
/// let parent = pd.alloc_parent_domain(context.alloc_td()?)?;
/// let qp = parent.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_alloc_td")]
pub struct ThreadDomain {
    raw: NonNull<ibv_td>,
    context: Context,
}

// SAFETY: a domain is a handle, and the libibverbs functions on it are thread-safe.
unsafe impl Send for ThreadDomain {}
// SAFETY: as for Send.
unsafe impl Sync for ThreadDomain {}

impl Drop for ThreadDomain {
    fn drop(&mut self) {
        // SAFETY: this is the only owner, and the parent domain that contained it, if any, was
        // deallocated.
        let returned = unsafe { ibv_dealloc_td(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with_parent(&self.context);
        }
    }
}

impl Context {
    /// Allocates a thread domain.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the provider has no thread domains, as on both software
    /// devices.
    #[doc(alias = "ibv_alloc_td")]
    pub fn alloc_td(&self) -> Result<ThreadDomain> {
        let mut attr = ibv_td_init_attr::default();
        let what = || self.device_name().to_owned();
        let raw = non_null("ibv_alloc_td", what, || {
            // SAFETY: the context is open and the attributes are valid during the call.
            unsafe { ibv_alloc_td(self.as_raw(), &raw mut attr) }
        })?;
        Ok(ThreadDomain {
            raw,
            context: self.clone(),
        })
    }
}

/// A protection domain combined with a thread domain, from which one queue pair can be created.
///
/// [`create_qp`](Self::create_qp) and similar functions consume it. The queue pair can use memory
/// and address handles of the [protection domain](Self::pd).
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, Device, QpOptions, Ud};
/// let context = Device::by_name("mlx5_0")?.open()?;
/// let (pd, cq) = (
///     context.alloc_pd()?,
///     context.create_cq(CqOptions::default())?,
/// );
/// let parent = pd.alloc_parent_domain(context.alloc_td()?)?;
/// let buf = parent.pd().buf(2048)?; // memory comes from the protection domain
/// let qp = parent.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_alloc_parent_domain")]
pub struct ParentDomain {
    raw: NonNull<ibv_pd>,
    /// Leaked if the parent domain cannot be deallocated.
    td: ManuallyDrop<ThreadDomain>,
    pd: ProtectionDomain,
}

// SAFETY: a domain is a handle, and the libibverbs functions on it are thread-safe.
unsafe impl Send for ParentDomain {}
// SAFETY: as for Send.
unsafe impl Sync for ParentDomain {}

impl Drop for ParentDomain {
    fn drop(&mut self) {
        // SAFETY: this is the only owner. A queue pair owns its parent domain until it was
        // destroyed.
        let returned = unsafe { ibv_dealloc_pd(self.raw.as_ptr()) };
        if returned == 0 {
            // SAFETY: this is the only drop of the field, which is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.td) };
        } else {
            crate::leak::with_parent(&self.pd);
        }
    }
}

impl ProtectionDomain {
    /// Combines the protection domain with a thread domain, for one queue pair.
    ///
    /// # Errors
    /// - [`ErrorKind::Mismatch`]: the thread domain belongs to another open device.
    /// - [`ErrorKind::Unsupported`]: the provider has no parent domains.
    #[doc(alias = "ibv_alloc_parent_domain")]
    pub fn alloc_parent_domain(&self, td: ThreadDomain) -> Result<ParentDomain> {
        const VERB: &str = "ibv_alloc_parent_domain";
        let context = self.context();
        if td.context.as_raw() != context.as_raw() {
            let what = format!(
                "protection domain of {} with thread domain of {}",
                context.device_name(),
                td.context.device_name()
            );
            return Err(Error::new(ErrorKind::Mismatch, VERB, what)
                .with_help("create both on the same open device"));
        }
        let mut attr = ibv_parent_domain_init_attr {
            pd: self.as_raw(),
            td: td.raw.as_ptr(),
            ..Default::default()
        };
        let what = || context.device_name().to_owned();
        let raw = non_null(VERB, what, || {
            // SAFETY: both domains belong to this open context and are alive; the attributes are
            // valid during the call.
            unsafe { ibv_alloc_parent_domain(context.as_raw(), &raw mut attr) }
        })?;
        Ok(ParentDomain {
            raw,
            td: ManuallyDrop::new(td),
            pd: self.clone(),
        })
    }
}

impl ParentDomain {
    /// Returns the protection domain, in which memory is registered.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }
}

as_raw!(ThreadDomain: ibv_td, raw);

as_raw!(ParentDomain: ibv_pd, raw);

impl fmt::Debug for ThreadDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadDomain")
            .field("device", &self.context.device_name())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ParentDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParentDomain")
            .field("device", &self.pd.context().device_name())
            .finish_non_exhaustive()
    }
}
