//! The number of requests in flight that use borrowed memory.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of requests in flight that use memory lent to one scope. The scope has it until it
/// has ended, which needs the number 0.
#[derive(Debug, Default)]
pub(crate) struct Loans(Arc<AtomicUsize>);

impl Loans {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn counter(&self) -> LoanCounter {
        LoanCounter(NonNull::from(&*self.0))
    }
}

/// The counter of a scope, as its tokens and its requests in flight refer to it. A reference count
/// would cost instructions for each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoanCounter(NonNull<AtomicUsize>);

// SAFETY: the counter is atomic.
unsafe impl Send for LoanCounter {}
// SAFETY: see `Send`.
unsafe impl Sync for LoanCounter {}

impl LoanCounter {
    /// Counts a request until the loan is dropped.
    ///
    /// # Safety
    /// The scope has not ended.
    #[inline]
    pub(crate) unsafe fn begin(self) -> Loan {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.as_ref() }.fetch_add(1, Ordering::AcqRel);
        Loan(self)
    }
}

/// A request in flight that uses borrowed memory.
///
/// The table drops it when the request completes, when it was not posted, or after the queue pair
/// is destroyed.
#[derive(Debug)]
pub struct Loan(LoanCounter);

impl Drop for Loan {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the counter is alive, because it counts this loan. It is not used after the call.
        unsafe { self.0.0.as_ref() }.fetch_sub(1, Ordering::AcqRel);
    }
}
