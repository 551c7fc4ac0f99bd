//! A request in flight, and the memory that it keeps alive.

use std::sync::Arc;

use rdma_sys::ibv_wc;

use super::loan::Loan;
use crate::cq::WcFields;
use crate::mr::{Buf, BufList};
use crate::mw::Bound;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) owned: Owned,
    pub(crate) tag: u64,
}

impl Request {
    /// Ends a loan or a binding, because the request has completed.
    #[inline]
    pub(crate) fn completed(mut self) -> Self {
        if let Some(InFlight::Lent(_) | InFlight::Bind(_)) = self.owned.0 {
            self.owned = Owned(None);
        }
        self
    }

    /// Sets the length of buffers to that of the received message, if the receive succeeded.
    #[inline]
    pub(crate) fn received(mut self, wc: &ibv_wc) -> Self {
        if !wc.status().is_success() {
            return self;
        }
        let len = wc.byte_len as usize;
        match &mut self.owned.0 {
            Some(InFlight::Buf(buf)) => buf.set_len(len),
            Some(InFlight::List(_)) => self.owned.set_list_len(len),
            _ => {}
        }
        self
    }

    /// Returns all buffers in order.
    pub(crate) fn into_bufs(mut self) -> Vec<Buf> {
        match self.owned.take() {
            Some(InFlight::Buf(buf)) => vec![buf],
            Some(InFlight::List(list)) => list.into_bufs(),
            _ => Vec::new(),
        }
    }
}

/// The value that a request owns: nothing if it has no data, inline data, or memory that its queue
/// holds.
///
/// Few requests drop a value, so that is done out of line, with the value in registers. Otherwise
/// every retired request would be kept in memory.
#[derive(Debug)]
pub(crate) struct Owned(Option<InFlight>);

impl Owned {
    /// Sets the length of a list. The list is moved out meanwhile, so that a request in a register
    /// is not written to memory for this call.
    #[cold]
    fn set_list_len(&mut self, len: usize) {
        if let Some(InFlight::List(mut list)) = self.take() {
            list.set_total_len(len);
            self.0 = Some(InFlight::List(list));
        }
    }

    #[inline]
    pub(crate) fn new(in_flight: Option<InFlight>) -> Self {
        Self(in_flight)
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<InFlight> {
        self.0.take()
    }
}

impl Drop for Owned {
    #[inline]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn drop_out_of_line(in_flight: InFlight) {
            drop(in_flight);
        }
        if let Some(in_flight) = self.take() {
            drop_out_of_line(in_flight);
        }
    }
}

/// The value that a request in flight owns until it completes or its queue is destroyed.
#[derive(Debug)]
pub enum InFlight {
    /// A buffer.
    Buf(Buf),
    /// Several buffers.
    List(BufList),
    /// A loan of borrowed memory, counted by its scope.
    Lent(#[allow(dead_code, reason = "dropped when the request completes")] Loan),
    /// A memory window to be bound, with the region.
    Bind(#[allow(dead_code, reason = "dropped when the request completes")] Arc<Bound>),
    /// A memory window to be invalidated. It is unbound if the request succeeds.
    Invalidate(Arc<Bound>),
}

impl InFlight {
    /// Sets the length of a buffer to that of the data which the device writes.
    #[inline]
    pub(crate) fn with_len(mut self, len: usize) -> Self {
        if let Self::Buf(buf) = &mut self {
            buf.set_len(len);
        }
        self
    }
}
