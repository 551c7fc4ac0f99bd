//! The notices of the jobs of a transfer, and those that have arrived from a peer.

use std::collections::BTreeMap;

use ibverbs::{Error, ErrorKind, Result};

/// Maximum number of jobs with a notice that have not ended, for each peer.
pub(crate) const MAX_JOBS: usize = 1 << 16;
/// Maximum number of ranges of [`Arrivals`]. A gap is a job that has not ended at the sender, or
/// the end of a transfer that has one. The rest is for notices and [`Message::Abandoned`] that the
/// sender does not wait for.
///
/// [`Message::Abandoned`]: crate::protocol::message::Message::Abandoned
const MAX_RANGES: usize = 4 * MAX_JOBS;

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
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    /// The first and the last [position](position) of each range, with gaps between the ranges.
    ranges: BTreeMap<u128, u128>,
}

/// Returns the position of a job among the jobs of all transfers. No transfer has a job `u32::MAX`.
/// Its position is in a range if the transfer is counted, or will never be complete.
fn position(transfer: u64, job: u32) -> u128 {
    u128::from(transfer) << 32 | u128::from(job)
}

impl Arrivals {
    /// Records the arrival of a job. Returns `true` if it completes its transfer.
    pub(crate) fn add(&mut self, notice: &Notice) -> Result<bool> {
        let &Notice { transfer, jobs, .. } = notice;
        if self.has(transfer, u32::MAX) {
            return Ok(false);
        }
        let job = position(transfer, notice.job);
        self.insert(job, job)?;
        let arrived_until = self.end_of_range(position(transfer, 0));
        let is_complete = arrived_until >= Some(position(transfer, jobs - 1));
        if is_complete {
            self.abandon(transfer)?;
        }
        Ok(is_complete)
    }

    /// Returns `true` if the job has arrived, or its transfer was abandoned.
    pub(crate) fn has(&self, transfer: u64, job: u32) -> bool {
        self.end_of_range(position(transfer, job)).is_some()
    }

    /// Counts no more jobs of a transfer.
    pub(crate) fn abandon(&mut self, transfer: u64) -> Result<()> {
        self.insert(position(transfer, 0), position(transfer, u32::MAX))
    }

    /// Returns the last position of the range that contains this one.
    fn end_of_range(&self, position: u128) -> Option<u128> {
        let before = self.ranges.range(..=position).next_back();
        before
            .map(|(_, &last)| last)
            .filter(|&last| last >= position)
    }

    fn insert(&mut self, mut first: u128, mut last: u128) -> Result<()> {
        // The ranges that overlap the new one, or have no gap to it, become parts of it.
        if let Some((&before, &end)) = self.ranges.range(..first).next_back() {
            if end + 1 >= first {
                first = before;
            }
        }
        while let Some((&part, &end)) = self.ranges.range(first..=last + 1).next() {
            self.ranges.remove(&part);
            last = last.max(end);
        }
        self.ranges.insert(first, last);
        if self.ranges.len() > MAX_RANGES {
            let what = "too many transfers of the peer have arrived in part";
            return Err(Error::new(ErrorKind::Malformed, "immediates", what));
        }
        Ok(())
    }
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
        for transfer in [2, 3] {
            arrivals.abandon(transfer).expect("few transfers");
        }
        assert_eq!(arrivals.ranges.len(), 1);
        let notice = Notice {
            transfer: 3,
            job: 1,
            jobs: 2,
            value: 7,
        };
        assert!(!arrivals.add(&notice).expect("abandoned"));
        assert_eq!(
            arrivals.ranges,
            BTreeMap::from([(0, position(3, u32::MAX))])
        );
        arrivals.abandon(u64::MAX).expect("the last one");
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
    fn the_number_of_gaps_between_arrivals_is_limited() {
        let mut arrivals = Arrivals::default();
        let mut add = |transfer| {
            let notice = Notice {
                transfer,
                job: 0,
                jobs: 2,
                value: 1,
            };
            arrivals.add(&notice)
        };
        let last = MAX_RANGES as u64;
        for transfer in 0..last {
            add(transfer).expect("within the limit");
        }
        add(1).expect("a known transfer");
        add(last).expect_err("beyond the limit");
        arrivals.abandon(last + 1).expect_err("beyond the limit");
    }
}
