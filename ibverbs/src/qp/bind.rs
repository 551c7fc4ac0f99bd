//! Windows that a queue pair binds by a verb of its own, and windows that come back.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use rdma_sys::{IBV_SEND_SIGNALED, IBV_WC_IP_CSUM_OK, ibv_bind_mw, ibv_mw_bind};

use super::pair::QueuePair;
use crate::convert::zero_or_errno;
use crate::cq::Says;
use crate::error::{Error, Result};
use crate::in_flight::{InFlight, Retired};
use crate::kind::ErrorKind;
use crate::mr::{AccessFlags, SharedRegion};
use crate::mw::{Bound, BoundWindow, Type1, Type2, Window, WindowType};
use crate::raw::AsRaw;
use crate::transport::ConnectedTransport;
use crate::wr::OWN_DOMAIN;

impl<T: ConnectedTransport> QueuePair<T> {
    /// Binds a window of type 1 to all of `region` (or of a [slice](SharedRegion::slice) of it)
    /// with this remote access. It takes a place in the send queue and completes as a request,
    /// with `tag`.
    ///
    /// # Errors
    /// As [`Window::bind`]; [`ErrorKind::QueueFull`]. The window is then freed, at once or, where
    /// the driver refused a request that it may have queued, with a later completion.
    ///
    /// # References
    /// [`ibv_bind_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html)
    pub fn bind_mw(
        &mut self,
        window: Window<Type1>,
        region: &SharedRegion,
        access: AccessFlags,
        tag: u64,
    ) -> Result<BoundWindow<Type1>> {
        let bound = window.pair(region, access)?;
        let returned = self.post_bind(&bound, bound.remote().len)?;
        let bound = Arc::new(bound.with_key_of_handle());
        self.tables
            .sends
            .push(InFlight::bind(Arc::clone(&bound)), tag);
        zero_or_errno("ibv_bind_mw", || self.describe(), returned)?;
        Ok(BoundWindow {
            bound,
            kind: PhantomData,
        })
    }

    /// Ends the binding of a window of type 1. It takes a place in the send queue and completes as
    /// a request, with `tag`; [`Retired::into_window`] then gives the window back.
    ///
    /// # Errors
    /// As [`bind_mw`](Self::bind_mw).
    ///
    /// # References
    /// [`ibv_bind_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html)
    pub fn unbind_mw(&mut self, window: BoundWindow<Type1>, tag: u64) -> Result<()> {
        let returned = self.post_bind(&window.bound, 0)?;
        self.tables
            .sends
            .push(InFlight::invalidate(window.bound), tag);
        zero_or_errno("ibv_bind_mw", || self.describe(), returned)
    }

    /// Calls the verb; the outer error is of a request that was certainly not posted.
    fn post_bind(&mut self, bound: &Bound, length: u64) -> Result<i32> {
        if !bound.pd().is(self.pd()) {
            let what = "a window and a queue pair of different protection domains";
            return Err(Error::new(ErrorKind::Mismatch, "ibv_bind_mw", what).with_hint(OWN_DOMAIN));
        }
        let Some(wr_id) = self.tables.sends.next_number() else {
            return Err(Error::new(
                ErrorKind::QueueFull,
                "ibv_bind_mw",
                "the send queue is full",
            )
            .with_hint("retire completions first"));
        };
        let mut bind = ibv_mw_bind {
            wr_id: wr_id.0,
            send_flags: IBV_SEND_SIGNALED,
            bind_info: bound.info(length),
        };
        // SAFETY: queue pair, window and region are alive and of one domain; the queue pair is used
        // by one thread.
        Ok(unsafe { ibv_bind_mw(self.as_raw(), bound.handle.as_ptr(), &raw mut bind) })
    }
}

impl<C: Says> Retired<C> {
    /// The window that a successful [`wr::invalidate`](crate::wr::invalidate) or
    /// [`QueuePair::unbind_mw`] made free to be bound anew. `None` for another request, a
    /// window of the other type, or a failure; the window is then freed.
    pub fn into_window<K: WindowType>(self) -> Option<Window<K>> {
        // Requests before this one have retired; one of another queue may still hold it, and then
        // frees it.
        let handle = Arc::try_unwrap(self.into_invalidated()?).ok()?.handle;
        (handle.is::<K>() && handle.is_live()).then(|| Window {
            handle: handle.unbound(),
            kind: PhantomData,
        })
    }
}

impl BoundWindow<Type2> {
    /// The window again, if `received` is a message by which the peer invalidated it
    /// ([`wr::send_with_inv`](crate::wr::send_with_inv)).
    ///
    /// It can be bound anew to the same region. The peer's word is not relied upon for memory: the
    /// region stays alive, and shared, until the window is freed or invalidated by this side.
    ///
    /// # Errors
    /// Itself, if the message did no such thing, or requests that name the window are still in
    /// flight.
    pub fn invalidated_by(
        self,
        received: &Retired<impl Says>,
    ) -> std::result::Result<Window<Type2>, Self> {
        // Soft-RoCE passes the kernel's flag on, which is another one of the library's.
        let told = received.invalidated_rkey().or_else(|| {
            received
                .told(IBV_WC_IP_CSUM_OK)
                .filter(|_| self.bound.pd().context().is_soft_roce().unwrap_or(false))
        });
        if told != Some(self.bound.rkey()) {
            return Err(self);
        }
        // Asked when nobody else is left: until then another thread may be destroying the queue
        // pair, which frees the window.
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
