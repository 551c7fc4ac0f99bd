//! A queue pair with its completion queue, and the requests that are in flight on it.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ibverbs::{
    Batch, Buf, CompletionQueue, CqId, CqOptions, Direction, Error, ErrorKind, Pool, QpOptions,
    QueuePair, Rc, RcPath, RemoteMemory, Result, Retired, WcStatus, wr,
};

use crate::device::nic::Open;
use crate::device::qp::Qp;
use crate::device::{Event, Job, Records, Waiting};
use crate::failure::Failure;
use crate::memory::region::{PART, RegionMemory, Token, Uses, out_of_bounds};
use crate::options::EngineOptions;
use crate::protocol::arrivals::Notice;
use crate::protocol::message::{Address, MAX_REQUESTS};
use crate::protocol::stripe::Span;
use crate::protocol::work::{Keys, Operation};

/// Maximum number of requests that are posted with one doorbell, at most
/// [`max_batch`](ibverbs::QpOptions::max_batch).
const BATCH: usize = 32;

/// Number of polls without an event that find completions until the events are lost. A device may
/// send no more after one was lost.
const MAX_SILENT: u32 = 16;

/// Maximum time until all requests of a queue pair are flushed. Drivers that flush them need far
/// less, and the paths of other peers wait for it.
const MAX_DRAIN: Duration = Duration::from_millis(20);

/// Maximum number of requests between two signaled ones.
const UNSIGNALED: usize = 16;

/// A queue pair. On InfiniBand and RoCE, sends complete in the order of posting, and the completion
/// of a send means that it has arrived.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The first field: it is destroyed before the regions that it holds count as released.
    qp: Qp,
    cq: CompletionQueue,
    /// The receives, which are used again.
    receives: Pool,
    /// This side accepts the connection over iWARP. The other one must send first.
    accepts: bool,
    /// Maximum number of requests in flight.
    max_in_flight: usize,
    /// Number of completions after which a poll ends, those that the queue can have at its start.
    /// A peer that sends without pause can cause more while it is polled.
    max_polled: usize,
    /// `true` if the last poll has left completions.
    pub(crate) is_behind: bool,
    /// Number of its device in the engine.
    device: usize,
    /// Generation of the device.
    pub(crate) generation: u64,
    /// The requests in flight, oldest first.
    records: Records,
    /// Number of requests since the last signaled one.
    unsignaled: usize,
    /// Time since when no completion has arrived, known from the first call of
    /// [`waits_since`](Self::waits_since) after it. Posting and polling need no clock.
    waits_since: Option<Instant>,
    /// The time of the last step in an engine without threads.
    pub(crate) now: Option<Instant>,
    /// Number of polls since the last event that found completions without one.
    silent: u32,
    /// A caller has polled it since the last event.
    is_polled_by_caller: bool,
    /// Parts of regions that the queue pair holds, by the number of the region and of the part.
    tokens: HashMap<(u64, usize), HeldRegion>,
    /// Regions that were dropped, and that requests in flight may use.
    releasing: Vec<HeldRegion>,
    /// Number of dropped regions when `tokens` was last searched.
    releases: u64,
    /// The requests that are being posted. Its allocation is used again.
    batch: Vec<Request>,
}

#[derive(Debug)]
struct HeldRegion {
    region: Weak<RegionMemory>,
    token: Token,
    uses: Arc<Uses>,
}

impl Drop for HeldRegion {
    fn drop(&mut self) {
        self.uses.remove();
    }
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
    /// Creates a queue pair for a path of its device. Over iWARP, one side accepts the connection.
    pub(crate) fn create(
        device: usize,
        open: &Open,
        path: Option<RcPath>,
        options: &EngineOptions,
        accepts: bool,
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
        // Where the provider copies to the addresses of entries, dma-bufs cannot be used.
        let create =
            |addresses| pd.create_qp::<Rc>(&cq, &cq, qp_options.device_addresses(addresses));
        let qp = match create(true) {
            Err(error) if error.is_unsupported() => create(false)?,
            created => created?,
        };
        if (qp.caps().max_inline_data as usize) < Notice::LEN {
            let device = pd.context().device_name();
            let what = format!("{device}: its provider copies no inline data");
            return Err(Error::new(ErrorKind::Unsupported, "create a queue", what)
                .with_help("use another device"));
        }
        let records = Records::new(path.is_none());
        let mut qp = match path {
            Some(path) => Qp::verbs(qp, path)?,
            None => Qp::iwarp(qp, accepts, receives)?,
        };
        // Not more than the completion queue has entries for: the device may grant longer queues.
        let receives = pd.pool(receives as usize, Notice::LEN)?;
        if let Some(qp) = qp.get() {
            post_receives(qp, &receives)?;
        }
        Ok(Self {
            qp,
            cq,
            receives,
            accepts,
            max_in_flight: sends as usize,
            max_polled: depth as usize,
            is_behind: false,
            device,
            generation: open.generation,
            records,
            unsignaled: 0,
            waits_since: None,
            now: None,
            silent: 0,
            is_polled_by_caller: false,
            tokens: HashMap::new(),
            releasing: Vec::new(),
            releases: 0,
            batch: Vec::with_capacity(BATCH),
        })
    }

    pub(crate) fn cq_id(&self) -> CqId {
        self.cq.id()
    }

    pub(crate) fn address(&self) -> Result<Address> {
        self.qp.address()
    }

    /// Takes the next step to connect the queue pair to the peer's. Returns `true` if it is
    /// connected.
    pub(crate) fn connect(&mut self, remote: &Address) -> Result<bool> {
        if let Address::Cm { receives, .. } = remote {
            self.records.set_limit((*receives).min(MAX_REQUESTS));
        }
        let receives = &self.receives;
        self.qp.connect(remote, |qp| post_receives(qp, receives))
    }

    /// Returns `true` if the peer must send first: on the accepting side over iWARP.
    pub(crate) fn must_wait(&self) -> bool {
        self.accepts && self.records.is_silent()
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.records.len()
    }

    /// Returns the time since when requests are in flight without a completion.
    pub(crate) fn waits_since(&mut self, now: Instant) -> Option<Instant> {
        let is_waiting = self.records.len() > 0;
        is_waiting.then(|| *self.waits_since.get_or_insert(now))
    }

    /// Records an event of the completion queue. Returns `true` if a caller has polled the queue
    /// since the last one.
    pub(crate) fn note_event(&mut self) -> bool {
        self.silent = 0;
        std::mem::take(&mut self.is_polled_by_caller)
    }

    /// Returns `true` if completions arrive without events.
    pub(crate) fn lost_events(&self) -> bool {
        self.silent > MAX_SILENT
    }

    /// Destroys the queue pair. No device accesses memory for it afterwards.
    ///
    /// # Errors
    /// The driver fails. The library then leaks the queue pair and the memory that it holds, which
    /// never counts as released.
    pub(crate) fn destroy(self) -> Result<()> {
        let destroyed = self.qp.destroy();
        if destroyed.is_err() {
            std::mem::forget((self.tokens, self.releasing));
        }
        destroyed
    }

    /// Retires the completions that have arrived. A later one causes an event.
    pub(crate) fn poll(&mut self, report: impl FnMut(Event)) -> std::result::Result<(), Fault> {
        // Armed before it is polled, so that a later completion causes an event.
        self.cq.arm(false)?;
        // What an earlier poll has left causes no event.
        let was_behind = std::mem::take(&mut self.is_behind);
        let polled = self.retire_all(report)?;
        self.silent += u32::from(polled > 0 && !was_behind);
        Ok(())
    }

    /// Retires the completions that have arrived, for a caller that polls again if it needs more.
    /// The queue is not armed: what is left was announced by an event, or will be.
    pub(crate) fn poll_for_caller(
        &mut self,
        report: impl FnMut(Event),
    ) -> std::result::Result<(), Fault> {
        self.is_polled_by_caller = true;
        self.retire_all(report).map(drop)
    }

    /// Retires completions, and returns their number.
    fn retire_all(&mut self, mut report: impl FnMut(Event)) -> std::result::Result<usize, Fault> {
        let mut polled = 0;
        loop {
            let Some(qp) = self.qp.get() else {
                return Ok(polled);
            };
            let completions = self.cq.poll()?;
            if completions.is_empty() {
                return Ok(polled);
            }
            self.waits_since = self.now;
            for completion in completions {
                polled += 1;
                let retired = qp.retire(completion).map_err(Error::from)?;
                if let Err(error) = retired.check() {
                    return Err(fault(&mut self.records, &retired, &error));
                }
                if let Some(buf) = retire(&mut self.records, retired, &mut report)? {
                    qp.post_recv(wr::recv(buf)).map_err(Error::from)?;
                }
            }
            if polled >= self.max_polled {
                self.is_behind = true;
                return Ok(polled);
            }
        }
    }

    /// Stops the queue pair before it is destroyed, and returns what it has done until then.
    ///
    /// On InfiniBand and RoCE the device acknowledges a message when it arrives, and the peer takes
    /// its job as ended. So the device must receive no more, and each message that has arrived must
    /// be counted. Over iWARP this side acknowledges what it has counted, so the rest is repeated.
    pub(crate) fn drain(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let Self {
            qp, cq, records, ..
        } = self;
        let Some(qp) = qp.get().filter(|_| !records.need_acks()) else {
            return events;
        };
        // A driver that does not flush, and a device that has failed, receive no more either.
        let _ = qp.drain(&mut [cq], MAX_DRAIN, |each| {
            let Ok(retired) = each else { return };
            if retired.check().is_ok() {
                // What is no notice counts as nothing.
                let _ = retire(records, retired, |event| events.push(event));
            }
        });
        events
    }

    /// Returns the number of messages that have arrived, if the peer must be told.
    pub(crate) fn take_received(&mut self) -> Option<u64> {
        self.records.take_received()
    }

    /// Records the number of messages that have arrived at the peer.
    pub(crate) fn acknowledge(&mut self, count: u64, report: impl FnMut(Event)) -> Result<()> {
        self.waits_since = self.now;
        self.records.acknowledge(count, report)
    }

    /// Posts a message that shows that the path works.
    pub(crate) fn post_probe(&mut self) -> Result<()> {
        let number = self.record(None, None, false);
        let bytes = Notice::PROBE.to_bytes();
        let probe = wr::send(wr::Inline(&bytes)).tag(number);
        let qp = self.qp.get().ok_or_else(not_connected)?;
        Ok(qp.post_send(probe)?)
    }

    /// Posts requests of the waiting jobs while the queue pair has free slots, with one doorbell
    /// for up to [`BATCH`] of them. A few requests wait while the device has enough others, so that
    /// they share a doorbell.
    pub(crate) fn post(
        &mut self,
        waiting: &mut VecDeque<Waiting>,
        keys: &Keys<'_>,
    ) -> std::result::Result<(), Fault> {
        let requests = waiting.iter().map(|job| job.spans.len().max(1));
        let is_short = requests.take(UNSIGNALED).sum::<usize>() < UNSIGNALED;
        // One of so many requests in flight is signaled.
        if is_short && self.records.posted() >= UNSIGNALED {
            return Ok(());
        }
        loop {
            let left = self.max_in_flight.saturating_sub(self.records.posted());
            let qp = self.qp.get().ok_or_else(not_connected)?;
            let count = qp.send_slots_free().min(left).min(BATCH);
            self.batch.clear();
            while self.batch.len() < count {
                let Some(request) = self.next_request(waiting, keys)? else {
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
            self.qp.get().ok_or_else(not_connected)?.batch(add)?;
        }
    }

    /// Removes the next request from the waiting jobs. It counts as in flight from then on, also if
    /// posting it fails.
    fn next_request(
        &mut self,
        waiting: &mut VecDeque<Waiting>,
        keys: &Keys<'_>,
    ) -> std::result::Result<Option<Request>, Fault> {
        let Some(front) = waiting.front_mut() else {
            return Ok(None);
        };
        if front.spans.is_empty() && !self.records.can_send() {
            return Ok(None);
        }
        front.is_started = true;
        let job = Arc::clone(&front.job);
        let span = front.spans.pop_front();
        let has_notice = job.transfer.notices && !front.is_cut;
        let is_write = job.transfer.operation == Operation::Write;
        let ends_with_message = has_notice || (is_write && self.records.need_acks());
        let is_last = front.spans.is_empty() && (span.is_none() || !ends_with_message);
        if is_last {
            waiting.pop_front();
        }
        let number = self.record(Some(&job), span, is_last);
        let content = match span {
            None if has_notice => Content::Notice(job.notice().to_bytes()),
            None => Content::Notice(Notice::PROBE.to_bytes()),
            Some(span) => {
                let blame = |error: Error| Fault {
                    failure: Failure::from(&error),
                    job: Some(Arc::clone(&job)),
                };
                let token = self.token(&job.transfer.region, span)?;
                let token = token.ok_or_else(out_of_bounds).map_err(blame)?;
                let remote = keys.get(&job.transfer.remote);
                if remote.is_some_and(|key| key.len == 0) {
                    return Err(no_key("the peer's device").into());
                }
                let remote = remote
                    .and_then(|remote| {
                        let end = span.remote.checked_add(span.len as u64)?;
                        remote.slice(span.remote..end)
                    })
                    .ok_or_else(out_of_bounds)
                    .map_err(blame)?;
                match job.transfer.operation {
                    Operation::Write => Content::Write(token, remote),
                    Operation::Read => Content::Read(token, remote),
                }
            }
        };
        let max = UNSIGNALED.min(self.max_in_flight / 2);
        // Over iWARP, requests complete in another order.
        let is_signaled = is_last || self.unsignaled + 1 >= max || self.records.need_acks();
        self.unsignaled = if is_signaled { 0 } else { self.unsignaled + 1 };
        Ok(Some(Request {
            number,
            content,
            is_signaled,
        }))
    }

    /// Records a request as in flight, and returns its number.
    fn record(&mut self, job: Option<&Arc<Job>>, span: Option<Span>, is_last: bool) -> u64 {
        if self.records.len() == 0 {
            self.waits_since = self.now;
        }
        self.records.add(job, span, is_last)
    }

    /// Returns the token for a range of a region. The queue pair holds the part that contains it
    /// until the region is dropped. Returns `None` if the range is out of bounds.
    ///
    /// # Errors
    /// The queue pair cannot hold the memory, and another one may.
    fn token(&mut self, region: &Arc<RegionMemory>, span: Span) -> Result<Option<Token>> {
        let part = region.part(span.local);
        let held = match self.tokens.entry((region.id, part)) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(vacant) => {
                let memory = region
                    .memory(self.device, self.generation)
                    .ok_or_else(|| no_key("the device"))?;
                let qp = self.qp.get().ok_or_else(not_connected)?;
                let token = memory.hold(part, qp)?;
                let uses = region.uses();
                uses.add();
                vacant.insert(HeldRegion {
                    region: Arc::downgrade(region),
                    token,
                    uses,
                })
            }
        };
        let start = span.local - part * PART;
        Ok(held.token.slice(start..start + span.len))
    }

    /// Releases the regions that were dropped, except those that requests in flight may use.
    /// `releases` is their number in the whole engine.
    pub(crate) fn release(&mut self, releases: u64) {
        if self.releases != releases {
            self.releases = releases;
            let dropped = |held: &HeldRegion| held.region.strong_count() == 0;
            let ids: Vec<(u64, usize)> = self
                .tokens
                .iter()
                .filter(|(_, held)| dropped(held))
                .map(|(&id, _)| id)
                .collect();
            let tokens = ids.iter().filter_map(|id| self.tokens.remove(id));
            self.releasing.extend(tokens);
        }
        if let Some(qp) = self.qp.get() {
            self.releasing
                .retain(|held| !held.token.release(qp).unwrap_or(false));
        }
    }

    /// Returns the jobs whose requests are in flight. The queue pair is destroyed, or will be.
    pub(crate) fn take_unfinished(&mut self, waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
        self.records.take_unfinished(waiting)
    }
}

/// Reports a successful completion. Returns the buffer of a message.
fn retire(
    records: &mut Records,
    retired: Retired,
    mut report: impl FnMut(Event),
) -> Result<Option<Buf>> {
    if retired.direction() == Direction::Send {
        records.complete(retired.tag(), report);
        return Ok(None);
    }
    let buf = retired.into_buf().ok_or_else(unexpected_message)?;
    let notice = Notice::from_bytes(&buf).ok_or_else(unexpected_message)?;
    records.note_received();
    report(Event::Arrived(notice));
    Ok(Some(buf))
}

/// Returns the failure of a request, with its job if its memory is the reason.
fn fault(records: &mut Records, retired: &Retired, error: &Error) -> Fault {
    let is_of_memory = matches!(
        retired.status(),
        WcStatus::REM_ACCESS_ERR
            | WcStatus::REM_INV_REQ_ERR
            | WcStatus::LOC_PROT_ERR
            | WcStatus::LOC_LEN_ERR
    );
    let is_send = retired.direction() == Direction::Send;
    let failed = records.get(retired.tag());
    let failed = failed.filter(|record| is_send && record.span.is_some());
    Fault {
        failure: Failure::from(error),
        job: failed
            .filter(|_| is_of_memory)
            .and_then(|record| record.job.clone()),
    }
}

impl Request {
    fn add_to(&self, batch: &mut Batch<'_, Rc>) -> Result<()> {
        // The requests have different types.
        macro_rules! send {
            ($request:expr) => {{
                let request = $request.tag(self.number).signaled(self.is_signaled);
                batch.send(request)?;
            }};
        }
        match &self.content {
            Content::Write(Token::Shared(held), remote) => send!(wr::write(*held, *remote)),
            Content::Write(Token::Frozen(held), remote) => send!(wr::write(*held, *remote)),
            Content::Write(Token::Device(held), remote) => send!(wr::write(*held, *remote)),
            Content::Read(Token::Shared(held), remote) => send!(wr::read(*held, *remote)),
            Content::Read(Token::Device(held), remote) => send!(wr::read(*held, *remote)),
            Content::Read(Token::Frozen(_), _) => return Err(read_only()),
            Content::Notice(bytes) => send!(wr::send(wr::Inline(bytes))),
        }
        Ok(())
    }
}

/// Posts all receives of a new queue pair.
fn post_receives(qp: &mut QueuePair<Rc>, receives: &Pool) -> Result<()> {
    while let Some(buf) = receives.take() {
        qp.post_recv(wr::recv(buf))?;
    }
    Ok(())
}

fn not_connected() -> Error {
    Error::new(
        ErrorKind::WrongState,
        "transfer",
        "the path is not connected",
    )
}

/// The region was created while the device was not open after a fatal error. The queue pair is one
/// of before, so it has failed.
fn no_key(device: &str) -> Error {
    let what = format!("{device} had failed when the region was created");
    Error::new(ErrorKind::Disconnected, "transfer", what)
}

fn read_only() -> Error {
    Error::new(ErrorKind::Unsupported, "read", "the region is read-only")
}

fn unexpected_message() -> Error {
    let what = "the peer has sent a message that is no notice";
    Error::new(ErrorKind::Malformed, "transfer", what)
}
