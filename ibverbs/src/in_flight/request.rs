//! A request in flight, and the memory that it keeps alive.

use std::sync::Arc;

use super::loan::Loan;
use crate::mr::{Buf, BufList};
use crate::mw::Bound;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) owned: Owned,
    pub(crate) tag: u64,
}

impl Request {
    /// Sets the length of buffers to that of the received message.
    #[inline]
    pub(crate) fn received(mut self, len: usize) -> Self {
        self.owned = Owned(match self.owned.take() {
            Some(InFlight::Buf(buf)) => Some(InFlight::Buf(buf).with_len(len)),
            other => other.map(|in_flight| in_flight.received(len)),
        });
        self
    }

    /// Returns `true` if it uses borrowed memory.
    pub(crate) fn is_lent(&self) -> bool {
        self.owned.is_lent()
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
/// Dropping a value is rare. An outlined drop keeps `Request` in registers; an inlined one spills
/// it to the stack.
#[derive(Debug)]
pub(crate) struct Owned(pub(super) Option<InFlight>);

impl Owned {
    #[inline]
    pub(crate) fn new(in_flight: Option<InFlight>) -> Self {
        Self(in_flight)
    }

    /// Ends a loan or a binding, and removes a mark, because the request has completed.
    pub(crate) fn completed(mut self) -> Self {
        match self.take() {
            // Apart from the others, so that the code to drop it is known.
            Some(InFlight::Lent(loan)) => {
                drop(loan);
                Self(None)
            }
            Some(InFlight::Bind(_) | InFlight::Marker) => Self(None),
            other => Self(other),
        }
    }

    /// Returns `true` if the value is a loan.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.0, Some(InFlight::Lent(_)))
    }

    /// Removes the buffer if the value is one.
    #[inline]
    pub(crate) fn take_buf(&mut self) -> Option<Buf> {
        match self.take() {
            Some(InFlight::Buf(buf)) => Some(buf),
            other => {
                self.0 = other;
                None
            }
        }
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
///
/// Tag 0 stands for `None` in an `Option`, so one comparison tells the frequent values, no value
/// and a buffer, from all others.
#[derive(Debug)]
#[repr(u64)]
pub enum InFlight {
    /// A buffer.
    Buf(Buf) = 1,
    /// Several buffers.
    List(BufList),
    /// A loan of borrowed memory, counted by its scope.
    Lent(#[allow(dead_code, reason = "dropped when the request completes")] Loan),
    /// A memory window to be bound, with the region.
    Bind(#[allow(dead_code, reason = "dropped when the request completes")] Arc<Bound>),
    /// A memory window to be invalidated. It is unbound if the request succeeds.
    Invalidate(Arc<Bound>),
    /// A mark of an unsignaled request ([`CompletionOrder::Unsignaled`]), without a value.
    ///
    /// [`CompletionOrder::Unsignaled`]: super::CompletionOrder::Unsignaled
    Marker,
}

impl InFlight {
    /// See [`Request::received`].
    #[cold]
    #[inline(never)]
    fn received(mut self, len: usize) -> Self {
        if let Self::List(list) = &mut self {
            list.set_total_len(len);
        }
        self
    }

    /// Sets the length of a buffer or a list to that of the data which the device writes.
    #[inline]
    pub(crate) fn with_len(mut self, len: usize) -> Self {
        match &mut self {
            Self::Buf(buf) => buf.set_len(len),
            Self::List(list) => list.set_total_len(len),
            _ => {}
        }
        self
    }
}
