//! The numbers of queue pairs that must not be used again.
//!
//! Some providers look up the queue pair of a completion by number when they poll. A completion of
//! a destroyed queue pair must then not meet another one with the same number: neither one that is
//! in use, nor one that is about to be replaced.
//!
//! `loom_tests.rs` compiles this file again with the lock of loom.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Weak;

use super::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::numbers::Qpn;

/// The lock under which queue pairs of a context are created and destroyed, and the numbers of
/// destroyed ones that may have completions.
#[derive(Default)]
pub(crate) struct QpNumbers(RwLock<LeftNumbers>);

/// Numbers of destroyed queue pairs, with the completion queues in which completions may be left.
///
/// A queue that was found empty may still have some: libefa does not look into a part of a
/// completion queue that no queue pair uses. So a number stays here until the queues are destroyed.
#[derive(Default)]
pub(crate) struct LeftNumbers(HashMap<Qpn, Vec<CompletionQueue>>);

/// A completion queue. Only its end matters here.
type CompletionQueue = Weak<dyn Any + Send + Sync>;

impl QpNumbers {
    /// Excludes the creation and the destruction of queue pairs.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, LeftNumbers> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Excludes the creation and the destruction of queue pairs, and polls.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, LeftNumbers> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeftNumbers {
    /// Adds the number of a queue pair that was destroyed with requests in flight.
    pub(crate) fn add(&mut self, number: Qpn, queues: impl IntoIterator<Item = CompletionQueue>) {
        self.0.entry(number).or_default().extend(queues);
    }

    /// Returns `true` if completions with this number may be left.
    pub(crate) fn contains(&mut self, number: Qpn) -> bool {
        let Some(queues) = self.0.get_mut(&number) else {
            return false;
        };
        queues.retain(|queue| queue.strong_count() > 0);
        let is_left = !queues.is_empty();
        if !is_left {
            self.0.remove(&number);
        }
        is_left
    }
}
