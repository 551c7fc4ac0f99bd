//! A lock with work that a thread leaves to the holder of the lock, instead of waiting for it.
//!
//! `loom_tests.rs` compiles this file again with the locks and atomics of loom.

use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};

/// The value behind a [`Deferred`].
pub(crate) trait Apply {
    /// Does the work of `count` calls of [`Deferred::defer`].
    fn apply(&mut self, count: u32);
}

/// A value behind its lock, and the number of units of work that are left.
pub(crate) struct Deferred<T> {
    value: Mutex<T>,
    pending: AtomicU32,
}

impl<T: Apply> Deferred<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            pending: AtomicU32::new(0),
        }
    }

    /// Calls a function on the value.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let result = f(&mut self.lock());
        self.do_pending();
        result
    }

    /// Calls a function on the value, unless another thread holds the lock.
    pub(crate) fn try_with(&self, f: impl FnOnce(&mut T)) {
        if let Ok(mut value) = self.value.try_lock() {
            f(&mut value);
        }
        self.do_pending();
    }

    /// Does a unit of work, or leaves it to the thread that holds the lock.
    pub(crate) fn defer(&self) {
        // Read-modify-write on both sides: either this thread gets the lock, or the thread that
        // holds it sees the count after unlocking.
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.do_pending();
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work that is left, unless another thread holds the lock. That thread calls this
    /// function afterwards.
    fn do_pending(&self) {
        loop {
            let count = self.pending.swap(0, Ordering::AcqRel);
            if count == 0 {
                return;
            }
            let mut value = match self.value.try_lock() {
                Ok(value) => value,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    self.pending.fetch_add(count, Ordering::AcqRel);
                    // The lock may have been released in between, after its owner saw no work.
                    match self.value.try_lock() {
                        Err(TryLockError::WouldBlock) => return,
                        _ => continue,
                    }
                }
            };
            value.apply(count);
        }
    }
}
