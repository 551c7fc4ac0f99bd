//! Binding type 1 windows with `ibv_bind_mw`, and reclaiming windows after an invalidation.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use rdma_sys::{IBV_SEND_SIGNALED, IBV_WC_IP_CSUM_OK, ibv_bind_mw, ibv_mw_bind};

use super::pair::QueuePair;
use crate::convert::zero_or_errno;
use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::{InFlight, Owned, Request, Retired, Vacant};
use crate::mr::{AccessFlags, SharedRegion};
use crate::mw::{Bound, BoundWindow, Type1, Type2, Window, WindowType};
use crate::transport::ConnectedTransport;
use crate::wr::OWN_DOMAIN;

impl<T: ConnectedTransport> QueuePair<T> {
    /// Binds a type 1 window to `region`, which can be a [slice](SharedRegion::slice), with this
    /// remote access. The binding takes a slot of the send queue and completes like a request, with
    /// `tag`.
    ///
    /// # Errors
    /// Same as [`Window::bind`], and [`ErrorKind::QueueFull`]. The window is then freed:
    /// immediately, or with a later completion if the driver failed a request that it may have
    /// queued.
    #[doc(alias = "ibv_bind_mw")]
    pub fn bind_mw(
        &mut self,
        window: Window<Type1>,
        region: &SharedRegion,
        access: AccessFlags,
        tag: u64,
    ) -> Result<BoundWindow<Type1>> {
        let bound = window.into_bound(region, access)?;
        let (returned, vacant) = self.post_bind(&bound, bound.remote().len)?;
        let bound = Arc::new(bound.with_rkey_of_handle());
        vacant.fill(Request {
            owned: Owned::new(Some(InFlight::Bind(Arc::clone(&bound)))),
            tag,
        });
        zero_or_errno("ibv_bind_mw", || self.describe_state(), returned)?;
        Ok(BoundWindow {
            bound,
            kind: PhantomData,
        })
    }

    /// Ends the binding of a type 1 window. This takes a slot of the send queue and completes like
    /// a request, with `tag`. [`Retired::into_window`] then returns the window.
    ///
    /// # Errors
    /// Same as [`bind_mw`](Self::bind_mw).
    #[doc(alias = "ibv_bind_mw")]
    pub fn unbind_mw(&mut self, window: BoundWindow<Type1>, tag: u64) -> Result<()> {
        let (returned, vacant) = self.post_bind(&window.bound, 0)?;
        vacant.fill(Request {
            owned: Owned::new(Some(InFlight::Invalidate(window.bound))),
            tag,
        });
        zero_or_errno("ibv_bind_mw", || self.describe_state(), returned)
    }

    /// Calls the verb. Returns its result, and the slot for the request, which may have been posted
    /// even if the verb failed.
    ///
    /// # Errors
    /// The request was not posted.
    fn post_bind(&mut self, bound: &Bound, length: u64) -> Result<(i32, Vacant<'_>)> {
        if !bound.pd().is(self.pd()) {
            let what = "the window and the queue pair belong to different protection domains";
            return Err(Error::new(ErrorKind::Mismatch, "ibv_bind_mw", what).with_help(OWN_DOMAIN));
        }
        let qp = self.live("ibv_bind_mw")?.as_ptr();
        let Some(vacant) = self.tables.sends.vacant() else {
            return Err(Error::new(
                ErrorKind::QueueFull,
                "ibv_bind_mw",
                "the send queue is full",
            )
            .with_help("retire completions first"));
        };
        let mut bind = ibv_mw_bind {
            wr_id: vacant.wr_id().0,
            send_flags: IBV_SEND_SIGNALED,
            bind_info: bound.info(length),
        };
        // SAFETY: queue pair, window and region are alive and belong to one protection domain.
        // `&mut self` keeps other threads from posting.
        let returned = unsafe { ibv_bind_mw(qp, bound.handle.as_ptr(), &raw mut bind) };
        Ok((returned, vacant))
    }
}

impl Retired {
    /// Returns the window that a successful [`wr::invalidate`](crate::wr::invalidate) or
    /// [`QueuePair::unbind_mw`] unbound, so that it can be bound again. Returns `None` for another
    /// request, another window type or a failed request. The window is then freed.
    pub fn into_window<K: WindowType>(self) -> Option<Window<K>> {
        // Earlier requests of this queue have retired. A request of another queue may still hold
        // the window and frees it when it retires.
        let handle = Arc::try_unwrap(self.into_invalidated()?).ok()?.handle;
        (handle.has_type::<K>() && handle.is_live()).then(|| Window {
            handle: handle.unbound(),
            kind: PhantomData,
        })
    }
}

impl BoundWindow<Type2> {
    /// Returns the unbound window if `received` is a message with which the peer invalidated it
    /// ([`wr::send_with_inv`](crate::wr::send_with_inv)).
    ///
    /// The window can be bound again to the same region. Memory safety does not depend on the peer:
    /// the region stays alive and shared until this side frees or invalidates the window.
    ///
    /// # Errors
    /// Returns the bound window if the message did not invalidate it, or if requests that use it
    /// have not retired. That can be its own binding: the message arrives before the binding
    /// retires if the binding is unsignaled, or if its completion was not polled yet. The peer's
    /// access has ended nevertheless. Keep the message, and call this again after the requests have
    /// retired.
    pub fn invalidated_by(self, received: &Retired) -> Result<Window<Type2>, Self> {
        // Soft-RoCE's provider passes on the kernel's flag for an invalidation, which has the value
        // of another flag of libibverbs.
        let invalidated = received.invalidated_rkey().or_else(|| {
            received
                .imm_or_invalidated(IBV_WC_IP_CSUM_OK)
                .filter(|_| self.bound.pd().context().is_soft_roce().unwrap_or(false))
        });
        if invalidated != Some(self.bound.rkey()) {
            return Err(self);
        }
        // `is_live` is only stable after the last other reference is gone: until then another
        // thread may be destroying the queue pair, which frees the window.
        match Arc::try_unwrap(self.bound) {
            Ok(bound) if bound.handle.is_live() => Ok(Window {
                handle: bound.handle,
                kind: PhantomData,
            }),
            Ok(freed) => Err(Self {
                bound: Arc::new(freed),
                kind: PhantomData,
            }),
            Err(bound) => Err(Self {
                bound,
                kind: PhantomData,
            }),
        }
    }
}
