//! Memory windows: keys to parts of a region that can be given and taken back without registering
//! anew.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rdma_sys::{ibv_alloc_mw, ibv_inc_rkey, ibv_mw_bind_info};

use crate::convert::non_null;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::mr::{AccessFlags, Region, RemoteMemory, SharedRegion};
use crate::pd::ProtectionDomain;
use crate::raw::AsRaw;

use super::handle::Handle;
use super::kind::{Type2, WindowType};

/// A memory window, not bound. Dropping it frees it.
///
/// # Example
/// A peer may read half a region until the window is invalidated:
/// ```no_run
/// # use ibverbs::{AccessFlags, Completion, Error, QueuePair, Rc, SharedRegion, mw::Type2, wr};
/// # fn f(qp: &mut QueuePair<Rc>, completion: Completion<'_>) -> Result<(), Error> {
/// let region = qp.pd().shared(8192, AccessFlags::MW_BIND)?;
/// let window = qp.pd().alloc_mw::<Type2>()?;
/// let (bound, binding) = window.bind(
///     &region.slice(0..4096).expect("within"),
///     AccessFlags::REMOTE_READ,
/// )?;
/// qp.post_send(wr::bind(binding))?;
/// let told_to_the_peer = bound.remote();
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
pub struct Window<K: WindowType> {
    pub(crate) handle: Handle,
    pub(crate) kind: PhantomData<K>,
}

impl ProtectionDomain {
    /// Allocates a memory window of type `K`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the device has no windows of that type.
    ///
    /// # References
    /// [`ibv_alloc_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)
    pub fn alloc_mw<K: WindowType>(&self) -> Result<Window<K>> {
        let what = || {
            format!(
                "a window of type {} on {}",
                K::RAW,
                self.context().device_name()
            )
        };
        // SAFETY: the domain is alive.
        let mw = non_null("ibv_alloc_mw", what, || unsafe {
            ibv_alloc_mw(self.as_raw(), K::RAW)
        })?;
        // SAFETY: just allocated.
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

/// A memory window that is bound to a region, or about to be; it keeps the region alive. Dropping
/// it frees the window, which ends the binding. A binding of type 2 also ends with the queue pair
/// that it was posted to.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     QueuePair, Rc, RemoteMemory,
///     mw::{BoundWindow, Type2},
///     wr,
/// };
/// # fn f(qp: &mut QueuePair<Rc>, bound: BoundWindow<Type2>) -> ibverbs::Result<()> {
/// let told_to_the_peer: RemoteMemory = bound.remote();
/// // when the peer has done its work
/// qp.post_send(wr::invalidate(bound))?; // its completion gives the window back
///
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_alloc_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html); IBA 10.6.7
pub struct BoundWindow<K: WindowType> {
    pub(crate) bound: Arc<Bound>,
    pub(crate) kind: PhantomData<K>,
}

/// A binding, as requests in flight share it with its owner.
#[derive(Debug)]
pub struct Bound {
    pub(crate) handle: Handle,
    remote: RemoteMemory,
    access: AccessFlags,
}

impl Bound {
    /// The region, which is there for every binding.
    fn region(&self) -> Option<&Arc<Region>> {
        self.handle.parents.0.as_ref()
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        self.handle.pd()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.remote.rkey
    }

    /// What a request to bind, or with no length to unbind, tells of the memory.
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

    /// Ends the binding, as its queue pair is about to be destroyed.
    ///
    /// # Safety
    /// It was posted to that queue pair, once, and can be posted to no other: then nobody else uses
    /// the handle's pointer.
    pub(crate) unsafe fn end(&self) {
        // SAFETY: the caller's promise. If it fails it is tried again when the window is dropped.
        unsafe { self.handle.free() };
    }
}

/// A binding to be posted, once, by [`wr::bind`](crate::wr::bind).
///
/// # Example
/// The binding and the message that tells its key, with one doorbell:
/// ```no_run
/// use ibverbs::{AccessFlags, QueuePair, Rc, SharedRegion, mw::{Binding, Type2, Window}, wr};
/// # fn f(qp: &mut QueuePair<Rc>, window: Window<Type2>, region: &SharedRegion) -> ibverbs::Result<()> {
/// let (bound, binding): (_, Binding) = window.bind(region, AccessFlags::REMOTE_READ)?;
/// let key = bound.remote().rkey.to_be_bytes();
/// qp.batch(|batch| {
///     batch.send(wr::bind(binding).unsignaled())?;
///     batch.send(wr::send(wr::Inline(&key)))?;
///     ibverbs::Result::Ok(())
/// })?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_wr_post(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
#[derive(Debug)]
#[must_use = "a window is not bound until the request is posted"]
pub struct Binding(pub(crate) Arc<Bound>);

impl<K: WindowType> Window<K> {
    /// Pairs the window with memory; what is bound is told by the request.
    pub(crate) fn pair(mut self, region: &SharedRegion, access: AccessFlags) -> Result<Bound> {
        let refused = |kind, why: &str| {
            let what = format!(
                "a window to a shared region of {} bytes: {why}",
                region.len()
            );
            Err(Error::new(kind, "bind", what))
        };
        if !region.pd().is(self.handle.pd()) {
            return refused(
                ErrorKind::Mismatch,
                "they are of different protection domains",
            );
        }
        if !region.access().contains(AccessFlags::MW_BIND) {
            return refused(
                ErrorKind::InvalidInput,
                "the region was not registered with AccessFlags::MW_BIND",
            );
        }
        if region.is_empty() || !AccessFlags::REMOTE.contains(access) {
            return refused(
                ErrorKind::InvalidInput,
                "it opens at least one byte to remote access and no other",
            );
        }
        if self
            .handle
            .parents
            .0
            .as_ref()
            .is_some_and(|kept| !Arc::ptr_eq(kept, region.region()))
        {
            return refused(
                ErrorKind::Mismatch,
                "a peer invalidated the window: it can be bound to its old region only",
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
    /// Prepares to bind the window to all of `region` (or of a [slice](SharedRegion::slice) of it)
    /// with this remote access: what is returned first has the key, what is returned second is
    /// to be posted by [`wr::bind`](crate::wr::bind).
    ///
    /// Soft-RoCE checks a peer's accesses against the region's bounds rather than the window's.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a region without [`AccessFlags::MW_BIND`],
    /// [`ErrorKind::Mismatch`] for one of another domain. The window is then freed.
    ///
    /// # References
    /// [`ibv_wr_bind_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html),
    /// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    pub fn bind(
        self,
        region: &SharedRegion,
        access: AccessFlags,
    ) -> Result<(BoundWindow<Type2>, Binding)> {
        let mut bound = self.pair(region, access)?;
        // A provider takes the old key from the handle, which the caller of the verb keeps up to
        // date. SAFETY: the window is alive, and this is its one owner.
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
    /// Takes the key that the verb chose.
    pub(crate) fn with_key_of_handle(mut self) -> Self {
        // SAFETY: the window is alive.
        self.handle.rkey = unsafe { self.handle.mw.as_ref().rkey };
        self.remote.rkey = self.handle.rkey;
        self
    }
}

impl<K: WindowType> BoundWindow<K> {
    /// The memory as a peer names it through the window, once it is bound.
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
