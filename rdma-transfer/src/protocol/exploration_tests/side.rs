//! One side: its path and its queue pair, and the jobs that it sends or has received.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ibverbs::ErrorKind;

use crate::failure::Failure;
use crate::options::EngineOptions;
use crate::protocol::arrivals::{Arrivals, Notice};
use crate::protocol::message::Message;
use crate::protocol::path::Path;
use crate::protocol::progress::Progress;
use crate::protocol::records::{Event, Records};
use crate::protocol::remote_region::RemoteRegion;
use crate::protocol::stripe::Span;
use crate::protocol::work::{Job, Operation, PeerTransfer, Waiting};

pub(super) const JOBS: u32 = 2;
/// Messages that a queue pair can receive over iWARP before it has reported the first one.
pub(super) const RECEIVES: u32 = 1;

pub(super) type Outcome<T = bool> = Result<T, String>;

/// The kind of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A request completes when it has arrived.
    Roce,
    /// A request completes when it was sent.
    Iwarp,
}

/// A packet on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Packet {
    Write(u32),
    Notice(Option<u32>),
}

#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) records: Records<()>,
    pub(super) is_iwarp: bool,
    pub(super) is_stopped: bool,
    /// This side accepts the connection over iWARP.
    pub(super) accepts: bool,
    /// Numbers of the requests that have not completed, and of those the ones that have arrived.
    pub(super) posted: VecDeque<(u64, Packet)>,
    pub(super) arrived: usize,
    /// Messages that were received and not processed.
    pub(super) received: VecDeque<Option<u32>>,
}

/// The step that the thread of a device performs. The queue pair exists meanwhile.
#[derive(Clone, Debug)]
pub(super) enum Busy {
    Creating,
    Connecting(Box<Queue>),
    Destroying(Box<Queue>),
}

#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) path: Path<Queue, ()>,
    pub(super) busy: Option<Busy>,
    pub(super) pending: VecDeque<Waiting<()>>,
    pub(super) arrivals: Arrivals,
    /// Jobs that have ended here, and those whose bytes have arrived here.
    pub(super) ended: [bool; JOBS as usize],
    pub(super) written: [bool; JOBS as usize],
    pub(super) counted: u32,
    /// Messages from the peer.
    pub(super) control: VecDeque<Message>,
}

pub(super) fn jobs() -> impl Iterator<Item = Waiting<()>> {
    let transfer = Arc::new(PeerTransfer {
        operation: Operation::Write,
        notices: true,
        number: 0,
        value: 0,
        jobs: JOBS,
        unfinished: AtomicU32::new(JOBS),
        region: Arc::new(()),
        remote: RemoteRegion {
            id: 0,
            keys: Vec::new(),
        },
        device: None,
        progress: Progress::new(JOBS as usize, u64::from(JOBS), Arc::default()),
        failure: OnceLock::new(),
    });
    (0..JOBS).map(move |number| {
        let job = Job {
            transfer: Arc::clone(&transfer),
            number,
        };
        Waiting::new(Arc::new(job), [Span::new(0, 0, 1)].into())
    })
}

pub(super) fn fault() -> Failure {
    Failure::new(ErrorKind::Os, "a failure of the test")
}

impl Queue {
    pub(super) fn new(kind: Kind, accepts: bool) -> Self {
        let is_iwarp = kind == Kind::Iwarp;
        Self {
            records: Records::new(is_iwarp),
            is_iwarp,
            is_stopped: false,
            accepts,
            posted: VecDeque::new(),
            arrived: 0,
            received: VecDeque::new(),
        }
    }

    /// Returns the number of the first request that has completed on the device.
    pub(super) fn completed(&self) -> Option<u64> {
        let &(number, _) = self.posted.front()?;
        (self.is_iwarp || self.arrived > 0).then_some(number)
    }
}

impl Side {
    pub(super) fn new(options: &EngineOptions, jobs: VecDeque<Waiting<()>>, now: Instant) -> Self {
        Self {
            path: Path::new(0, 0, options, now),
            busy: None,
            pending: jobs,
            arrivals: Arrivals::default(),
            ended: [false; JOBS as usize],
            written: [false; JOBS as usize],
            counted: 0,
            control: VecDeque::new(),
        }
    }

    /// Returns the queue pair, also while the thread of the device has it.
    pub(super) fn queue(&mut self) -> Option<&mut Queue> {
        match &mut self.busy {
            Some(Busy::Connecting(queue) | Busy::Destroying(queue)) => Some(queue),
            _ => self.path.queue(),
        }
    }

    pub(super) fn assign(&mut self, waiting: Waiting<()>) {
        let jobs = self.path.waiting().unwrap_or(&mut self.pending);
        jobs.push_back(waiting);
    }

    pub(super) fn end(&mut self, job: &Job<()>) -> Outcome<()> {
        let ended = &mut self.ended[job.number as usize];
        if std::mem::replace(ended, true) {
            return Err(format!("job {} ends twice", job.number));
        }
        Ok(())
    }

    pub(super) fn process(&mut self, events: Vec<Event<()>>, now: Instant) -> Outcome<()> {
        for event in events {
            match event {
                Event::Done(..) | Event::Arrived(_) => {}
                Event::Ended(job) => self.end(&job)?,
                Event::Probed => {
                    if self.path.probed(now) {
                        let pending = std::mem::take(&mut self.pending);
                        for job in pending {
                            self.assign(job);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Processes a message that the queue pair has received.
    pub(super) fn receive(&mut self, message: Option<u32>) -> Outcome<()> {
        if let Some(job) = message {
            let notice = Notice {
                transfer: 0,
                job,
                jobs: JOBS,
                value: 0,
            };
            let counted = self.arrivals.add(&notice).map_err(|e| e.to_string())?;
            self.counted += u32::from(counted);
            if counted && self.written.contains(&false) {
                return Err("a transfer is counted before its bytes have arrived".into());
            }
        }
        Ok(())
    }

    /// Returns the next request of the path.
    pub(super) fn next_request(&mut self) -> Option<(u64, Packet)> {
        if let Some(queue) = self.path.must_probe() {
            let records = &mut queue.records;
            let must_wait = queue.accepts && records.is_silent();
            let request =
                (!must_wait).then(|| (records.add(None, None, false), Packet::Notice(None)));
            queue.posted.extend(request);
            if request.is_some() {
                self.path.probe_posted();
            }
            return request;
        }
        let (queue, waiting) = self.path.usable()?;
        let front = waiting.front_mut()?;
        if front.spans.is_empty() && !queue.records.can_send() {
            return None;
        }
        front.is_started = true;
        let (job, span) = (Arc::clone(&front.job), front.spans.pop_front());
        let packet = match span {
            Some(_) => Packet::Write(job.number),
            None => Packet::Notice(Some(job.number)),
        };
        if span.is_none() {
            waiting.pop_front();
        }
        let number = queue.records.add(Some(&job), span, span.is_none());
        queue.posted.push_back((number, packet));
        Some((number, packet))
    }
}

/// Everything that later steps depend on, except the time.
impl Hash for Queue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (
            self.records.shape(),
            &self.posted,
            self.arrived,
            &self.received,
        )
            .hash(state);
    }
}

impl Hash for Side {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.shape().hash(state);
        match &self.busy {
            None => 0.hash(state),
            Some(Busy::Creating) => 1.hash(state),
            Some(Busy::Connecting(queue)) => (2, queue).hash(state),
            Some(Busy::Destroying(queue)) => (3, queue).hash(state),
        }
        let pending = self.pending.iter();
        pending.for_each(|waiting| waiting.shape().hash(state));
        (self.ended, self.written, self.counted).hash(state);
        (0..JOBS).for_each(|job| self.arrivals.has(0, job).hash(state));
        format!("{:?}", self.control).hash(state);
    }
}
