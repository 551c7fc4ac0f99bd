//! The queue pairs of one peer on one device, and the requests that wait for them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ibverbs::{
    Batch, CompletionQueue, CqId, Direction, Endpoint, Error, ErrorKind, Held, QueuePair, Rc,
    RcPath, RemoteMemory, Result, SharedRegion, wr,
};

use crate::failure::{Failure, lock};
use crate::stripe::Span;
use crate::transfer::Progress;

/// Maximum number of requests that are posted with one doorbell, at most
/// [`max_batch`](ibverbs::QpOptions::max_batch).
const BATCH: usize = 32;

/// Tag of the last request of a job.
const LAST: u64 = 1;

/// The share of a transfer that one queue pair writes.
#[derive(Debug)]
pub(crate) struct Job {
    /// The source, as registered with the device of the queue pair.
    pub(crate) region: SharedRegion,
    /// The target, as registered with the device of the peer's queue pair.
    pub(crate) remote: RemoteMemory,
    /// The pieces that are not posted yet.
    pub(crate) spans: VecDeque<Span>,
    /// The immediate of the last request.
    pub(crate) imm: Option<u32>,
    pub(crate) progress: Arc<Progress>,
}

/// The queue pairs of one peer on one device. They share a completion queue.
#[derive(Debug)]
pub(crate) struct Connection {
    cq_id: CqId,
    /// `None` once the queue pairs were destroyed.
    queues: Mutex<Option<Queues>>,
}

#[derive(Debug)]
struct Queues {
    cq: CompletionQueue,
    queues: Vec<Queue>,
}

/// A queue pair with its jobs. Sends complete in the order of posting, because the device is
/// InfiniBand or RoCE.
#[derive(Debug)]
pub(crate) struct Queue {
    qp: QueuePair<Rc>,
    path: RcPath,
    /// Jobs with pieces that are not posted yet.
    waiting: VecDeque<Job>,
    /// The jobs whose requests are all posted, oldest first.
    posted: VecDeque<Arc<Progress>>,
    /// Number of requests since the last signaled one.
    unsignaled: usize,
    /// The requests that are being posted. Its allocation is used again.
    batch: Vec<Request>,
}

/// A request that is about to be posted.
#[derive(Debug)]
struct Request {
    /// `None` for a request that only delivers the immediate.
    source: Option<Held<SharedRegion>>,
    target: RemoteMemory,
    imm: Option<u32>,
    is_signaled: bool,
    tag: u64,
}

impl Connection {
    pub(crate) fn new(cq: CompletionQueue, queues: Vec<Queue>) -> Self {
        Self {
            cq_id: cq.id(),
            queues: Mutex::new(Some(Queues { cq, queues })),
        }
    }

    /// Returns the identity of the completion queue.
    pub(crate) fn cq_id(&self) -> CqId {
        self.cq_id
    }

    /// Connects the queue pair `queue` to the peer's.
    pub(crate) fn connect(&self, queue: usize, remote: &Endpoint, mtu: u32) -> Result<()> {
        let mut queues = lock(&self.queues);
        let queue = &mut queues.as_mut().ok_or_else(destroyed)?.queues[queue];
        queue.path.mtu.0 = queue.path.mtu.0.min(mtu);
        queue.qp.connect(&queue.path, remote)
    }

    /// Posts the requests of a job to the queue pair `queue`, as far as they fit.
    pub(crate) fn submit(&self, queue: usize, job: Job, failure: &Failure) -> Result<()> {
        let mut queues = lock(&self.queues);
        let Some(queues) = &mut *queues else {
            job.progress.end_part(Some(failure));
            return Ok(());
        };
        let queue = &mut queues.queues[queue];
        queue.waiting.push_back(job);
        queue.post_waiting()
    }

    /// Processes the completions that have arrived and posts waiting requests. Calls `arrived` with
    /// the queue pair and the value of each immediate.
    pub(crate) fn poll(&self, mut arrived: impl FnMut(usize, u32) -> Result<()>) -> Result<()> {
        let mut queues = lock(&self.queues);
        let Some(Queues { cq, queues }) = &mut *queues else {
            return Ok(());
        };
        // Armed before it is polled, so that a later completion causes an event.
        cq.arm(false)?;
        loop {
            let completions = cq.poll()?;
            if completions.is_empty() {
                return Ok(());
            }
            for completion in completions {
                let id = completion.queue();
                let Some(number) = queues.iter().position(|queue| queue.qp.id() == id) else {
                    continue;
                };
                let queue = &mut queues[number];
                let retired = queue.qp.retire(completion)?;
                retired.ok()?;
                match (retired.direction(), retired.imm_data()) {
                    (Direction::Recv, Some(value)) => {
                        queue.qp.post_recv(wr::recv(wr::Empty))?;
                        arrived(number, value)?;
                    }
                    (Direction::Recv, None) => return Err(unexpected_message()),
                    _ if retired.tag() == LAST => {
                        if let Some(progress) = queue.posted.pop_front() {
                            progress.end_part(None);
                        }
                    }
                    _ => {}
                }
            }
            queues.iter_mut().try_for_each(Queue::post_waiting)?;
        }
    }

    /// Destroys the queue pairs, then ends the transfers that use them. No device accesses the
    /// memory of a transfer when it ends.
    pub(crate) fn destroy(&self, failure: &Failure) {
        let Some(Queues { queues, .. }) = lock(&self.queues).take() else {
            return;
        };
        for Queue {
            qp,
            waiting,
            posted,
            ..
        } in queues
        {
            // If the driver fails, the library leaks the queue pair and the memory that it holds.
            drop(qp);
            for progress in posted.iter().chain(waiting.iter().map(|job| &job.progress)) {
                progress.end_part(Some(failure));
            }
        }
    }
}

impl Queue {
    /// Initializes a queue pair and posts its receives.
    pub(crate) fn new(mut qp: QueuePair<Rc>, path: RcPath) -> Result<Self> {
        qp.init(&path)?;
        while qp.recv_slots_free() > 0 {
            qp.post_recv(wr::recv(wr::Empty))?;
        }
        Ok(Self {
            qp,
            path,
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            unsignaled: 0,
            batch: Vec::with_capacity(BATCH),
        })
    }

    /// Returns the address of the queue pair.
    pub(crate) fn endpoint(&self) -> Result<Endpoint> {
        self.qp.endpoint(&self.path)
    }

    /// Returns the path MTU of this side.
    pub(crate) fn mtu(&self) -> u32 {
        self.path.mtu.0
    }

    /// Posts requests of the waiting jobs while the queue pair has free slots, with one doorbell
    /// for up to [`BATCH`] of them.
    fn post_waiting(&mut self) -> Result<()> {
        loop {
            let count = self.qp.send_slots_free().min(BATCH);
            self.batch.clear();
            while self.batch.len() < count {
                let Some(request) = self.next_request()? else {
                    break;
                };
                self.batch.push(request);
            }
            if self.batch.is_empty() {
                return Ok(());
            }
            let requests = &self.batch;
            self.qp.batch(|batch| {
                requests
                    .iter()
                    .try_for_each(|request| request.add_to(batch))
            })?;
        }
    }

    /// Removes the next request from the waiting jobs.
    fn next_request(&mut self) -> Result<Option<Request>> {
        let Some(job) = self.waiting.front_mut() else {
            return Ok(None);
        };
        let (span, remote) = (job.spans.pop_front(), job.remote);
        let is_last = job.spans.is_empty();
        let imm = job.imm.filter(|_| is_last);
        let source = match span {
            Some(span) => Some(hold(&mut self.qp, &job.region, span)?),
            None => None,
        };
        // A request without a span only delivers the immediate.
        let span = span.unwrap_or(Span::new(0, 0, 0));
        let target = remote
            .slice(span.target, span.len as u64)
            .ok_or_else(out_of_bounds)?;
        if is_last {
            // Counted as posted even if posting fails: the queue pair is destroyed then.
            let job = self.waiting.pop_front();
            self.posted.extend(job.map(|job| job.progress));
        }
        let half = self.qp.caps().max_send_wr as usize / 2;
        let is_signaled = is_last || self.unsignaled + 1 >= half;
        self.unsignaled = if is_signaled { 0 } else { self.unsignaled + 1 };
        Ok(Some(Request {
            source,
            target,
            imm,
            is_signaled,
            tag: if is_last { LAST } else { 0 },
        }))
    }
}

impl Request {
    fn add_to(&self, batch: &mut Batch<'_, Rc>) -> Result<()> {
        match (self.source, self.imm) {
            (Some(source), Some(imm)) => {
                batch.send(wr::write_with_imm(source, self.target, imm).tag(self.tag))?;
            }
            (None, imm) => {
                let imm = imm.unwrap_or_default();
                batch.send(wr::write_with_imm(wr::Empty, self.target, imm).tag(self.tag))?;
            }
            (Some(source), None) => {
                let request = wr::write(source, self.target).tag(self.tag);
                let unsignaled = request.unsignaled();
                batch.send(if self.is_signaled {
                    request
                } else {
                    unsignaled
                })?;
            }
        }
        Ok(())
    }
}

/// Lets the queue pair keep the region until it is destroyed, and returns the token for a part.
fn hold(qp: &mut QueuePair<Rc>, region: &SharedRegion, span: Span) -> Result<Held<SharedRegion>> {
    let end = span.source.saturating_add(span.len);
    let part = region.slice(span.source..end).ok_or_else(out_of_bounds)?;
    qp.hold(&part)
}

fn out_of_bounds() -> Error {
    Error::new(ErrorKind::InvalidInput, "transfer", "out of bounds")
}

fn destroyed() -> Error {
    Error::new(
        ErrorKind::Disconnected,
        "connect",
        "the peer was disconnected",
    )
}

fn unexpected_message() -> Error {
    let what = "the peer has sent a message without an immediate";
    Error::new(ErrorKind::Malformed, "transfer", what)
}
