//! The state that the owners of one messenger share, and the ways to wait for it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use ibverbs::{Qpn, Result};

use super::driver::{Driver, thread_waker};
use super::group::Lease;
use super::state::{Side, State};
use crate::convert::timed_out;
use crate::event::IdKey;
use crate::wait::Deadline;

/// A messenger, as its halves, its messages and its driver see it.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Number of buffers that the application has dropped and that were not posted again.
    released: AtomicU32,
    pub(super) driver: Arc<Driver>,
    pub(super) qp_num: Qpn,
    pub(super) key: IdKey,
    /// The share in the receives of the group.
    pub(super) lease: Option<Arc<Lease>>,
}

impl Shared {
    pub(super) fn new(
        state: State,
        driver: Arc<Driver>,
        qp_num: Qpn,
        key: IdKey,
        lease: Option<Arc<Lease>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(state),
            released: AtomicU32::new(0),
            driver,
            qp_num,
            key,
            lease,
        })
    }

    /// Calls a function on the state.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let result = f(&mut self.lock());
        self.post_released();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a receive in place of a buffer that has returned to its pool.
    pub(super) fn release(&self) {
        // Read-modify-write on both sides: either this thread gets the lock, or the thread that
        // holds it sees the count after unlocking.
        self.released.fetch_add(1, Ordering::AcqRel);
        self.post_released();
    }

    /// Posts receives in place of the released buffers, unless another thread holds the lock. That
    /// thread calls this function afterwards.
    fn post_released(&self) {
        loop {
            let released = self.released.swap(0, Ordering::AcqRel);
            if released == 0 {
                return;
            }
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    self.released.fetch_add(released, Ordering::AcqRel);
                    // The lock may have been released in between, after its owner saw no buffers.
                    match self.state.try_lock() {
                        Err(TryLockError::WouldBlock) => return,
                        _ => continue,
                    }
                }
            };
            state.release(released);
            state.pump();
        }
    }

    /// Calls `f` until it returns a value, first with the present state, then after processing
    /// completions. Does not arm the completion queue.
    pub(super) fn attempt<T>(
        &self,
        f: &mut impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(value) = self.with(&mut *f)? {
            return Ok(Some(value));
        }
        self.driver.poll()?;
        self.with(f)
    }

    /// Like [`attempt`](Self::attempt). If it returns `None`, the driver's descriptor becomes
    /// readable when another attempt can succeed.
    pub(super) fn attempt_armed<T>(
        &self,
        f: &mut impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(value) = self.attempt(f)? {
            return Ok(Some(value));
        }
        self.driver.prepare_wait(self)?;
        self.with(f)
    }

    /// Calls `f` until it returns a value, at most until the deadline. The thread sleeps between
    /// calls.
    pub(super) fn block<T>(
        &self,
        side: Side,
        timeout: impl Into<Option<Duration>>,
        mut f: impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<T> {
        if let Some(value) = self.attempt(&mut f)? {
            return Ok(value);
        }
        let deadline = Deadline::after(timeout);
        let waker = thread_waker();
        let waiting = self.driver.enter(&waker, true);
        loop {
            self.with(|state| state.set_waker(side, &waker));
            if let Some(value) = self.attempt_armed(&mut f)? {
                return Ok(value);
            }
            if deadline.has_passed() {
                return Err(self.with(|state| timed_out(super::wire::VERB, &state.describe())));
            }
            waiting.sleep(self, deadline)?;
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("qp_num", &self.qp_num)
            .finish_non_exhaustive()
    }
}

/// The handle of a messenger or of its halves. Dropping the last one ends the connection.
#[derive(Debug)]
pub(super) struct Owner(pub(super) Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.driver.remove(self.0.qp_num);
        let remains = self.0.with(State::close);
        // Without the lock, because destroying the queue pair returns buffers to their pools.
        drop(remains);
    }
}
