//! Immediates: the notices of the jobs of a transfer, and the counters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
///
/// # Example
/// ```no_run
/// # fn f(engine: &rdma_transfer::Engine) -> rdma_transfer::Result<()> {
/// use std::time::Duration;
/// // Two transfers with the immediate 7.
/// engine.imm_counter(7).wait(2, Duration::from_secs(10))?;
/// # Ok(()) }
/// ```
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
    /// [`ErrorKind::TimedOut`]; the counter is unchanged. If the sender is gone,
    /// [`Peer::is_connected`](crate::Peer::is_connected) returns `false`.
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

/// The message behind the bytes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Number of the transfer among those with an immediate to this peer.
    pub(crate) transfer: u64,
    /// Number of the job in the transfer.
    pub(crate) job: u32,
    /// Number of jobs of the transfer.
    pub(crate) jobs: u32,
    pub(crate) value: u32,
}

impl Notice {
    pub(crate) const LEN: usize = 20;
    /// A message that only shows that a path works.
    pub(crate) const PROBE: Self = Self {
        transfer: u64::MAX,
        job: 0,
        jobs: 0,
        value: 0,
    };

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.transfer.to_le_bytes());
        for (into, number) in bytes[8..]
            .chunks_exact_mut(4)
            .zip([self.job, self.jobs, self.value])
        {
            into.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (transfer, rest) = bytes.split_first_chunk::<8>()?;
        let number = |at: usize| Some(u32::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let notice = Self {
            transfer: u64::from_le_bytes(*transfer),
            job: number(0)?,
            jobs: number(4)?,
            value: number(8)?,
        };
        let is_valid = rest.len() == 12 && (notice.job < notice.jobs || notice == Self::PROBE);
        is_valid.then_some(notice)
    }
}

/// The jobs of one peer that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// The transfers with lower numbers are counted, or will never be complete.
    next: u64,
    /// The same for transfers with higher numbers.
    counted: BTreeSet<u64>,
    /// The jobs of the others.
    jobs: BTreeMap<u64, BTreeSet<u32>>,
}

impl Arrivals {
    /// Records the arrival of a job. Returns `true` if it completes its transfer.
    pub(crate) fn add(&mut self, notice: &Notice) -> Result<bool> {
        if self.is_counted(notice.transfer) {
            return Ok(false);
        }
        if self.jobs.len() >= MAX_VALUES && !self.jobs.contains_key(&notice.transfer) {
            let what = format!("{MAX_VALUES} transfers of a peer have arrived in part");
            return Err(Error::new(ErrorKind::Malformed, "immediates", what));
        }
        let jobs = self.jobs.entry(notice.transfer).or_default();
        jobs.insert(notice.job);
        if jobs.len() < notice.jobs as usize {
            return Ok(false);
        }
        self.count(notice.transfer);
        Ok(true)
    }

    /// Returns `true` if the job has arrived.
    pub(crate) fn has(&self, transfer: u64, job: u32) -> bool {
        let arrived = self.jobs.get(&transfer);
        self.is_counted(transfer) || arrived.is_some_and(|jobs| jobs.contains(&job))
    }

    /// Forgets a transfer that will never be complete.
    pub(crate) fn abandon(&mut self, transfer: u64) {
        if !self.is_counted(transfer) {
            self.count(transfer);
        }
    }

    fn is_counted(&self, transfer: u64) -> bool {
        transfer < self.next || self.counted.contains(&transfer)
    }

    fn count(&mut self, transfer: u64) {
        self.jobs.remove(&transfer);
        self.counted.insert(transfer);
        while self.counted.remove(&self.next) {
            self.next += 1;
        }
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
    fn a_transfer_counts_once_when_all_jobs_have_arrived() {
        let mut arrivals = Arrivals::default();
        let mut add = |transfer, job| {
            let notice = Notice {
                transfer,
                job,
                jobs: 2,
                value: 7,
            };
            arrivals.add(&notice).expect("few transfers")
        };
        assert!(!add(0, 1) && !add(1, 0));
        assert!(!add(0, 1), "the same job again");
        assert!(add(1, 1), "the second transfer");
        assert!(!add(1, 0) && !add(1, 1), "repeated after it was counted");
        assert!(add(0, 0) && !add(0, 0));
        assert!(!add(3, 0));
        assert!(arrivals.has(1, 5) && arrivals.has(3, 0) && !arrivals.has(3, 1));
        arrivals.abandon(2);
        arrivals.abandon(3);
        assert_eq!(arrivals.next, 4);
        let notice = Notice {
            transfer: 3,
            job: 1,
            jobs: 2,
            value: 7,
        };
        assert!(!arrivals.add(&notice).expect("abandoned"));
        assert!(arrivals.counted.is_empty() && arrivals.jobs.is_empty());
    }

    #[test]
    fn notices_are_encoded_and_checked() {
        let notice = Notice {
            transfer: 1 << 40,
            job: 2,
            jobs: 3,
            value: u32::MAX,
        };
        for notice in [notice, Notice::PROBE] {
            assert_eq!(Notice::from_bytes(&notice.to_bytes()), Some(notice));
        }
        let bytes = Notice { job: 3, ..notice }.to_bytes();
        assert_eq!(Notice::from_bytes(&bytes), None, "job 3 of 3");
        assert_eq!(Notice::from_bytes(&notice.to_bytes()[1..]), None);
        assert_eq!(Notice::from_bytes(&[0; Notice::LEN + 1]), None);
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
        counter.wait(1, Duration::ZERO).expect("arrived");
        assert_eq!(counter.count(), 2);
        counter.wait(2, Duration::ZERO).expect("arrived");
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
        let (immediates, mut arrivals) = (Immediates::default(), Arrivals::default());
        let mut add = |transfer| {
            arrivals.add(&Notice {
                transfer,
                job: 0,
                jobs: 2,
                value: 1,
            })
        };
        let last = u32::try_from(MAX_VALUES).expect("fits");
        for value in 0..last {
            immediates.add(value).expect("within the limit");
            add(u64::from(value)).expect("within the limit");
        }
        let error = immediates.add(last).expect_err("beyond the limit");
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(add(u64::from(last)).is_err() && add(1).is_ok());
        immediates.add(1).expect("a known value");
    }
}
