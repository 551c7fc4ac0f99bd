//! The work of a peer: its transfers and their jobs.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use ibverbs::RemoteMemory;

use crate::arrivals::Notice;
use crate::failure::Failure;
use crate::region::RegionMemory;
use crate::remote_region::RemoteRegion;
use crate::stripe::Span;
use crate::transfer::Progress;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// From the local to the remote region.
    Write,
    /// From the remote to the local region.
    Read,
}

/// The part of a transfer that one peer has.
#[derive(Debug)]
pub(crate) struct PeerTransfer {
    pub(crate) operation: Operation,
    /// Its jobs end with a notice.
    pub(crate) notices: bool,
    /// Number among the transfers with notices.
    pub(crate) number: u64,
    pub(crate) value: u32,
    pub(crate) jobs: u32,
    /// Number of jobs that have not ended.
    pub(crate) unfinished: AtomicU32,
    pub(crate) region: Arc<RegionMemory>,
    pub(crate) remote: RemoteRegion,
    /// Device to use as long as it works.
    pub(crate) device: Option<usize>,
    pub(crate) progress: Arc<Progress>,
    /// A failure that would occur on every path.
    pub(crate) failure: OnceLock<Failure>,
}

impl PeerTransfer {
    /// Returns `true` if nothing more is posted for it.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.get().is_some() || self.progress.is_canceled()
    }
}

/// The share of a transfer that one path transfers at a time.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) transfer: Arc<PeerTransfer>,
    pub(crate) number: u32,
}

impl Job {
    pub(crate) fn notice(&self) -> Notice {
        Notice {
            transfer: self.transfer.number,
            job: self.number,
            jobs: self.transfer.jobs,
            value: self.transfer.value,
        }
    }

    /// Returns the numbers that name the job at the peer, if it has a notice.
    pub(crate) fn id(&self) -> Option<(u64, u32)> {
        let transfer = &self.transfer;
        transfer.notices.then_some((transfer.number, self.number))
    }
}

/// A job with requests that are not posted yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) job: Arc<Job>,
    pub(crate) spans: VecDeque<Span>,
    /// A request was posted.
    pub(crate) is_started: bool,
    /// The job ends without a notice.
    pub(crate) is_cut: bool,
}

impl Waiting {
    pub(crate) fn new(job: Arc<Job>, spans: VecDeque<Span>) -> Self {
        Self {
            job,
            spans,
            is_started: false,
            is_cut: false,
        }
    }

    /// Shortens a started job that is over to its next request, which is signaled and ends it.
    pub(crate) fn cut(&mut self) {
        if self.spans.len() > 1 || (!self.spans.is_empty() && self.job.transfer.notices) {
            self.spans.truncate(1);
            self.is_cut = true;
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.len as u64).sum()
    }
}

/// The keys of a peer's device that replace those of remote regions.
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    pub(crate) replaced: &'a HashMap<(u64, usize), RemoteMemory>,
    pub(crate) device: usize,
}

impl Keys<'_> {
    /// Returns the key of a region.
    pub(crate) fn get(&self, remote: &RemoteRegion) -> Option<RemoteMemory> {
        let replaced = self.replaced.get(&(remote.id, self.device));
        replaced.or_else(|| remote.keys.get(self.device)).copied()
    }
}
