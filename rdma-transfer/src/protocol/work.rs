//! The work of a peer: its transfers and their jobs. `M` is the type of the memory of this side.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use ibverbs::RemoteMemory;

use crate::failure::Failure;
use crate::protocol::arrivals::Notice;
use crate::protocol::progress::Progress;
use crate::protocol::remote_region::RemoteRegion;
use crate::protocol::stripe::Span;

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
pub(crate) struct PeerTransfer<M> {
    pub(crate) operation: Operation,
    /// Its jobs end with a notice.
    pub(crate) notices: bool,
    /// Number among the transfers with notices.
    pub(crate) number: u64,
    pub(crate) value: u32,
    pub(crate) jobs: u32,
    /// Number of jobs that have not ended.
    pub(crate) unfinished: AtomicU32,
    pub(crate) region: Arc<M>,
    pub(crate) remote: RemoteRegion,
    /// Device to use as long as it works.
    pub(crate) device: Option<usize>,
    pub(crate) progress: Arc<Progress>,
    /// A failure that would occur on every path.
    pub(crate) failure: OnceLock<Failure>,
}

impl<M> PeerTransfer<M> {
    /// Returns `true` if nothing more is posted for it.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.get().is_some() || self.progress.is_canceled()
    }
}

/// The share of a transfer that one path transfers at a time.
#[derive(Debug)]
pub(crate) struct Job<M> {
    pub(crate) transfer: Arc<PeerTransfer<M>>,
    pub(crate) number: u32,
}

impl<M> Job<M> {
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
#[derive(Clone, Debug)]
pub(crate) struct Waiting<M> {
    pub(crate) job: Arc<Job<M>>,
    pub(crate) spans: VecDeque<Span>,
    /// A request was posted.
    pub(crate) is_started: bool,
    /// The job ends without a notice.
    pub(crate) is_cut: bool,
}

impl<M> Waiting<M> {
    pub(crate) fn new(job: Arc<Job<M>>, spans: VecDeque<Span>) -> Self {
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

#[cfg(test)]
impl<M> Waiting<M> {
    pub(crate) fn shape(&self) -> impl std::hash::Hash + use<M> {
        (
            self.job.number,
            self.spans.len(),
            self.is_started,
            self.is_cut,
        )
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
