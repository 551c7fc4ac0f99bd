//! The queue pairs that receive from a shared receive queue, by number.
//!
//! A device uses the number of a destroyed queue pair again, while completions of the destroyed one
//! can still be in the completion queue. Therefore the number stays with the destroyed queue pair
//! until the completion queue was found empty. A new queue pair with such a number is replaced.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::cq::SharedCq;
use crate::identity::QueueId;
use crate::numbers::Qpn;

/// The queue pairs of a shared receive queue.
#[derive(Default)]
pub(crate) struct Members(Mutex<MembersByNumber>);

#[derive(Default)]
struct MembersByNumber {
    alive: HashMap<Qpn, QueueId>,
    destroyed: HashMap<Qpn, Destroyed>,
}

/// A queue pair that was destroyed, and may have completions.
struct Destroyed {
    id: QueueId,
    cq: Weak<SharedCq>,
    /// The number of polls that must have found the completion queue empty before no completion is
    /// left. One of them may have begun before the queue pair was destroyed.
    until: u64,
}

impl Destroyed {
    fn has_completions(&self) -> bool {
        let cq = self.cq.upgrade();
        cq.is_some_and(|cq| cq.empty_polls() < self.until)
    }
}

impl Members {
    fn lock(&self) -> MutexGuard<'_, MembersByNumber> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue pair. Returns `false` if completions with its number may be of another one.
    #[must_use]
    pub(crate) fn insert(&self, number: Qpn, id: QueueId) -> bool {
        let mut inner = self.lock();
        inner.destroyed.retain(|_, one| one.has_completions());
        if inner.alive.contains_key(&number) || inner.destroyed.contains_key(&number) {
            return false;
        }
        inner.alive.insert(number, id);
        true
    }

    /// Adds a queue pair of a provider that removes the completions of destroyed ones.
    #[cfg(feature = "mlx5")]
    pub(crate) fn replace(&self, number: Qpn, id: QueueId) {
        let mut inner = self.lock();
        inner.destroyed.remove(&number);
        inner.alive.insert(number, id);
    }

    /// Removes a queue pair after it was destroyed, if it was added.
    pub(crate) fn remove(&self, number: Qpn, id: QueueId, cq: &Arc<SharedCq>) {
        let mut inner = self.lock();
        if inner.alive.get(&number) != Some(&id) {
            return;
        }
        inner.alive.remove(&number);
        let destroyed = Destroyed {
            id,
            cq: Arc::downgrade(cq),
            until: cq.empty_polls() + 2,
        };
        inner.destroyed.insert(number, destroyed);
    }

    /// Returns the queue pair that has the number, or had it.
    pub(crate) fn find(&self, number: Qpn) -> Option<QueueId> {
        let inner = self.lock();
        let destroyed = || inner.destroyed.get(&number).map(|one| one.id);
        inner.alive.get(&number).copied().or_else(destroyed)
    }
}

#[cfg(all(test, feature = "mlx5"))]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_replaced_where_completions_are_removed() {
        let members = Members::default();
        let [first, second] = [(); 2].map(|()| QueueId::next().expect("identity"));
        assert!(members.insert(Qpn(7), first));
        assert!(!members.insert(Qpn(7), second), "it belongs to the first");
        members.replace(Qpn(7), second);
        assert_eq!(members.find(Qpn(7)), Some(second));
        assert_eq!(members.find(Qpn(8)), None);
    }
}
