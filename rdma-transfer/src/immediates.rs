//! Immediates: the merging of those of one transfer, and the counters.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use crate::failure::lock;

/// Maximum number of different values that are counted at the same time. It bounds the memory that
/// a peer can make this engine use.
const MAX_VALUES: usize = 1 << 16;

/// A counter of the transfers that have arrived with one immediate value, from all peers of an
/// engine ([`Engine::imm_counter`](crate::Engine::imm_counter)).
#[derive(Clone)]
pub struct ImmCounter {
    immediates: Arc<Immediates>,
    value: u32,
}

impl ImmCounter {
    pub(crate) fn new(immediates: &Arc<Immediates>, value: u32) -> Self {
        Self {
            immediates: Arc::clone(immediates),
            value,
        }
    }

    /// Returns the number of transfers that have arrived and that no [`wait`](Self::wait) has
    /// subtracted.
    pub fn count(&self) -> u64 {
        lock(&self.immediates.counts)
            .get(&self.value)
            .copied()
            .unwrap_or(0)
    }

    /// Waits until `transfers` transfers have arrived, and subtracts them from the counter. Their
    /// bytes are then visible in the region.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]; the counter is unchanged. A receiver does not notice that a peer
    /// has died, so the timeout is the only sign of it.
    pub fn wait(&self, transfers: u64, timeout: Duration) -> Result<()> {
        let (value, count) = (self.value, |counts: &Counts| {
            counts.get(&self.value).copied().unwrap_or(0)
        });
        let (mut counts, _) = self
            .immediates
            .arrived
            .wait_timeout_while(lock(&self.immediates.counts), timeout, |counts| {
                count(counts) < transfers
            })
            .unwrap_or_else(PoisonError::into_inner);
        let arrived = count(&counts);
        if arrived < transfers {
            let what = format!(
                "{arrived} of {transfers} transfers with value {value} have arrived after \
                 {timeout:?}"
            );
            return Err(Error::new(ErrorKind::TimedOut, "immediates", what));
        }
        if arrived == transfers {
            counts.remove(&value);
        } else {
            counts.insert(value, arrived - transfers);
        }
        Ok(())
    }
}

impl fmt::Debug for ImmCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImmCounter")
            .field("value", &self.value)
            .field("count", &self.count())
            .finish()
    }
}

/// Number of transfers by value. A value without transfers has no entry.
type Counts = HashMap<u32, u64>;

/// The immediates that have arrived at an engine.
#[derive(Debug, Default)]
pub(crate) struct Immediates {
    counts: Mutex<Counts>,
    arrived: Condvar,
}

impl Immediates {
    /// Counts one transfer.
    pub(crate) fn add(&self, value: u32) -> Result<()> {
        let mut counts = lock(&self.counts);
        check_limit(&counts, value)?;
        *counts.entry(value).or_insert(0) += 1;
        self.arrived.notify_all();
        Ok(())
    }
}

/// The immediates of one peer. Each of its queue pairs delivers the immediate of every transfer, in
/// the order of the transfers.
#[derive(Debug)]
pub(crate) struct Merge {
    queues: usize,
    /// Number of immediates by value and queue pair, without those of complete transfers.
    counts: HashMap<u32, Vec<u64>>,
}

impl Merge {
    pub(crate) fn new(queues: usize) -> Self {
        Self {
            queues,
            counts: HashMap::new(),
        }
    }

    /// Counts an immediate of the queue pair `queue`. Returns `true` if it completes a transfer.
    pub(crate) fn add(&mut self, queue: usize, value: u32) -> Result<bool> {
        if self.queues == 1 {
            return Ok(true);
        }
        check_limit(&self.counts, value)?;
        let queues = self.queues;
        let counts = self.counts.entry(value).or_insert_with(|| vec![0; queues]);
        counts[queue] += 1;
        if counts.contains(&0) {
            return Ok(false);
        }
        for count in counts.iter_mut() {
            *count -= 1;
        }
        if counts.iter().all(|&count| count == 0) {
            self.counts.remove(&value);
        }
        Ok(true)
    }
}

fn check_limit<T>(counts: &HashMap<u32, T>, value: u32) -> Result<()> {
    if counts.len() < MAX_VALUES || counts.contains_key(&value) {
        return Ok(());
    }
    let what = format!("{MAX_VALUES} different values have arrived and were not waited for");
    Err(Error::new(ErrorKind::Malformed, "immediates", what)
        .with_help("use fewer values, or wait for each of them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_counts_once_all_queue_pairs_delivered_it() {
        let mut merge = Merge::new(3);
        let mut add = |queue, value| merge.add(queue, value).expect("few values");
        assert!(!add(0, 7) && !add(1, 7));
        assert!(!add(1, 7), "the second transfer on queue pair 1");
        assert!(!add(2, 8), "another value");
        assert!(add(2, 7), "the first transfer");
        assert!(!add(0, 7));
        assert!(add(2, 7), "the second transfer");
        assert!(!add(0, 8) && add(1, 8));
        assert!(merge.counts.is_empty(), "nothing is kept");
    }

    #[test]
    fn waiting_subtracts_what_it_waited_for() {
        let immediates = Arc::new(Immediates::default());
        let counter = ImmCounter::new(&immediates, 5);
        for value in [5, 6, 5, 5] {
            immediates.add(value).expect("few values");
        }
        let error = counter.wait(4, Duration::ZERO).expect_err("three arrived");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(counter.count(), 3, "unchanged");
        counter.wait(2, Duration::ZERO).expect("arrived");
        assert_eq!(counter.count(), 1);
        counter.wait(1, Duration::ZERO).expect("arrived");
        assert_eq!(lock(&immediates.counts).len(), 1, "only that of value 6");
    }

    #[test]
    fn waiting_ends_when_the_last_transfer_arrives() {
        let immediates = Arc::new(Immediates::default());
        let counter = ImmCounter::new(&immediates, 5);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| counter.wait(2, Duration::from_secs(60)));
            immediates.add(5).expect("few values");
            immediates.add(5).expect("few values");
            waiting.join().expect("no panic").expect("arrived");
        });
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let (immediates, mut merge) = (Immediates::default(), Merge::new(2));
        let last = u32::try_from(MAX_VALUES).expect("fits");
        for value in 0..last {
            immediates.add(value).expect("within the limit");
            merge.add(0, value).expect("within the limit");
        }
        let error = immediates.add(last).expect_err("beyond the limit");
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(merge.add(0, last).is_err() && merge.add(0, 1).is_ok());
        immediates.add(1).expect("a known value");
    }
}
