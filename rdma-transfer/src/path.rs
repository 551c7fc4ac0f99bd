//! The states of a path: from the creation of its queue pair to the agreement of both sides about
//! the jobs that were in flight on it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::control::Unknown;
use crate::failure::Failure;
use crate::qp::Address;
use crate::queue::Queue;
use crate::work::Waiting;

/// The queue pair of this side.
#[derive(Debug)]
pub(crate) enum Link {
    /// It was not created yet in this epoch.
    Idle,
    /// The thread of the device is creating, connecting or destroying it.
    Busy,
    /// It is not connected. The peer knows its address.
    Offered(Box<Queue>),
    /// It is connected.
    Live(Box<Queue>),
    /// It was destroyed, or will not be created, at this time. The peer knows it.
    Closed(Instant),
}

/// The queue pair of the peer, as far as it has been reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Remote {
    /// Its address, if it exists.
    pub(crate) address: Option<Address>,
    pub(crate) is_connected: bool,
}

/// One queue pair of this side and one of the peer, again and again.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) number: usize,
    /// Device of this side.
    pub(crate) device: usize,
    pub(crate) epoch: u64,
    pub(crate) link: Link,
    pub(crate) remote: Remote,
    /// Time of the first step of a connection that takes several.
    pub(crate) connecting_since: Option<Instant>,
    /// The probe was posted.
    pub(crate) is_probed: bool,
    /// Time at which the probe was acknowledged. The path has jobs only after that.
    pub(crate) ready_at: Option<Instant>,
    /// The reason to destroy the queue pair.
    pub(crate) fault: Option<Failure>,
    /// The jobs and regions that the peer asked for when it closed its side of this epoch.
    pub(crate) closed_by_peer: Option<Unknown>,
    pub(crate) waiting: VecDeque<Waiting>,
    /// Jobs that were in flight when the queue pair was destroyed.
    pub(crate) unsettled: Vec<Waiting>,
    /// Number of failures since the path has worked for a while.
    pub(crate) failures: u32,
    /// Number of all failures, and the reason of the last one.
    pub(crate) all_failures: u64,
    pub(crate) last_failure: Option<Failure>,
    /// Time of the next attempt.
    pub(crate) retry_at: Instant,
}

/// The next step of a path, which the thread of its device performs.
#[derive(Debug)]
pub(crate) enum Step {
    Wait,
    Create,
    Connect(Box<Queue>, Address),
    Destroy(Box<Queue>),
    /// The peer has closed an epoch that this side has not begun.
    Close,
}

impl Path {
    pub(crate) fn new(number: usize, device: usize, now: Instant) -> Self {
        Self {
            number,
            device,
            epoch: 0,
            link: Link::Idle,
            remote: Remote::default(),
            connecting_since: None,
            is_probed: false,
            ready_at: None,
            fault: None,
            closed_by_peer: None,
            waiting: VecDeque::new(),
            unsettled: Vec::new(),
            failures: 0,
            all_failures: 0,
            last_failure: None,
            retry_at: now,
        }
    }

    pub(crate) fn queue(&mut self) -> Option<&mut Queue> {
        match &mut self.link {
            Link::Offered(queue) | Link::Live(queue) => Some(queue),
            _ => None,
        }
    }

    /// Returns the queue pair and the jobs that it gets, if it is connected and has not failed.
    pub(crate) fn usable(&mut self) -> Option<(&mut Queue, &mut VecDeque<Waiting>)> {
        match &mut self.link {
            Link::Live(queue) if self.fault.is_none() => Some((queue, &mut self.waiting)),
            _ => None,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready_at.is_some()
    }

    /// Records a reason to destroy the queue pair. The first one is kept.
    pub(crate) fn fail(&mut self, reason: &Failure) {
        self.fault.get_or_insert_with(|| reason.clone());
    }

    /// Returns the next step. The queue pair is taken out for it.
    pub(crate) fn next_step(&mut self, now: Instant, ended: bool) -> Step {
        let must_close = ended || self.fault.is_some() || self.closed_by_peer.is_some();
        match std::mem::replace(&mut self.link, Link::Busy) {
            Link::Offered(queue) | Link::Live(queue) if must_close => Step::Destroy(queue),
            Link::Idle if must_close => Step::Close,
            Link::Idle if now >= self.retry_at => Step::Create,
            Link::Offered(queue) => {
                if let Some(address) = self.remote.address {
                    return Step::Connect(queue, address);
                }
                self.link = Link::Offered(queue);
                Step::Wait
            }
            other => {
                self.link = other;
                Step::Wait
            }
        }
    }

    /// Takes the path out of use. A path that has worked for the maximum backoff begins with the
    /// shortest one.
    pub(crate) fn close(&mut self, max_backoff: Duration, now: Instant) {
        let worked = self.ready_at.take();
        if worked.is_some_and(|since| now.saturating_duration_since(since) >= max_backoff) {
            self.failures = 0;
        }
    }

    /// Counts a failure.
    pub(crate) fn count_failure(&mut self, reason: Failure) {
        self.failures = self.failures.saturating_add(1);
        self.all_failures += 1;
        self.last_failure = Some(reason);
    }

    /// Begins the next epoch after both sides have closed this one, which has reset the rest.
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.link = Link::Idle;
        self.remote = Remote::default();
        self.connecting_since = None;
        self.is_probed = false;
    }

    /// Removes the jobs that are over and have waited for the peer for this time. This side has
    /// destroyed its queue pair, so its devices access no memory for them.
    pub(crate) fn take_unconfirmed(&mut self, settle: Duration, now: Instant) -> Vec<Waiting> {
        // The queue pair of this side exists before that.
        let Link::Closed(since) = self.link else {
            return Vec::new();
        };
        if now.saturating_duration_since(since) < settle {
            return Vec::new();
        }
        let is_over = |waiting: &Waiting| waiting.job.transfer.is_over();
        let (over, left) = std::mem::take(&mut self.unsettled)
            .into_iter()
            .partition(is_over);
        self.unsettled = left;
        over
    }
}

/// The state of a path, for logs and metrics ([`Peer::paths`](crate::Peer::paths)).
///
/// # Example
/// ```no_run
/// # fn f(peer: &rdma_transfer::Peer) {
/// for path in peer.paths().iter().filter(|path| !path.is_ready) {
///     println!("{}: {:?}", path.device, path.last_failure);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStatus {
    /// Name of the device of this side.
    pub device: String,
    /// `true` if transfers use the path.
    pub is_ready: bool,
    /// Number of failures so far.
    pub failures: u64,
    /// The reason of the last failure.
    pub last_failure: Option<String>,
    /// Number of requests in flight.
    pub in_flight: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_has_worked_for_a_while_is_connected_soon() {
        const LIMIT: Duration = Duration::from_secs(1);
        let now = Instant::now();
        let mut path = Path::new(0, 0, now);
        let reason = Failure::new(ibverbs::ErrorKind::Os, "a failure");
        path.count_failure(reason);
        for (time, failures) in [(Duration::from_millis(999), 1), (LIMIT, 0)] {
            path.ready_at = Some(now);
            path.close(LIMIT, now + time);
            assert_eq!((path.failures, path.is_ready()), (failures, false));
        }
        assert_eq!(path.all_failures, 1);
    }
}
