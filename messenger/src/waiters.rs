//! The threads and tasks that wait for one driver. One thread, the leader, sleeps on the
//! descriptor. Whoever stops waiting wakes another one, which leads then.
//!
//! `loom_tests.rs` compiles this file again with the locks of loom.

use std::collections::BTreeMap;
use std::task::Waker;

use super::sync::{Mutex, MutexGuard, PoisonError};

/// The waiting threads and tasks, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<WaiterTable>);

#[derive(Default)]
struct WaiterTable {
    /// `true` while a thread sleeps on the descriptor.
    has_leader: bool,
    parked: BTreeMap<u64, Parked>,
    next: u64,
}

/// A thread or a task that waits.
struct Parked {
    waker: Waker,
    /// `true` if it ends its registration when it stops waiting. `AsyncRead` and `AsyncWrite` have
    /// no call for that.
    is_reliable: bool,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, WaiterTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a thread or a task. Returns the ticket for the other calls.
    pub(crate) fn enter(&self, waker: &Waker, is_reliable: bool) -> u64 {
        let mut inner = self.lock();
        let ticket = inner.next;
        inner.next += 1;
        let waker = waker.clone();
        inner.parked.insert(ticket, Parked { waker, is_reliable });
        ticket
    }

    /// Removes a thread or a task. If no thread leads, another one is woken to take over.
    pub(crate) fn leave(&self, ticket: u64) {
        let mut inner = self.lock();
        inner.parked.remove(&ticket);
        let must_hand_over = !inner.has_leader;
        drop(inner);
        if must_hand_over {
            self.wake_one();
        }
    }

    /// Replaces the waker of a task that was polled again.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_waker(&self, ticket: u64, waker: &Waker) {
        if let Some(parked) = self.lock().parked.get_mut(&ticket) {
            if !parked.waker.will_wake(waker) {
                parked.waker.clone_from(waker);
            }
        }
    }

    pub(crate) fn has_leader(&self) -> bool {
        self.lock().has_leader
    }

    /// Calls `sleep` as the leader, which sleeps on the descriptor. Calls `park` instead if another
    /// thread leads. Returns what `attempt` returns, which is called before `sleep`.
    ///
    /// Until this thread leads, another one may take its completion or read its event. It wakes
    /// this thread, but not from the descriptor.
    pub(crate) fn sleep<T, E>(
        &self,
        attempt: impl FnOnce() -> Result<Option<T>, E>,
        sleep: impl FnOnce() -> Result<(), E>,
        park: impl FnOnce(),
    ) -> Result<Option<T>, E> {
        if std::mem::replace(&mut self.lock().has_leader, true) {
            park();
            return Ok(None);
        }
        let outcome = attempt();
        let slept = match outcome {
            Ok(None) => sleep(),
            _ => Ok(()),
        };
        self.lock().has_leader = false;
        slept.and(outcome)
    }

    /// Wakes all that wait.
    pub(crate) fn wake_all(&self) {
        self.wake_until(|_| false);
    }

    /// Wakes one of those that wait, which then processes completions and events.
    pub(crate) fn wake_one(&self) {
        self.wake_until(|parked| parked.is_reliable);
    }

    fn wake_until(&self, is_last: impl Fn(&Parked) -> bool) {
        let mut wakers = Vec::new();
        for parked in self.lock().parked.values() {
            wakers.push(parked.waker.clone());
            if is_last(parked) {
                break;
            }
        }
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}
