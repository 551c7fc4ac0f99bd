//! A queue pair with its completion queue, and the requests that are in flight on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use ibverbs::{
    Batch, CompletionQueue, CqId, CqOptions, Direction, Endpoint, Error, ErrorKind, Pool, Psn,
    QpOptions, QueuePair, Rc, RcPath, RemoteMemory, Result, Retired, WcStatus, wr,
};

use crate::failure::Failure;
use crate::immediates::Notice;
use crate::nic::Open;
use crate::options::EngineOptions;
use crate::region::{Inner, Memory, Token, Uses};
use crate::stripe::Span;
use crate::work::{Job, Keys, Operation, Waiting};

/// Maximum number of requests that are posted with one doorbell, at most
/// [`max_batch`](ibverbs::QpOptions::max_batch).
const BATCH: usize = 32;

/// Number of polls without an event that find completions until the events are lost. A device may
/// send no more after one was lost.
const MAX_SILENT: u32 = 16;

/// Maximum number of requests between two signaled ones.
const UNSIGNALED: usize = 16;

/// A queue pair. Sends complete in the order of posting, because the device is InfiniBand or RoCE.
#[derive(Debug)]
pub(crate) struct Queue {
    // Destroyed in this order.
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    /// The receives, which are used again.
    _receives: Pool,
    path: RcPath,
    /// Maximum number of requests in flight.
    max_in_flight: usize,
    /// Number of its device in the engine.
    device: usize,
    /// Generation of the device.
    pub(crate) generation: u64,
    /// The requests in flight, oldest first.
    records: VecDeque<Record>,
    next_number: u64,
    /// Number of requests since the last signaled one.
    unsignaled: usize,
    /// Time of the last completion, or of the first request after the queue was empty.
    progress_at: Instant,
    /// Number of polls since the last event that found completions without one.
    silent: u32,
    /// Regions that the queue pair holds, by their number.
    tokens: HashMap<u64, HeldRegion>,
    /// Regions that were dropped, and that requests in flight may use.
    releasing: Vec<HeldRegion>,
    /// Number of dropped regions when `tokens` was last searched.
    releases: u64,
    /// The requests that are being posted. Its allocation is used again.
    batch: Vec<Request>,
}

#[derive(Debug)]
struct HeldRegion {
    region: Weak<Inner>,
    token: Token,
    uses: Arc<Uses>,
}

impl Drop for HeldRegion {
    fn drop(&mut self) {
        self.uses.remove();
    }
}

/// A request in flight.
#[derive(Debug)]
struct Record {
    number: u64,
    /// `None` for a probe.
    job: Option<Arc<Job>>,
    /// `None` for a notice or a probe.
    span: Option<Span>,
    /// The last request of its job.
    is_last: bool,
}

/// A request that is about to be posted.
#[derive(Clone, Copy, Debug)]
struct Request {
    number: u64,
    content: Content,
    is_signaled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Write(Token, RemoteMemory),
    Read(Token, RemoteMemory),
    Notice([u8; Notice::LEN]),
}

/// A result of polling.
#[derive(Debug)]
pub(crate) enum Event {
    /// Bytes of a job were transferred.
    Done(Arc<Job>, usize),
    /// All requests of a job are complete.
    Ended(Arc<Job>),
    /// The probe was acknowledged.
    Probed,
    /// A job of the peer has arrived.
    Arrived(Notice),
}

/// A failure of the queue pair.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) failure: Failure,
    /// The job that would fail on every path.
    pub(crate) job: Option<Arc<Job>>,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self {
            failure: Failure::from(&error),
            job: None,
        }
    }
}

impl Queue {
    /// Creates a queue pair in state INIT and posts its receives.
    pub(crate) fn create(
        device: usize,
        open: &Open,
        path: RcPath,
        options: &EngineOptions,
        now: Instant,
    ) -> Result<Self> {
        let pd = &open.pd;
        let (sends, receives) = (options.max_send_wr, options.max_recv_wr);
        let depth = sends.saturating_add(receives);
        let cq_options = CqOptions::new().depth(depth).channel(&open.channel);
        let mut cq = pd.context().create_cq(cq_options)?;
        cq.arm(false)?;
        let qp_options = QpOptions::new()
            .max_send_wr(sends)
            .max_recv_wr(receives)
            .max_inline_data(u32::try_from(Notice::LEN).unwrap_or(u32::MAX));
        let mut qp = pd.create_qp::<Rc>(&cq, &cq, qp_options)?;
        let path = path.psn(Psn::random());
        qp.init(&path)?;
        // Not more than the completion queue has entries for: the device may grant longer queues.
        let pool = pd.pool(receives as usize, Notice::LEN)?;
        while let Some(buf) = pool.take() {
            qp.post_recv(wr::recv(buf))?;
        }
        Ok(Self {
            qp,
            cq,
            _receives: pool,
            path,
            max_in_flight: sends as usize,
            device,
            generation: open.generation,
            records: VecDeque::new(),
            next_number: 0,
            unsignaled: 0,
            progress_at: now,
            silent: 0,
            tokens: HashMap::new(),
            releasing: Vec::new(),
            releases: 0,
            batch: Vec::with_capacity(BATCH),
        })
    }

    pub(crate) fn cq_id(&self) -> CqId {
        self.cq.id()
    }

    /// Returns the address of the queue pair, and the path MTU of this side.
    pub(crate) fn address(&self) -> Result<(Endpoint, u32)> {
        Ok((self.qp.endpoint(&self.path)?, self.path.mtu.0))
    }

    /// Connects the queue pair to the peer's.
    pub(crate) fn connect(&mut self, remote: &Endpoint, mtu: u32) -> Result<()> {
        self.path.mtu.0 = self.path.mtu.0.min(mtu);
        self.qp.connect(&self.path, remote)
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.records.len()
    }

    /// Returns the time since when requests are in flight without a completion.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        (!self.records.is_empty()).then_some(self.progress_at)
    }

    /// Records an event of the completion queue.
    pub(crate) fn note_event(&mut self) {
        self.silent = 0;
    }

    /// Returns `true` if completions arrive without events.
    pub(crate) fn lost_events(&self) -> bool {
        self.silent > MAX_SILENT
    }

    /// Destroys the queue pair. No device accesses memory for it afterwards.
    ///
    /// # Errors
    /// The driver fails. The library then leaks the queue pair and the memory that it holds.
    pub(crate) fn destroy(self) -> Result<()> {
        self.qp.destroy().map(drop)
    }

    /// Retires the completions that have arrived. Failures are ignored before the queue pair is
    /// destroyed (`is_last`).
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        is_last: bool,
        mut report: impl FnMut(Event),
    ) -> std::result::Result<(), Fault> {
        // Armed before it is polled, so that a later completion causes an event.
        self.cq.arm(false)?;
        let mut is_first = true;
        loop {
            let completions = self.cq.poll()?;
            if completions.is_empty() {
                return Ok(());
            }
            self.progress_at = now;
            self.silent += u32::from(std::mem::take(&mut is_first));
            for completion in completions {
                let retired = self.qp.retire(completion).map_err(Error::from)?;
                if let Err(error) = retired.ok() {
                    if is_last {
                        continue;
                    }
                    return Err(self.fault(&retired, &error));
                }
                if retired.direction() == Direction::Send {
                    complete(&mut self.records, retired.tag(), &mut report);
                    continue;
                }
                let buf = retired.into_buf().ok_or_else(unexpected_message)?;
                let notice = Notice::from_bytes(&buf).ok_or_else(unexpected_message)?;
                match self.qp.post_recv(wr::recv(buf)) {
                    Err(_) if is_last => {}
                    posted => posted.map_err(Error::from)?,
                }
                report(Event::Arrived(notice));
            }
        }
    }

    /// Returns the failure of a request, with its job if its memory is the reason.
    fn fault(&self, retired: &Retired, error: &Error) -> Fault {
        let is_of_memory = matches!(
            retired.status(),
            WcStatus::REM_ACCESS_ERR
                | WcStatus::REM_INV_REQ_ERR
                | WcStatus::LOC_PROT_ERR
                | WcStatus::LOC_LEN_ERR
        );
        let mut records = self.records.iter();
        let failed = records.find(|record| {
            record.number == retired.tag()
                && record.span.is_some()
                && retired.direction() == Direction::Send
        });
        Fault {
            failure: Failure::from(error),
            job: failed
                .filter(|_| is_of_memory)
                .and_then(|record| record.job.clone()),
        }
    }

    /// Posts a message that shows that the path works.
    pub(crate) fn post_probe(&mut self, now: Instant) -> Result<()> {
        let number = self.number(now);
        self.records.push_back(Record {
            number,
            job: None,
            span: None,
            is_last: false,
        });
        let bytes = Notice::PROBE.to_bytes();
        let probe = wr::send(wr::Inline(&bytes)).tag(number);
        Ok(self.qp.post_send(probe)?)
    }

    /// Posts requests of the waiting jobs while the queue pair has free slots, with one doorbell
    /// for up to [`BATCH`] of them.
    pub(crate) fn post(
        &mut self,
        waiting: &mut VecDeque<Waiting>,
        keys: &Keys<'_>,
        now: Instant,
    ) -> std::result::Result<(), Fault> {
        loop {
            let left = self.max_in_flight.saturating_sub(self.records.len());
            let count = self.qp.send_slots_free().min(left).min(BATCH);
            self.batch.clear();
            while self.batch.len() < count {
                let Some(request) = self.next_request(waiting, keys, now)? else {
                    break;
                };
                self.batch.push(request);
            }
            if self.batch.is_empty() {
                return Ok(());
            }
            let requests = &self.batch;
            let add = |batch: &mut Batch<'_, Rc>| -> Result<()> {
                requests
                    .iter()
                    .try_for_each(|request| request.add_to(batch))
            };
            self.qp.batch(add)?;
        }
    }

    /// Removes the next request from the waiting jobs. It counts as in flight from then on, also if
    /// posting it fails.
    fn next_request(
        &mut self,
        waiting: &mut VecDeque<Waiting>,
        keys: &Keys<'_>,
        now: Instant,
    ) -> std::result::Result<Option<Request>, Fault> {
        let Some(front) = waiting.front_mut() else {
            return Ok(None);
        };
        front.is_started = true;
        let job = Arc::clone(&front.job);
        let span = front.spans.pop_front();
        let has_notice = job.transfer.notices && !front.is_cut;
        let is_last = front.spans.is_empty() && (span.is_none() || !has_notice);
        if is_last {
            waiting.pop_front();
        }
        let number = self.number(now);
        self.records.push_back(Record {
            number,
            job: Some(Arc::clone(&job)),
            span,
            is_last,
        });
        let content = match span {
            None => Content::Notice(job.notice().to_bytes()),
            Some(span) => {
                let blame = |error: Error| Fault {
                    failure: Failure::from(&error),
                    job: Some(Arc::clone(&job)),
                };
                let token = self.token(&job.transfer.region, span).map_err(blame)?;
                let remote = keys
                    .get(&job.transfer.remote)
                    .and_then(|remote| remote.slice(span.remote, span.len as u64))
                    .ok_or_else(out_of_bounds)
                    .map_err(blame)?;
                match job.transfer.operation {
                    Operation::Write => Content::Write(token, remote),
                    Operation::Read => Content::Read(token, remote),
                }
            }
        };
        let max = UNSIGNALED.min(self.max_in_flight / 2);
        let is_signaled = is_last || self.unsignaled + 1 >= max;
        self.unsignaled = if is_signaled { 0 } else { self.unsignaled + 1 };
        Ok(Some(Request {
            number,
            content,
            is_signaled,
        }))
    }

    fn number(&mut self, now: Instant) -> u64 {
        if self.records.is_empty() {
            self.progress_at = now;
        }
        self.next_number += 1;
        self.next_number
    }

    /// Returns the token for a range of a region, which the queue pair holds until the region is
    /// dropped.
    fn token(&mut self, region: &Arc<Inner>, span: Span) -> Result<Token> {
        let range = span.local..span.local.saturating_add(span.len);
        if let Some(held) = self.tokens.get(&region.id) {
            if let Some(token) = held.token.slice(range.clone()) {
                return Ok(token);
            }
        }
        let memory = region
            .memory(self.device, self.generation)
            .ok_or_else(not_registered)?;
        let token = memory.hold(&mut self.qp)?;
        let held = HeldRegion {
            region: Arc::downgrade(region),
            token,
            uses: region.uses(),
        };
        held.uses.add();
        self.tokens.entry(region.id).or_insert(held);
        match (token.slice(range.clone()), memory) {
            (Some(token), _) => Ok(token),
            // Behind the first 4 GiB, which a token can name.
            (None, Memory::Shared(region)) => {
                let part = region.slice(range).ok_or_else(out_of_bounds)?;
                Ok(Token::Shared(self.qp.hold(&part)?))
            }
            _ => Err(out_of_bounds()),
        }
    }

    /// Releases the regions that were dropped. `releases` is their number in the whole engine.
    /// Returns `true` if there are some that requests in flight may use.
    pub(crate) fn release(&mut self, releases: u64) -> bool {
        if self.releases != releases {
            self.releases = releases;
            let dropped = |held: &HeldRegion| held.region.strong_count() == 0;
            let ids: Vec<u64> = self
                .tokens
                .iter()
                .filter(|(_, held)| dropped(held))
                .map(|(&id, _)| id)
                .collect();
            let tokens = ids.iter().filter_map(|id| self.tokens.remove(id));
            self.releasing.extend(tokens);
        }
        let qp = &mut self.qp;
        self.releasing
            .retain(|held| !held.token.release(qp).unwrap_or(false));
        !self.releasing.is_empty()
    }

    /// Returns the jobs whose requests are in flight, with their pieces and the rest of the first
    /// waiting job if it was started. The queue pair is destroyed, or will be.
    pub(crate) fn take_unfinished(&mut self, waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
        let mut jobs: Vec<Waiting> = Vec::new();
        for Record { job, span, .. } in self.records.drain(..) {
            let Some(job) = job else { continue };
            match jobs.last_mut() {
                Some(last) if Arc::ptr_eq(&last.job, &job) => last.spans.extend(span),
                _ => jobs.push(Waiting::new(job, span.into_iter().collect())),
            }
        }
        if waiting.front().is_some_and(|front| front.is_started) {
            if let Some(front) = waiting.pop_front() {
                match jobs.last_mut() {
                    Some(last) if Arc::ptr_eq(&last.job, &front.job) => {
                        last.spans.extend(front.spans);
                    }
                    _ => jobs.push(Waiting::new(front.job, front.spans)),
                }
            }
        }
        jobs
    }
}

/// Removes the requests up to this number, which are complete, and reports them.
fn complete(records: &mut VecDeque<Record>, number: u64, report: &mut impl FnMut(Event)) {
    while records.front().is_some_and(|first| first.number <= number) {
        let Some(Record {
            job, span, is_last, ..
        }) = records.pop_front()
        else {
            return;
        };
        let Some(job) = job else {
            report(Event::Probed);
            continue;
        };
        if let Some(span) = span {
            report(Event::Done(Arc::clone(&job), span.len));
        }
        if is_last {
            report(Event::Ended(job));
        }
    }
}

impl Request {
    fn add_to(&self, batch: &mut Batch<'_, Rc>) -> Result<()> {
        // The requests have different types.
        macro_rules! send {
            ($request:expr) => {{
                let request = $request.tag(self.number);
                if self.is_signaled {
                    batch.send(request)?;
                } else {
                    batch.send(request.unsignaled())?;
                }
            }};
        }
        match &self.content {
            Content::Write(Token::Shared(held), remote) => send!(wr::write(*held, *remote)),
            Content::Write(Token::Frozen(held), remote) => send!(wr::write(*held, *remote)),
            Content::Write(Token::Device(held), remote) => send!(wr::write(*held, *remote)),
            Content::Read(Token::Shared(held), remote) => send!(wr::read(*held, *remote)),
            Content::Read(Token::Device(held), remote) => send!(wr::read(*held, *remote)),
            Content::Read(Token::Frozen(_), _) => return Err(not_registered()),
            Content::Notice(bytes) => send!(wr::send(wr::Inline(bytes))),
        }
        Ok(())
    }
}

fn out_of_bounds() -> Error {
    Error::new(ErrorKind::InvalidInput, "transfer", "out of bounds")
}

fn not_registered() -> Error {
    let what = "the region is not registered with the device for this operation";
    Error::new(ErrorKind::InvalidInput, "transfer", what)
}

fn unexpected_message() -> Error {
    let what = "the peer has sent a message that is no notice";
    Error::new(ErrorKind::Malformed, "transfer", what)
}
