//! The state of the connection to a peer: its paths, jobs and messages. No function waits.

use std::collections::{HashMap, VecDeque};

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ibverbs::{ErrorKind, RemoteMemory, Result};

use crate::device::queue::{Fault, Queue};
use crate::device::{Event, Job, Path, PeerTransfer, Waiting};
use crate::failure::Failure;
use crate::protocol::arrivals::{Arrivals, Notice};
use crate::protocol::control::Control;
use crate::protocol::deadlines::Deadlines;
use crate::protocol::immediates::{Immediates, PeerImmediates};
use crate::protocol::message::{Address, Message};
use crate::protocol::remote_region::RemoteRegion;
use crate::protocol::work::Keys;
use crate::runtime::shared::Core;

pub(crate) struct State {
    pub(crate) control: Box<dyn Control>,
    /// The random number of this side.
    pub(crate) random: u64,
    /// This side accepts the connections of the connection manager.
    pub(crate) accepts: bool,
    /// Number of devices of the peer.
    pub(crate) remote_devices: usize,
    /// Empty until the peer has said how many devices it has.
    pub(crate) paths: Vec<Path>,
    /// Jobs that no path has.
    pub(crate) pending: VecDeque<Waiting>,
    pub(crate) arrivals: Arrivals,
    pub(crate) immediates: PeerImmediates,
    /// Keys of devices of the peer that were opened again, by region and device.
    pub(crate) replaced: HashMap<(u64, usize), RemoteMemory>,
    /// Regions that the peer offers, by their name.
    pub(crate) offers: HashMap<String, RemoteRegion>,
    pub(crate) next_transfer: u64,
    /// Number of jobs with a notice that have not ended.
    pub(crate) jobs_with_notice: usize,
    pub(crate) next_path: usize,
    pub(crate) deadlines: Deadlines<PeerTransfer>,
    /// Number of canceled transfers of the engine when the jobs were last searched.
    cancels: u64,
    /// Time at which the peer has waited for all of its messages.
    pub(crate) receives_at: Option<Instant>,
    /// The time of the last step in an engine without threads.
    pub(crate) now: Option<Instant>,
    /// The reason why the peer was disconnected.
    pub(crate) ended: Option<Failure>,
}

impl State {
    pub(crate) fn new(control: Box<dyn Control>, immediates: &Arc<Immediates>) -> Self {
        Self {
            control,
            random: getrandom::u64().expect("random numbers of the system"),
            accepts: false,
            remote_devices: 0,
            paths: Vec::new(),
            pending: VecDeque::new(),
            arrivals: Arrivals::default(),
            immediates: PeerImmediates::new(immediates),
            replaced: HashMap::new(),
            offers: HashMap::new(),
            next_transfer: 0,
            jobs_with_notice: 0,
            next_path: 0,
            deadlines: Deadlines::new(),
            cancels: 0,
            receives_at: None,
            now: None,
            ended: None,
        }
    }

    /// Returns `true` if no queue pair exists, and none will be created by a step in progress.
    pub(crate) fn is_closed(&self) -> bool {
        self.paths.iter().all(Path::is_closed)
    }

    /// Returns the paths that are ready, only those of a device if one of them is.
    pub(crate) fn eligible(&self, device: Option<usize>) -> Vec<usize> {
        let ready = || self.paths.iter().filter(|path| path.is_ready());
        let is_preferred = |path: &&Path| Some(path.device) == device;
        let mut paths: Vec<usize> = ready()
            .filter(is_preferred)
            .map(|path| path.number)
            .collect();
        if paths.is_empty() {
            paths = ready().map(|path| path.number).collect();
        }
        paths
    }

    // Jobs.

    /// Adds a job to a path, or to those that wait for one.
    pub(crate) fn add(&mut self, path: Option<usize>, waiting: Waiting) {
        if self.ended.is_some() {
            return self.end_job(&waiting.job);
        }
        let jobs = path.and_then(|path| self.paths[path].waiting());
        jobs.unwrap_or(&mut self.pending).push_back(waiting);
    }

    /// Gives a job to the path with the fewest requests, unless it is over.
    pub(crate) fn assign(&mut self, waiting: Waiting) {
        let transfer = &waiting.job.transfer;
        if transfer.is_over() {
            return self.end_job(&waiting.job);
        }
        let mut paths = self.eligible(transfer.device);
        paths.sort_by_key(|&path| {
            let path = &mut self.paths[path];
            let jobs = path.waiting().into_iter().flatten();
            let waiting: usize = jobs.map(|job| job.spans.len()).sum();
            waiting + path.queue().map_or(0, |queue| queue.in_flight())
        });
        self.add(paths.first().copied(), waiting);
    }

    /// Gives the jobs without a path to the paths that are ready.
    fn assign_pending(&mut self) {
        for waiting in std::mem::take(&mut self.pending) {
            self.assign(waiting);
        }
    }

    pub(crate) fn end_job(&mut self, job: &Job) {
        let transfer = &job.transfer;
        let failure = transfer.failure.get().or(self.ended.as_ref());
        transfer.progress.end_job(failure);
        let is_last = transfer.unfinished.fetch_sub(1, Ordering::Relaxed) == 1;
        self.jobs_with_notice -= usize::from(transfer.notices);
        // Not before the last job: until then, the peer answers which ones have arrived.
        if is_last && transfer.notices && transfer.is_over() && self.ended.is_none() {
            self.send(&Message::Abandoned {
                transfer: transfer.number,
            });
        }
    }

    /// Cancels transfers whose deadline has passed, and removes the jobs of canceled transfers.
    pub(crate) fn tick(&mut self, core: &Core, now: Instant) {
        if core.options.manual {
            self.now = Some(now);
        }
        while let Some(transfer) = self.deadlines.take_passed(now) {
            let what = "the deadline has passed";
            let reason = Failure::new(ErrorKind::TimedOut, what);
            transfer.progress.cancel(&reason);
        }
        let cancels = core.cancels.load(Ordering::Acquire);
        if self.cancels != cancels {
            self.cancels = cancels;
            self.remove_over();
        }
        self.end_unconfirmed(now);
    }

    /// Ends the jobs that are over and on paths that the peer has not closed in time.
    fn end_unconfirmed(&mut self, now: Instant) {
        let mut over = Vec::new();
        for path in &mut self.paths {
            over.extend(path.take_unconfirmed(now));
        }
        for waiting in over {
            waiting.job.transfer.progress.set_unconfirmed();
            self.end_job(&waiting.job);
        }
    }

    /// Ends the jobs that are over and not started, and shortens those that are started.
    fn remove_over(&mut self) {
        let mut over = Vec::new();
        let queues = self.paths.iter_mut().filter_map(Path::waiting);
        for queue in queues.chain([&mut self.pending]) {
            for mut waiting in std::mem::take(queue) {
                if !waiting.job.transfer.is_over() {
                    queue.push_back(waiting);
                } else if waiting.is_started {
                    waiting.cut();
                    queue.push_back(waiting);
                } else {
                    over.push(waiting);
                }
            }
        }
        for waiting in over {
            self.end_job(&waiting.job);
        }
    }

    /// Disconnects the peer, and reports that to it.
    pub(crate) fn disconnect(&mut self, reason: &Failure) {
        if self.ended.is_none() {
            self.end(reason);
            self.send(&Message::Bye);
        }
    }

    /// Ends the connection to the peer. The queue pairs are destroyed by the next steps.
    pub(crate) fn end(&mut self, reason: &Failure) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason.clone());
        for waiting in std::mem::take(&mut self.pending) {
            self.end_job(&waiting.job);
        }
        (0..self.paths.len()).for_each(|number| self.end_unsettled(number));
    }

    /// Ends the jobs of a closed path, which has no queue pair anymore.
    fn end_unsettled(&mut self, number: usize) {
        for waiting in self.paths[number].take_unsettled() {
            self.end_job(&waiting.job);
        }
    }

    // Paths.

    /// Posts waiting requests of a path.
    pub(crate) fn post(&mut self, number: usize) {
        let Self {
            paths,
            replaced,
            remote_devices,
            ..
        } = self;
        // Only a path that is ready has jobs.
        let Some((queue, waiting)) = paths[number].usable() else {
            return;
        };
        let keys = Keys {
            replaced,
            device: number % *remote_devices,
        };
        let posted = queue.post(waiting, &keys);
        self.check(number, posted);
    }

    pub(crate) fn post_all(&mut self) {
        for number in 0..self.paths.len() {
            self.post(number);
        }
    }

    /// Notes a failure of a path.
    fn check(&mut self, number: usize, result: std::result::Result<(), Fault>) {
        let Err(Fault { failure, job }) = result else {
            return;
        };
        self.paths[number].fail(&failure);
        if let Some(job) = job {
            // The first failure is kept.
            let _ = job.transfer.failure.set(failure);
            self.remove_over();
        }
    }

    /// Processes completions and timers of a path.
    pub(crate) fn advance(&mut self, core: &Core, number: usize, now: Instant) {
        let Some(path) = self.paths.get_mut(number) else {
            return;
        };
        let nic = &core.nics[path.device];
        let Some(queue) = path.queue() else {
            return;
        };
        let mut events = Vec::new();
        queue.now = self.now.map(|_| now);
        let polled = queue.poll(|event| events.push(event));
        if queue.is_behind {
            nic.waker.wake();
        }
        let waits = queue.waits_since(now);
        let has_stalled =
            waits.is_some_and(|since| now.saturating_duration_since(since) > core.options.stall);
        let has_lost_events =
            queue.lost_events() && !core.options.manual && !core.options.busy_poll;
        queue.release(core.owner.releases.count.load(Ordering::Acquire));
        let down = nic.down(queue.generation);
        if let Some(reason) = down {
            path.fail(&reason);
        }
        if has_lost_events {
            let what = "completion events were lost";
            path.fail(&Failure::new(ErrorKind::TimedOut, what));
        }
        if has_stalled {
            let what = format!("no request has completed for {:?}", core.options.stall);
            path.fail(&Failure::new(ErrorKind::TimedOut, &what));
        }
        self.process(core, number, events);
        self.check(number, polled);
        self.report_received(number);
        self.probe(number);
        self.post(number);
    }

    /// Processes completions of all paths that are ready, for a caller that waits.
    pub(crate) fn poll_for_caller(&mut self, core: &Core) {
        for number in 0..self.paths.len() {
            let path = &mut self.paths[number];
            let (device, is_ready) = (path.device, path.is_ready());
            let Some((queue, _)) = path.usable().filter(|_| is_ready) else {
                continue;
            };
            let mut events = Vec::new();
            let polled = queue.poll_for_caller(|event| events.push(event));
            if polled.is_err() {
                core.nics[device].waker.wake();
            }
            self.process(core, number, events);
            self.check(number, polled);
            self.report_received(number);
            self.post(number);
        }
    }

    /// Posts the probe when both sides are connected.
    fn probe(&mut self, number: usize) {
        let queue = self.paths[number].must_probe();
        let Some(queue) = queue.filter(|queue| !queue.must_wait()) else {
            return;
        };
        let posted = queue.post_probe();
        self.paths[number].probe_posted();
        self.check(number, posted.map_err(Fault::from));
    }

    pub(crate) fn process(&mut self, core: &Core, number: usize, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Done(job, bytes) => job.transfer.progress.add_bytes(bytes as u64),
                Event::Ended(job) => self.end_job(&job),
                Event::Probed => {
                    let now = self.now.unwrap_or_else(Instant::now);
                    let path = &mut self.paths[number];
                    if path.probed(now) {
                        core.nics[path.device].works();
                        self.assign_pending();
                        self.post_all();
                    }
                }
                Event::Arrived(Notice::PROBE) => {}
                Event::Arrived(notice) => {
                    let counted = match self.arrivals.add(&notice) {
                        Ok(true) => self.immediates.add(notice.value),
                        Ok(false) => Ok(()),
                        Err(error) => Err(error),
                    };
                    if let Err(error) = counted {
                        self.disconnect(&Failure::from(&error));
                    }
                }
            }
        }
    }

    pub(crate) fn created(
        &mut self,
        number: usize,
        created: Result<(Queue, Address)>,
        now: Instant,
    ) {
        let path = &mut self.paths[number];
        match created {
            Ok((queue, address)) => {
                let message = path.created(queue, address);
                self.send(&message);
            }
            Err(error) => path.not_created(Failure::from(&error), now),
        }
    }

    /// Records the result of a step to connect a path.
    pub(crate) fn connected(
        &mut self,
        number: usize,
        queue: Box<Queue>,
        result: Result<bool>,
        now: Instant,
    ) {
        let path = &mut self.paths[number];
        match result {
            Ok(false) => path.connecting(queue, now),
            Ok(true) => {
                let message = path.connected(queue);
                self.send(&message);
            }
            Err(error) => path.not_connected(queue, &Failure::from(&error)),
        }
    }

    /// Records the result of stopping a queue pair before it is destroyed. The jobs that wait for
    /// it continue on other paths.
    pub(crate) fn drained(
        &mut self,
        core: &Core,
        number: usize,
        queue: &mut Queue,
        events: Vec<Event>,
        mut waiting: VecDeque<Waiting>,
    ) {
        self.process(core, number, events);
        let unsettled = queue.take_unfinished(&mut waiting);
        self.paths[number].set_unsettled(unsettled);
        for waiting in waiting {
            self.assign(waiting);
        }
        self.post_all();
    }

    /// Records that the queue pair of a path does not exist anymore, and reports it to the peer.
    pub(crate) fn closed(&mut self, core: &Core, number: usize, now: Instant) {
        let message = self.paths[number].closed(self.ended.as_ref(), now);
        if self.ended.is_some() {
            return self.end_unsettled(number);
        }
        self.send(&message);
        self.settle(core, number);
    }
}
