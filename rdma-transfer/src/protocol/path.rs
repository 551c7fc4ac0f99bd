//! The states of a path: from the creation of its queue pair to the agreement of both sides about
//! the jobs that were in flight on it.

use std::collections::{HashSet, VecDeque};
use std::mem;
use std::time::Instant;

use ibverbs::{ErrorKind, Result};

use crate::failure::Failure;
use crate::options::EngineOptions;
use crate::protocol::message::{Address, Message, Unknown, malformed};
use crate::protocol::work::Waiting;

/// One queue pair of this side and one of the peer in each epoch. `Q` is the type of the queue
/// pair, `M` that of the memory of this side.
#[derive(Clone, Debug)]
pub(crate) struct Path<Q, M> {
    pub(crate) number: usize,
    /// Device of this side.
    pub(crate) device: usize,
    pub(crate) epoch: u64,
    local: Local<Q, M>,
    remote: Remote,
    options: EngineOptions,
    /// Number of failures since the path has worked for a while.
    recent_failures: u32,
    /// Number of all failures, and the reason of the last one.
    pub(crate) failures: u64,
    pub(crate) last_failure: Option<Failure>,
}

/// The queue pair of this side in this epoch.
#[derive(Clone, Debug)]
enum Local<Q, M> {
    /// It was not created yet. Time of the next attempt.
    Idle { retry_at: Instant },
    /// The thread of the device is creating it.
    Creating,
    /// It is not connected. The peer knows its address.
    Offered {
        /// `None` while the thread of the device connects it.
        queue: Option<Box<Q>>,
        /// Time of the first step of a connection that takes several.
        since: Option<Instant>,
        fault: Option<Failure>,
    },
    Connected {
        queue: Box<Q>,
        fault: Option<Failure>,
        probe: Probe,
        /// Only of a path that is ready.
        waiting: VecDeque<Waiting<M>>,
    },
    /// The thread of the device is destroying it.
    Closing {
        reason: Option<Failure>,
        unsettled: Vec<Waiting<M>>,
    },
    /// It was destroyed, or will not be created. The peer knows it.
    Closed {
        since: Instant,
        /// The jobs that were in flight on it.
        unsettled: Vec<Waiting<M>>,
    },
}

/// The message that shows that a connected path works. The path has jobs only after that.
#[derive(Clone, Debug)]
enum Probe {
    Due,
    Posted,
    Acknowledged(Instant),
}

/// The queue pair of the peer in this epoch, as far as the peer has reported it.
#[derive(Clone, Debug)]
enum Remote {
    Unknown,
    Offered(Address),
    Connected(Address),
    /// It was destroyed. The peer asks for these jobs and regions.
    Closed(Unknown),
    /// This side has answered the question.
    Answered,
}

/// The next step of a path, which the thread of its device performs.
#[derive(Debug)]
pub(crate) enum Step<Q, M> {
    Wait,
    Create,
    Connect(Box<Q>, Address),
    /// With the jobs that wait for the queue pair.
    Destroy(Box<Q>, VecDeque<Waiting<M>>),
    /// The peer has closed an epoch that this side has not begun.
    Close,
}

/// The state of a job that was in flight, after both sides have closed the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The peer has counted its notice.
    Arrived,
    /// The peer has released the region.
    Released,
    /// It must be repeated on another path.
    Unknown,
}

impl<Q, M> Path<Q, M> {
    pub(crate) fn new(number: usize, device: usize, options: &EngineOptions, now: Instant) -> Self {
        Self {
            number,
            device,
            epoch: 0,
            local: Local::Idle { retry_at: now },
            remote: Remote::Unknown,
            options: *options,
            recent_failures: 0,
            failures: 0,
            last_failure: None,
        }
    }

    /// Returns the queue pair, unless the thread of the device has it.
    pub(crate) fn queue(&mut self) -> Option<&mut Q> {
        match &mut self.local {
            Local::Offered { queue, .. } => queue.as_deref_mut(),
            Local::Connected { queue, .. } => Some(queue),
            _ => None,
        }
    }

    /// Returns the queue pair and the jobs that it gets, if it is connected and has not failed.
    pub(crate) fn usable(&mut self) -> Option<(&mut Q, &mut VecDeque<Waiting<M>>)> {
        match &mut self.local {
            Local::Connected {
                queue,
                fault: None,
                waiting,
                ..
            } => Some((queue, waiting)),
            _ => None,
        }
    }

    /// Returns the jobs that wait for the queue pair, of a path that is ready.
    pub(crate) fn waiting(&mut self) -> Option<&mut VecDeque<Waiting<M>>> {
        match &mut self.local {
            Local::Connected {
                probe: Probe::Acknowledged(_),
                waiting,
                ..
            } => Some(waiting),
            _ => None,
        }
    }

    /// Returns `true` if the path can have jobs.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(
            self.local,
            Local::Connected {
                probe: Probe::Acknowledged(_),
                ..
            }
        )
    }

    /// Returns `true` if no queue pair exists, and none is being created.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.local, Local::Idle { .. } | Local::Closed { .. })
    }

    /// Records a reason to destroy the queue pair. The first one is kept.
    pub(crate) fn fail(&mut self, reason: &Failure) {
        if let Local::Offered { fault, .. } | Local::Connected { fault, .. } = &mut self.local {
            fault.get_or_insert_with(|| reason.clone());
        }
    }

    /// Returns the next step. The queue pair is taken out for it.
    pub(crate) fn next_step(&mut self, now: Instant, ended: bool) -> Step<Q, M> {
        let must_close = ended || matches!(self.remote, Remote::Closed(_));
        match &mut self.local {
            Local::Idle { .. } if must_close => Step::Close,
            Local::Idle { retry_at } if now >= *retry_at => {
                self.local = Local::Creating;
                Step::Create
            }
            Local::Offered { queue, fault, .. } => {
                let Some(taken) = queue.take() else {
                    return Step::Wait;
                };
                if must_close || fault.is_some() {
                    let reason = fault.take();
                    return self.close(reason, taken, VecDeque::new());
                }
                if let Remote::Offered(address) | Remote::Connected(address) = self.remote {
                    return Step::Connect(taken, address);
                }
                *queue = Some(taken);
                Step::Wait
            }
            Local::Connected { fault, .. } if must_close || fault.is_some() => {
                let Local::Connected {
                    queue,
                    fault,
                    probe,
                    waiting,
                } = mem::replace(&mut self.local, Local::Creating)
                else {
                    return Step::Wait;
                };
                // A path that has worked for the maximum backoff begins with the shortest one.
                let max = self.options.max_backoff;
                let is_long = |since| now.saturating_duration_since(since) >= max;
                if matches!(probe, Probe::Acknowledged(since) if is_long(since)) {
                    self.recent_failures = 0;
                }
                self.close(fault, queue, waiting)
            }
            _ => Step::Wait,
        }
    }

    fn close(
        &mut self,
        reason: Option<Failure>,
        queue: Box<Q>,
        waiting: VecDeque<Waiting<M>>,
    ) -> Step<Q, M> {
        self.local = Local::Closing {
            reason,
            unsettled: Vec::new(),
        };
        Step::Destroy(queue, waiting)
    }

    // Results of the steps.

    /// Returns the message to the peer about a queue pair that was created.
    pub(crate) fn created(&mut self, queue: Q, address: Address) -> Message {
        self.local = Local::Offered {
            queue: Some(Box::new(queue)),
            since: None,
            fault: None,
        };
        Message::Up {
            path: self.number,
            epoch: self.epoch,
            address,
        }
    }

    /// Creating the queue pair has failed.
    pub(crate) fn not_created(&mut self, reason: Failure, now: Instant) {
        self.count_failure(reason);
        self.idle(now);
    }

    /// Records that the connection takes one more step.
    pub(crate) fn connecting(&mut self, taken: Box<Q>, now: Instant) {
        let Local::Offered {
            queue,
            since,
            fault,
        } = &mut self.local
        else {
            return;
        };
        *queue = Some(taken);
        let since = *since.get_or_insert(now);
        let limit = self.options.stall;
        if now.saturating_duration_since(since) > limit {
            let what = format!("not connected after {limit:?}");
            fault.get_or_insert_with(|| Failure::new(ErrorKind::TimedOut, &what));
        }
    }

    /// Connecting the queue pair has failed.
    pub(crate) fn not_connected(&mut self, taken: Box<Q>, reason: &Failure) {
        if let Local::Offered { queue, .. } = &mut self.local {
            *queue = Some(taken);
        }
        self.fail(reason);
    }

    /// Returns the message to the peer about a queue pair that was connected.
    pub(crate) fn connected(&mut self, queue: Box<Q>) -> Message {
        let fault = match &mut self.local {
            Local::Offered { fault, .. } => fault.take(),
            _ => None,
        };
        self.local = Local::Connected {
            queue,
            fault,
            probe: Probe::Due,
            waiting: VecDeque::new(),
        };
        Message::Ready {
            path: self.number,
            epoch: self.epoch,
        }
    }

    /// Returns the queue pair if the probe must be posted, because both sides are connected.
    pub(crate) fn must_probe(&mut self) -> Option<&mut Q> {
        match (&mut self.local, &self.remote) {
            (
                Local::Connected {
                    queue,
                    fault: None,
                    probe: Probe::Due,
                    ..
                },
                Remote::Connected(_),
            ) => Some(queue),
            _ => None,
        }
    }

    pub(crate) fn probe_posted(&mut self) {
        if let Local::Connected { probe, .. } = &mut self.local {
            *probe = Probe::Posted;
        }
    }

    /// Records the acknowledgment of the probe. Returns `true` if the path is ready now.
    pub(crate) fn probed(&mut self, now: Instant) -> bool {
        let Local::Connected {
            fault: None, probe, ..
        } = &mut self.local
        else {
            return false;
        };
        *probe = Probe::Acknowledged(now);
        true
    }

    /// Keeps the jobs that were in flight on the queue pair until both sides have closed it.
    pub(crate) fn set_unsettled(&mut self, jobs: Vec<Waiting<M>>) {
        if let Local::Closing { unsettled, .. } = &mut self.local {
            *unsettled = jobs;
        }
    }

    /// Records that the queue pair was destroyed, or will not be created. Returns the message to
    /// the peer about it.
    pub(crate) fn closed(&mut self, ended: Option<&Failure>, now: Instant) -> Message {
        let (reason, unsettled) = match mem::replace(&mut self.local, Local::Creating) {
            Local::Closing { reason, unsettled } => (reason, unsettled),
            _ => (None, Vec::new()),
        };
        let reason = reason.or_else(|| ended.cloned());
        self.count_failure(reason.unwrap_or_else(|| {
            let what = "the peer has closed its queue pair";
            Failure::new(ErrorKind::Disconnected, what)
        }));
        let jobs = unsettled.iter().map(|waiting| &waiting.job);
        let mut regions: Vec<u64> = jobs.clone().map(|job| job.transfer.remote.id).collect();
        regions.sort_unstable();
        regions.dedup();
        let unknown = Unknown {
            jobs: jobs.filter_map(|job| job.id()).collect(),
            regions,
        };
        self.local = Local::Closed {
            since: now,
            unsettled,
        };
        Message::Down {
            path: self.number,
            epoch: self.epoch,
            unknown,
        }
    }

    fn count_failure(&mut self, reason: Failure) {
        self.recent_failures = self.recent_failures.saturating_add(1);
        self.failures += 1;
        self.last_failure = Some(reason);
    }

    fn idle(&mut self, now: Instant) {
        let salt = self.epoch << 16 | self.number as u64;
        let failures = self.recent_failures.saturating_sub(1);
        self.local = Local::Idle {
            retry_at: now + self.options.backoff(failures, salt),
        };
    }

    // Messages of the peer. Each one occurs once in an epoch, in this order.

    pub(crate) fn remote_up(&mut self, address: Address) -> Result<()> {
        let Remote::Unknown = self.remote else {
            return Err(malformed("a second queue pair"));
        };
        self.remote = Remote::Offered(address);
        Ok(())
    }

    pub(crate) fn remote_ready(&mut self) -> Result<()> {
        let Remote::Offered(address) = self.remote else {
            return Err(malformed("a connection that it did not offer"));
        };
        self.remote = Remote::Connected(address);
        Ok(())
    }

    pub(crate) fn remote_down(&mut self, unknown: Unknown) -> Result<()> {
        if let Remote::Closed(_) | Remote::Answered = self.remote {
            return Err(malformed("a second end of a path"));
        }
        self.remote = Remote::Closed(unknown);
        Ok(())
    }

    /// Returns what the peer asks for, if both sides have closed the path. It must be answered.
    pub(crate) fn question(&mut self) -> Option<Unknown> {
        if !matches!(self.local, Local::Closed { .. }) {
            return None;
        }
        match mem::replace(&mut self.remote, Remote::Answered) {
            Remote::Closed(unknown) => Some(unknown),
            other => {
                self.remote = other;
                None
            }
        }
    }

    /// Ends the epoch after both sides have closed it. Returns the jobs that were in flight.
    pub(crate) fn settled(
        &mut self,
        known: &Unknown,
        now: Instant,
    ) -> Result<Vec<(Waiting<M>, Fate)>> {
        let (Local::Closed { unsettled, .. }, Remote::Answered) = (&mut self.local, &self.remote)
        else {
            return Err(malformed("an answer without a question"));
        };
        let unsettled = mem::take(unsettled);
        self.epoch += 1;
        self.remote = Remote::Unknown;
        self.idle(now);
        // The peer decides how long the lists are.
        let jobs: HashSet<_> = known.jobs.iter().collect();
        let regions: HashSet<_> = known.regions.iter().collect();
        let fate = |waiting: &Waiting<M>| {
            if waiting.job.id().is_some_and(|id| jobs.contains(&id)) {
                Fate::Arrived
            } else if regions.contains(&waiting.job.transfer.remote.id) {
                Fate::Released
            } else {
                Fate::Unknown
            }
        };
        let unsettled = unsettled.into_iter();
        Ok(unsettled
            .map(|waiting| {
                let fate = fate(&waiting);
                (waiting, fate)
            })
            .collect())
    }

    /// Removes the jobs for which this side accesses no memory anymore because its queue pair is
    /// destroyed.
    pub(crate) fn take_unsettled(&mut self) -> Vec<Waiting<M>> {
        match &mut self.local {
            Local::Closed { unsettled, .. } => mem::take(unsettled),
            _ => Vec::new(),
        }
    }

    /// Removes the jobs that are over and have waited for the peer for the maximum time. This side
    /// has destroyed its queue pair, so its devices access no memory for them.
    pub(crate) fn take_unconfirmed(&mut self, now: Instant) -> Vec<Waiting<M>> {
        let Local::Closed { since, unsettled } = &mut self.local else {
            return Vec::new();
        };
        if now.saturating_duration_since(*since) < self.options.settle {
            return Vec::new();
        }
        let is_over = |waiting: &Waiting<M>| waiting.job.transfer.is_over();
        let (over, left) = mem::take(unsettled).into_iter().partition(is_over);
        *unsettled = left;
        over
    }
}

#[cfg(test)]
impl<Q: std::hash::Hash, M> Path<Q, M> {
    /// Returns everything that later steps depend on, except the time.
    pub(crate) fn shape(&self) -> impl std::hash::Hash {
        let (stage, queue, fault, jobs) = match &self.local {
            Local::Idle { .. } => (0, None, None, Vec::new()),
            Local::Creating => (1, None, None, Vec::new()),
            Local::Offered { queue, fault, .. } => {
                (2, queue.as_deref(), fault.as_ref(), Vec::new())
            }
            Local::Connected {
                queue,
                fault,
                probe,
                waiting,
            } => {
                let stage = match probe {
                    Probe::Due => 3,
                    Probe::Posted => 4,
                    Probe::Acknowledged(_) => 5,
                };
                let jobs = waiting.iter().collect();
                (stage, Some(&**queue), fault.as_ref(), jobs)
            }
            Local::Closing { unsettled, .. } => (6, None, None, unsettled.iter().collect()),
            Local::Closed { unsettled, .. } => (7, None, None, unsettled.iter().collect()),
        };
        let jobs: Vec<_> = jobs.into_iter().map(Waiting::shape).collect();
        let remote = format!("{:?}", self.remote);
        (self.epoch, stage, queue, fault.is_some(), jobs, remote)
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
        let options = EngineOptions::new();
        let limit = options.max_backoff;
        let now = Instant::now();
        let secret = Address::Cm {
            listener: None,
            secret: 0,
            receives: 1,
        };
        for (time, failures) in [(limit / 2, 2), (limit, 1)] {
            let mut path: Path<(), ()> = Path::new(0, 0, &options, now);
            path.not_created(Failure::new(ErrorKind::Os, "a failure"), now);
            path.created((), secret);
            path.connected(Box::default());
            assert!(path.probed(now) && path.is_ready());
            path.fail(&Failure::new(ErrorKind::Os, "another failure"));
            let step = path.next_step(now + time, false);
            assert!(matches!(step, Step::Destroy(..)) && !path.is_ready());
            path.closed(None, now + time);
            assert_eq!((path.recent_failures, path.failures), (failures, 2));
        }
    }
}
