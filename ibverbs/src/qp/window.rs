//! Memory windows in requests: binding, invalidating, and the verb of its own that type 1 has.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use rdma_sys::{
    IBV_SEND_SIGNALED, IBV_WC_IP_CSUM_OK, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV, ibv_bind_mw, ibv_mw,
    ibv_mw_bind, ibv_mw_bind_info, ibv_qp_ex, ibv_send_wr, ibv_wr_bind_mw, ibv_wr_local_inv, ibv_wr_send_inv,
};

use super::builder::is_soft_roce;
use super::kept::InFlight;
use super::operation::Operation;
use super::operation::private::{Moves, Write};
use super::pair::QueuePair;
use super::payload::private::{Payload, Source};
use super::payload::{Belongs, Gather, SendPayload};
use super::rejected::PostError;
use super::retired::Retired;
use super::transport::{Connected, Transport};
use crate::convert::zero_or_errno;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::mr::{AccessFlags, SharedRegion};
use crate::mw::{Binding, Bound, BoundWindow, Type1, Type2, Window, WindowType};
use crate::raw::AsRaw;

/// The operation [`wr::bind`](crate::wr::bind). The pointers are valid while the payload is.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    mw: *mut ibv_mw,
    rkey: u32,
    info: ibv_mw_bind_info,
}

impl Bind {
    pub(super) fn new(Binding(bound): &Binding) -> Self {
        Self { mw: bound.handle.as_ptr(), rkey: bound.rkey(), info: bound.info(bound.remote().len) }
    }
}

impl Payload for Binding {
    fn belongs(&self) -> Belongs<'_> {
        Belongs::To(self.0.pd())
    }

    fn into_in_flight(self) -> InFlight {
        InFlight::bind(self.0)
    }
}

impl Write for Bind {
    const EXTRA: bool = true;
    const DATA: bool = false;

    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_BIND_MW;
        // Soft-RoCE's provider refuses what an invalidation before this one left there.
        wr.__bindgen_anon_1.invalidate_rkey = 0;
        let bind =
            rdma_sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw: self.mw, rkey: self.rkey, bind_info: self.info };
        wr.__bindgen_anon_2.bind_mw = bind;
    }

    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise; window and region are alive, held by the payload.
        unsafe { ibv_wr_bind_mw(qp, self.mw, self.rkey, &raw const self.info) }
    }
}

/// The operation [`wr::invalidate`](crate::wr::invalidate).
#[derive(Clone, Copy, Debug)]
pub struct Invalidate(pub(super) u32);

impl Payload for BoundWindow<Type2> {
    fn belongs(&self) -> Belongs<'_> {
        Belongs::To(self.bound.pd())
    }

    fn into_in_flight(self) -> InFlight {
        InFlight::invalidate(self.bound)
    }
}

impl Write for Invalidate {
    const EXTRA: bool = true;
    const DATA: bool = false;

    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_LOCAL_INV;
        wr.__bindgen_anon_1.invalidate_rkey = self.0;
    }

    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_local_inv(qp, self.0) }
    }
}

/// Neither moves data.
macro_rules! without_data {
    ($($operation:ty: $payload:ty { $($bound:item)? }),*) => {$(
        impl Moves<$payload> for $operation {
            $($bound)?

            fn check(self, _: &$payload) -> std::result::Result<(), PostError> {
                Ok(())
            }

            fn local(self, _: &$payload) -> Gather<'_> {
                Gather::Empty
            }
        }

        impl<T: Connected> Operation<T, $payload> for $operation {}
    )*};
}

without_data! {
    Bind: Binding {
        fn bound(payload: &Binding) -> Option<Weak<Bound>> {
            Some(Arc::downgrade(&payload.0))
        }
    },
    Invalidate: BoundWindow<Type2> {}
}

/// Windows of type 2 bound by requests of one queue pair, which must end before it: Soft-RoCE, for one, waits 50 seconds for a bound one
/// to let go of the queue pair that it destroys, and then frees it all the same.
#[derive(Debug, Default)]
pub(super) struct Windows(Vec<Weak<Bound>>);

impl Windows {
    #[inline]
    pub(super) fn extend(&mut self, window: Option<Weak<Bound>>) {
        if let Some(window) = window {
            self.push(window);
        }
    }

    fn push(&mut self, window: Weak<Bound>) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|window| window.strong_count() > 0);
        }
        self.0.push(window);
    }

    /// Ends the bindings that are left.
    ///
    /// # Safety
    /// The queue pair that they were posted to is destroyed next, with no request posted between.
    pub(super) unsafe fn end(&mut self) {
        for bound in self.0.drain(..).filter_map(|window| window.upgrade()) {
            // SAFETY: a Binding is posted once, and it was here.
            unsafe { bound.end() };
        }
    }
}

/// The operation [`wr::send_with_inv`](crate::wr::send_with_inv).
#[derive(Clone, Copy, Debug)]
pub struct SendWithInv(pub(super) u32);

impl Write for SendWithInv {
    const EXTRA: bool = true;

    fn classic(self, wr: &mut ibv_send_wr) {
        wr.opcode = IBV_WR_SEND_WITH_INV;
        wr.__bindgen_anon_1.invalidate_rkey = self.0;
    }

    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_send_inv(qp, self.0) }
    }
}

impl<P: SendPayload> Moves<P> for SendWithInv {
    fn check(self, _: &P) -> std::result::Result<(), PostError> {
        Ok(())
    }

    fn local(self, payload: &P) -> Gather<'_> {
        Source::gather(payload)
    }
}

impl<T: Connected, P: SendPayload> Operation<T, P> for SendWithInv {}

impl<T: Transport> QueuePair<T> {
    /// Binds a window of type 1 to all of `region` (or of a [slice](SharedRegion::slice) of it) with this remote access. It takes a place in
    /// the send queue and completes as a request, with `tag`.
    ///
    /// # Errors
    /// As [`Window::bind`]; [`ErrorKind::QueueFull`]. The window is then freed, at once or, where the driver refused a request that it may
    /// have queued, with a later completion.
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
        self.tables.sends.push(InFlight::bind(Arc::clone(&bound)), tag);
        zero_or_errno("ibv_bind_mw", || self.describe(), returned)?;
        Ok(BoundWindow { bound, kind: PhantomData })
    }

    /// Ends the binding of a window of type 1. It takes a place in the send queue and completes as a request, with `tag`;
    /// [`Retired::into_window`] then gives the window back.
    ///
    /// # Errors
    /// As [`bind_mw`](Self::bind_mw).
    pub fn unbind_mw(&mut self, window: BoundWindow<Type1>, tag: u64) -> Result<()> {
        let returned = self.post_bind(&window.bound, 0)?;
        self.tables.sends.push(InFlight::invalidate(window.bound), tag);
        zero_or_errno("ibv_bind_mw", || self.describe(), returned)
    }

    /// Calls the verb; the outer error is of a request that was certainly not posted.
    fn post_bind(&mut self, bound: &Bound, length: u64) -> Result<i32> {
        if !bound.pd().is(self.pd()) {
            let what = "a window and a queue pair of different protection domains";
            return Err(Error::new(ErrorKind::Mismatch, "ibv_bind_mw", what));
        }
        let Some(next) = self.tables.sends.next() else {
            return Err(Error::new(ErrorKind::QueueFull, "ibv_bind_mw", "the send queue is full"));
        };
        let wr_id = next.wr_id();
        let mut bind = ibv_mw_bind { wr_id: wr_id.0, send_flags: IBV_SEND_SIGNALED, bind_info: bound.info(length) };
        // SAFETY: queue pair, window and region are alive and of one domain; the queue pair is used by one thread.
        Ok(unsafe { ibv_bind_mw(self.as_raw(), bound.handle.as_ptr(), &raw mut bind) })
    }
}

impl Retired {
    /// The window that a successful [`wr::invalidate`](crate::wr::invalidate) or [`QueuePair::unbind_mw`] made free to be bound anew. `None`
    /// for another request, a window of the other type, or a failure; the window is then freed.
    pub fn into_window<K: WindowType>(self) -> Option<Window<K>> {
        // Requests before this one have retired; one of another queue may still hold it, and then frees it.
        let handle = Arc::try_unwrap(self.into_invalidated()?).ok()?.handle;
        (handle.is::<K>() && handle.is_live()).then(|| Window { handle: handle.unbound(), kind: PhantomData })
    }
}

impl BoundWindow<Type2> {
    /// The window again, if `received` is a message by which the peer invalidated it ([`wr::send_with_inv`](crate::wr::send_with_inv)).
    ///
    /// It can be bound anew to the same region. The peer's word is not relied upon for memory: the region stays alive, and shared, until
    /// the window is freed or invalidated by this side.
    ///
    /// # Errors
    /// Itself, if the message did no such thing, or requests that name the window are still in flight.
    pub fn invalidated_by(self, received: &Retired) -> std::result::Result<Window<Type2>, Self> {
        // Soft-RoCE passes the kernel's flag on, which is another one of the library's.
        let told = received
            .invalidated_rkey()
            .or_else(|| received.told(IBV_WC_IP_CSUM_OK).filter(|_| is_soft_roce(self.bound.pd()).unwrap_or(false)));
        if told != Some(self.bound.rkey()) || !self.bound.handle.is_live() {
            return Err(self);
        }
        match Arc::try_unwrap(self.bound) {
            Ok(bound) => Ok(Window { handle: bound.handle, kind: PhantomData }),
            Err(bound) => Err(Self { bound, kind: PhantomData }),
        }
    }
}
