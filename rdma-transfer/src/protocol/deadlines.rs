//! Deadlines of transfers, ordered by time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Minimum number of entries before those of transfers that have ended are removed.
const MIN_LIMIT: usize = 64;

/// The deadlines of values that end by themselves in most cases, long before.
#[derive(Debug)]
pub(crate) struct Deadlines<T> {
    entries: BTreeMap<(Instant, u64), Weak<T>>,
    next_number: u64,
    /// Number of entries at which those of dropped values are removed: twice that of the others
    /// the last time, so that it costs little for each value.
    limit: usize,
}

impl<T> Deadlines<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            next_number: 0,
            limit: MIN_LIMIT,
        }
    }

    pub(crate) fn add(&mut self, at: Instant, value: &Arc<T>) {
        if self.entries.len() >= self.limit {
            self.entries.retain(|_, value| value.strong_count() > 0);
            self.limit = MIN_LIMIT.max(self.entries.len() * 2);
        }
        self.next_number += 1;
        self.entries
            .insert((at, self.next_number), Arc::downgrade(value));
    }

    /// Removes the first value whose deadline has passed and that was not dropped.
    pub(crate) fn take_passed(&mut self, now: Instant) -> Option<Arc<T>> {
        while let Some(entry) = self.entries.first_entry() {
            if entry.key().0 > now {
                break;
            }
            if let Some(value) = entry.remove().upgrade() {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn values_that_have_ended_do_not_accumulate() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::new();
        let kept: Vec<Arc<u64>> = (0..100).map(Arc::new).collect();
        for value in kept.iter().rev() {
            deadlines.add(at(1000 + **value), value);
        }
        for seconds in 0..10_000 {
            deadlines.add(at(seconds), &Arc::new(seconds));
        }
        assert!(
            deadlines.entries.len() <= 200,
            "{}",
            deadlines.entries.len()
        );
        assert_eq!(deadlines.take_passed(at(999)), None);
        assert_eq!(deadlines.take_passed(at(1000)), Some(Arc::new(0)));
        let rest = std::iter::from_fn(|| deadlines.take_passed(at(1099)));
        assert!(rest.map(|value| *value).eq(1..100), "in order");
        assert!(deadlines.entries.len() <= 200);
    }
}
