//! Memory windows: remote keys for parts of a region that can be granted and revoked without
//! registering memory again.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rdma_sys::{ibv_alloc_mw, ibv_inc_rkey, ibv_mw_bind_info};

use crate::convert::non_null;
use crate::error::{Error, ErrorKind, Result};
use crate::mr::{AccessFlags, Region, RemoteMemory, SharedRegion};
use crate::pd::ProtectionDomain;
use crate::raw::AsRaw;

use super::handle::Handle;
use super::kind::{Type2, WindowType};

/// An unbound memory window. It is freed on drop.
///
/// # Example
/// This example lets a peer read half of a region until the window is invalidated:
/// ```no_run
/// # use ibverbs::{AccessFlags, Completion, Error, QueuePair, Rc, SharedRegion, mw::Type2, wr};
/// # fn f(qp: &mut QueuePair<Rc>, completion: Completion<'_>) -> Result<(), Error> {
/// let region = qp.pd().shared(8192, AccessFlags::MW_BIND)?;
/// let window = qp.pd().alloc_mw::<Type2>()?;
/// let (bound, binding) = window.bind(
///     &region.slice(0..4096).expect("within the region"),
///     AccessFlags::REMOTE_READ,
/// )?;
/// qp.post_send(wr::bind(binding))?;
/// let for_the_peer = bound.remote();
/// // later
/// qp.post_send(wr::invalidate(bound))?;
/// let window = qp
///     .retire(completion)?
///     .into_window::<Type2>()
///     .expect("invalidated");
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_alloc_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html), IBA 10.6.7
#[doc(alias = "ibv_alloc_mw")]
pub struct Window<K: WindowType> {
    pub(crate) handle: Handle,
    pub(crate) kind: PhantomData<K>,
}

impl ProtectionDomain {
    /// Allocates a memory window of type `K`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device does not support windows of this type.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw<K: WindowType>(&self) -> Result<Window<K>> {
        let what = || format!("type {} window on {}", K::RAW, self.context().device_name());
        // SAFETY: the domain is alive.
        let mw = non_null("ibv_alloc_mw", what, || unsafe {
            ibv_alloc_mw(self.as_raw(), K::RAW)
        })?;
        // SAFETY: the window was just allocated.
        let rkey = unsafe { mw.as_ref().rkey };
        let parents = ManuallyDrop::new((None, self.clone()));
        Ok(Window {
            handle: Handle {
                mw,
                kind: K::RAW,
                rkey,
                freed: AtomicBool::new(false),
                parents,
            },
            kind: PhantomData,
        })
    }
}

/// A memory window that is bound to a region, or whose binding was prepared.
///
/// It keeps the region alive. Dropping it frees the window, which ends the binding. A type 2
/// binding also ends with the queue pair that it was posted to.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     QueuePair, Rc, RemoteMemory,
///     mw::{BoundWindow, Type2},
///     wr,
/// };
/// # fn f(qp: &mut QueuePair<Rc>, bound: BoundWindow<Type2>) -> ibverbs::Result<()> {
/// let for_the_peer: RemoteMemory = bound.remote();
/// // when the peer has finished
/// qp.post_send(wr::invalidate(bound))?; // the completion returns the window
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_alloc_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html); IBA 10.6.7
#[doc(alias = "ibv_alloc_mw")]
pub struct BoundWindow<K: WindowType> {
    pub(crate) bound: Arc<Bound>,
    pub(crate) kind: PhantomData<K>,
}

/// A binding, shared by its owner and by requests in flight.
#[derive(Debug)]
pub struct Bound {
    pub(crate) handle: Handle,
    remote: RemoteMemory,
    access: AccessFlags,
}

impl Bound {
    /// Returns the region. Every binding has one.
    fn region(&self) -> Option<&Arc<Region>> {
        self.handle.parents.0.as_ref()
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        self.handle.pd()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.remote.rkey
    }

    /// Returns the description of the memory for a bind request. A length of 0 unbinds the window.
    pub(crate) fn info(&self, length: u64) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: self.region().map_or(std::ptr::null_mut(), |region| {
                region.registration().as_ptr()
            }),
            addr: self.remote.addr,
            length,
            mw_access_flags: self.access.bits(),
        }
    }

    pub(crate) fn remote(&self) -> RemoteMemory {
        self.remote
    }

    /// Frees the window before its queue pair is destroyed.
    ///
    /// # Safety
    /// The binding must have been posted once, to this queue pair, which posts nothing more. So no
    /// other code uses the pointer of the handle.
    pub(crate) unsafe fn free(&self) {
        // SAFETY: guaranteed by the caller. If freeing fails, the drop of the window tries again.
        unsafe { self.handle.free() };
    }
}

/// A binding, to be posted once with [`wr::bind`](crate::wr::bind).
///
/// # Example
/// This example posts the binding and a message with its key in one batch:
/// ```no_run
/// use ibverbs::{AccessFlags, QueuePair, Rc, SharedRegion, mw::{Binding, Type2, Window}, wr};
/// # fn f(qp: &mut QueuePair<Rc>, window: Window<Type2>, region: &SharedRegion) -> ibverbs::Result<()> {
/// let (bound, binding): (_, Binding) = window.bind(region, AccessFlags::REMOTE_READ)?;
/// let key = bound.remote().rkey.to_be_bytes();
/// qp.batch(|batch| {
///     batch.send(wr::bind(binding).signaled(false))?;
///     batch.send(wr::send(wr::Inline(&key)))?;
///     Ok::<(), ibverbs::Error>(())
/// })?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_wr_post")]
#[derive(Debug)]
#[must_use = "the window is not bound until the request is posted"]
pub struct Binding(pub(crate) Arc<Bound>);

impl<K: WindowType> Window<K> {
    /// Combines the window with memory. The request determines when it is bound.
    pub(crate) fn into_bound(
        mut self,
        region: &SharedRegion,
        access: AccessFlags,
    ) -> Result<Bound> {
        let invalid = |kind, reason: &str| {
            let what = format!(
                "bind a window to a shared region of {} bytes: {reason}",
                region.len()
            );
            Err(Error::new(kind, "bind", what))
        };
        if !region.pd().is(self.handle.pd()) {
            return invalid(
                ErrorKind::Mismatch,
                "the window belongs to another protection domain",
            );
        }
        if !region.access().contains(AccessFlags::MW_BIND) {
            return invalid(
                ErrorKind::InvalidInput,
                "the region was not registered with AccessFlags::MW_BIND",
            );
        }
        if region.is_empty() || !AccessFlags::REMOTE.contains(access) {
            return invalid(
                ErrorKind::InvalidInput,
                "expected at least one byte, and remote access rights only",
            );
        }
        if self
            .handle
            .parents
            .0
            .as_ref()
            .is_some_and(|bound| !Arc::ptr_eq(bound, region.region()))
        {
            return invalid(
                ErrorKind::Mismatch,
                "a peer invalidated the window, so it can only be bound to its old region",
            );
        }
        self.handle.parents.0 = Some(Arc::clone(region.region()));
        Ok(Bound {
            remote: region.remote(),
            access,
            handle: self.handle,
        })
    }
}

impl Window<Type2> {
    /// Prepares to bind the window to `region`, or to a [slice](SharedRegion::slice) of a region,
    /// with the remote access rights `access`.
    ///
    /// Returns the window with its key, and the binding to post with [`wr::bind`](crate::wr::bind).
    ///
    /// Soft-RoCE checks a peer's accesses against the bounds of the region instead of those of the
    /// window.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: the region was registered without [`AccessFlags::MW_BIND`],
    ///   is empty, or `access` is not remote access.
    /// - [`ErrorKind::Mismatch`]: the window belongs to another protection domain, or a peer
    ///   invalidated it and `region` is not its old region.
    ///
    /// On failure, the window is freed.
    #[doc(alias = "ibv_wr_bind_mw")]
    #[doc(alias = "ibv_post_send")]
    pub fn bind(
        self,
        region: &SharedRegion,
        access: AccessFlags,
    ) -> Result<(BoundWindow<Type2>, Binding)> {
        let mut bound = self.into_bound(region, access)?;
        // Providers read the old key from the handle, which the caller must keep current.
        // SAFETY: the window is alive and has no other user.
        unsafe { (*bound.handle.as_ptr()).rkey = bound.handle.rkey };
        bound.handle.rkey = ibv_inc_rkey(bound.handle.rkey);
        bound.remote.rkey = bound.handle.rkey;
        let bound = Arc::new(bound);
        Ok((
            BoundWindow {
                bound: Arc::clone(&bound),
                kind: PhantomData,
            },
            Binding(bound),
        ))
    }
}

impl Bound {
    /// Adopts the key that the verb chose.
    pub(crate) fn with_rkey_of_handle(mut self) -> Self {
        // SAFETY: the window is alive.
        self.handle.rkey = unsafe { self.handle.mw.as_ref().rkey };
        self.remote.rkey = self.handle.rkey;
        self
    }
}

impl<K: WindowType> BoundWindow<K> {
    /// Returns the memory as a peer addresses it through the window, once it is bound.
    pub fn remote(&self) -> RemoteMemory {
        self.bound.remote()
    }
}

impl<K: WindowType> fmt::Debug for Window<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("type", &K::RAW)
            .finish_non_exhaustive()
    }
}

impl<K: WindowType> fmt::Debug for BoundWindow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundWindow")
            .field("type", &K::RAW)
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}
