//! The state of one messenger behind its lock, as its driver and its messages see it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use ibverbs::Qpn;

use super::receives::Lease;
use super::state::State;
use rdmacm::IdKey;

/// One end of a connection.
pub(crate) struct Endpoint {
    state: Mutex<State>,
    /// Number of buffers that the application has dropped and that were not posted again.
    released: AtomicU32,
    pub(crate) qp_num: Qpn,
    pub(crate) key: IdKey,
    /// The share in the receives of the group.
    pub(crate) lease: Option<Arc<Lease>>,
}

impl Endpoint {
    pub(crate) fn new(state: State, qp_num: Qpn, key: IdKey, lease: Option<Arc<Lease>>) -> Self {
        Self {
            state: Mutex::new(state),
            released: AtomicU32::new(0),
            qp_num,
            key,
            lease,
        }
    }

    /// Calls a function on the state.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let result = f(&mut self.lock());
        self.post_released();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a receive in place of a buffer that has returned to its pool.
    pub(crate) fn release(&self) {
        // Read-modify-write on both sides: either this thread gets the lock, or the thread that
        // holds it sees the count after unlocking.
        self.released.fetch_add(1, Ordering::AcqRel);
        self.post_released();
    }

    /// Keeps the memory of a dropped message for the next one, unless another thread holds the
    /// lock.
    pub(crate) fn recycle(&self, bytes: Vec<u8>) {
        if let Ok(mut state) = self.state.try_lock() {
            state.recycle(bytes);
        }
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
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("qp_num", &self.qp_num)
            .finish_non_exhaustive()
    }
}
