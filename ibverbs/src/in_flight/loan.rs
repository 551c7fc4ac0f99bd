//! How many requests with borrowed memory are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many requests with borrowed memory are in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loans(Arc<AtomicUsize>);

impl Loans {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Counts one more request, until a [`Loan`] made of what is returned is dropped.
    pub(crate) fn begin(self) -> Arc<AtomicUsize> {
        self.0.fetch_add(1, Ordering::AcqRel);
        self.0
    }
}

/// A request in flight with borrowed memory. Dropped when its table lets go of it: at its
/// completion, when it turns out not to be posted, or after the queue pair was destroyed.
pub(crate) struct Loan(pub(crate) Arc<AtomicUsize>);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
