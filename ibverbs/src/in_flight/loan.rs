//! The number of requests in flight that use borrowed memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of requests in flight that use memory lent to one scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loans(Arc<AtomicUsize>);

impl Loans {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Counts a request until the loan is dropped.
    pub(crate) fn begin(self) -> Loan {
        self.0.fetch_add(1, Ordering::AcqRel);
        Loan(self)
    }
}

/// A request in flight that uses borrowed memory.
///
/// The table drops it when the request completes, when it was not posted, or after the queue pair
/// is destroyed.
#[derive(Debug)]
pub struct Loan(Loans);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
