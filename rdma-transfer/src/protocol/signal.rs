//! Waiting for a change of a shared value, after processing completions for a while.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdmacm::internal::PollWindow;

use crate::deferred;
use crate::failure::lock;

/// Processes completions in the place of the threads of an engine.
pub(crate) trait Poll: Send + Sync {
    fn poll_for_caller(&self);
}

/// A change of a value behind a lock. Waking no thread needs no system call.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    changed: Condvar,
    /// Number of threads that sleep. It changes under the lock.
    sleepers: AtomicUsize,
}

impl Signal {
    /// Wakes the threads that sleep. Called with or after the lock under which the value changed.
    pub(crate) fn notify(&self) {
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits while a condition holds, for at most `timeout`. Calls `poll` at first, for the time of
    /// the window.
    pub(crate) fn wait_while<'a, T>(
        &self,
        value: &'a Mutex<T>,
        timeout: Duration,
        window: &PollWindow,
        poll: impl Fn(),
        is_waiting: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, T> {
        let is_done = || !is_waiting(&lock(value));
        let poll = || {
            deferred::run(&poll);
            Ok::<_, Infallible>(is_done().then_some(()))
        };
        // Often the completion is there, and neither yields nor clocks are needed.
        if !is_done() && poll() == Ok(None) && timeout > window.limit() {
            let Ok(_) = window.poll(poll);
        }
        let mut locked = lock(value);
        if is_waiting(&locked) {
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            let began = Instant::now();
            let is_waiting = |value: &mut T| is_waiting(value);
            let waited = self.changed.wait_timeout_while(locked, timeout, is_waiting);
            locked = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
            window.missed(began.elapsed());
        }
        locked
    }
}
