//! Thread domains and parent domains: a queue pair whose provider takes no locks, because one
//! thread at a time uses it.

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
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::raw::AsRaw;

/// A thread domain: the promise to the provider that one thread at a time uses what is made in it,
/// so that it may leave its locks out and share doorbells.
///
/// C leaves the promise to the program. Here the types keep it: a thread domain becomes part of one
/// [`ParentDomain`], and that one of one queue pair, whose requests are posted through `&mut`. So a
/// queue pair in a thread domain may be sent to another thread like any other.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, Device, QpOptions, Rc};
///
/// let context = Device::by_name("mlx5_0")?.open()?;
/// let pd = context.alloc_pd()?;
/// let cq = context.create_cq(CqOptions::default())?;
/// let alone = pd.alloc_parent_domain(context.alloc_td()?)?;
/// let qp = alone.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_alloc_td(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_td.3.html)
pub struct ThreadDomain {
    raw: NonNull<ibv_td>,
    context: Context,
}

// SAFETY: a domain is a handle; libibverbs' functions on it are thread safe.
unsafe impl Send for ThreadDomain {}
// SAFETY: as above.
unsafe impl Sync for ThreadDomain {}

impl Drop for ThreadDomain {
    fn drop(&mut self) {
        // SAFETY: the owner goes; the parent domain that it is part of is gone, or there was none.
        let returned = unsafe { ibv_dealloc_td(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with(&self.context);
        }
    }
}

impl Context {
    /// Allocates a thread domain.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the provider has none (both software devices).
    ///
    /// # References
    /// [`ibv_alloc_td(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_td.3.html)
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

/// A protection domain joined with a thread domain, to make one queue pair of:
/// [`create_qp`](Self::create_qp) and its like consume it.
///
/// Memory and address handles of the [protection domain](Self::pd) are the queue pair's, as if it
/// had been made there.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, Device, QpOptions, Ud};
/// let context = Device::by_name("mlx5_0")?.open()?;
/// let (pd, cq) = (
///     context.alloc_pd()?,
///     context.create_cq(CqOptions::default())?,
/// );
/// let alone = pd.alloc_parent_domain(context.alloc_td()?)?;
/// let buf = alone.pd().buf(2048)?; // memory of the protection domain, as ever
/// let qp = alone.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_alloc_parent_domain(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_parent_domain.3.html)
pub struct ParentDomain {
    raw: NonNull<ibv_pd>,
    /// Kept for ever if the parent domain cannot be deallocated.
    td: ManuallyDrop<ThreadDomain>,
    pd: ProtectionDomain,
}

// SAFETY: a domain is a handle; libibverbs' functions on it are thread safe.
unsafe impl Send for ParentDomain {}
// SAFETY: as above.
unsafe impl Sync for ParentDomain {}

impl Drop for ParentDomain {
    fn drop(&mut self) {
        // SAFETY: the owner goes, which a queue pair made of it was until it was destroyed.
        let returned = unsafe { ibv_dealloc_pd(self.raw.as_ptr()) };
        if returned == 0 {
            // SAFETY: not used after.
            unsafe { ManuallyDrop::drop(&mut self.td) };
        } else {
            crate::leak::with(&self.pd);
        }
    }
}

impl ProtectionDomain {
    /// Joins the domain with a thread domain, for one queue pair.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] when the thread domain is of another device;
    /// [`ErrorKind::Unsupported`] where the provider has none.
    ///
    /// # References
    /// [`ibv_alloc_parent_domain(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_parent_domain.3.html)
    pub fn alloc_parent_domain(&self, td: ThreadDomain) -> Result<ParentDomain> {
        const VERB: &str = "ibv_alloc_parent_domain";
        let context = self.context();
        if td.context.as_raw() != context.as_raw() {
            let (its, mine) = (td.context.device_name(), context.device_name());
            let what = format!("a domain of {mine} with a thread domain of {its}");
            let error = Error::new(ErrorKind::Mismatch, VERB, what);
            return Err(error.with_hint("make both on the same opening of the device"));
        }
        let mut attr = ibv_parent_domain_init_attr {
            pd: self.as_raw(),
            td: td.raw.as_ptr(),
            ..Default::default()
        };
        let what = || context.device_name().to_owned();
        let raw = non_null(VERB, what, || {
            // SAFETY: both domains are alive and of this context; the attributes are valid during
            // the call.
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
    /// The protection domain of its memory.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }
}

impl AsRaw for ThreadDomain {
    type Raw = ibv_td;

    fn as_raw(&self) -> *mut ibv_td {
        self.raw.as_ptr()
    }
}

impl AsRaw for ParentDomain {
    type Raw = ibv_pd;

    fn as_raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

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
