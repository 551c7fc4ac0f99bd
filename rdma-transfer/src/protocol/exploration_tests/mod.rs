//! All states of two sides with one path, in every order of their steps.
//!
//! The protocol is the code of `path`, `records` and `arrivals`. The steps here are those of
//! `runtime`, in smaller pieces: the thread of a device can take any time between the beginning and
//! the end of a step. One side writes two jobs of a transfer with an immediate. The network can
//! deliver a packet at any time, also after its sender has destroyed its queue pair, as long as the
//! queue pair of the receiver exists.

mod side;

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use self::side::{Busy, Kind, Outcome, Packet, Queue, RECEIVES, Side, fault, jobs};
use crate::options::EngineOptions;
use crate::protocol::message::{Address, Message};
use crate::protocol::path::{Fate, Step};

#[derive(Clone, Copy, Debug)]
enum Action {
    /// The thread of the device begins a step, and ends it.
    Begin,
    End,
    /// The path fails, or the queue pair that is being created.
    Fail,
    /// The side handles a control message.
    Handle,
    /// The side posts a request, and processes a completion and a received message.
    Post,
    Complete,
    Receive,
    /// A packet of the peer arrives.
    Arrive,
}

const ACTIONS: [Action; 8] = [
    Action::Begin,
    Action::End,
    Action::Fail,
    Action::Handle,
    Action::Post,
    Action::Complete,
    Action::Receive,
    Action::Arrive,
];

#[derive(Clone, Debug)]
struct State {
    kind: Kind,
    sides: [Side; 2],
    /// Packets to each side that the network has, by their epoch.
    network: [BTreeMap<u64, VecDeque<Packet>>; 2],
    /// Number of failures that can still happen.
    faults: u32,
    now: Instant,
}

impl State {
    fn new(kind: Kind, faults: u32) -> Self {
        let now = Instant::now();
        let options = EngineOptions::new().min_backoff(Duration::ZERO);
        let side = |jobs| Side::new(&options, jobs, now);
        Self {
            kind,
            sides: [side(jobs().collect()), side(VecDeque::new())],
            network: [BTreeMap::new(), BTreeMap::new()],
            faults,
            now,
        }
    }

    fn send(&mut self, from: usize, message: Message) {
        self.sides[1 - from].control.push_back(message);
    }

    /// Performs an action of a side. Returns `false` if it is impossible.
    fn act(&mut self, side: usize, action: Action) -> Outcome {
        match action {
            Action::Begin => Ok(self.begin(side)?),
            Action::End => Ok(self.end_step(side)),
            Action::Fail => Ok(self.fail(side)),
            Action::Handle => match self.sides[side].control.pop_front() {
                Some(message) => self.handle(side, &message).map(|()| true),
                None => Ok(false),
            },
            Action::Post => {
                let Some((_, packet)) = self.sides[side].next_request() else {
                    return Ok(false);
                };
                let epoch = self.sides[side].path.epoch;
                let network = self.network[1 - side].entry(epoch).or_default();
                network.push_back(packet);
                Ok(true)
            }
            Action::Complete => self.complete(side),
            Action::Receive => self.receive(side),
            Action::Arrive => self.arrive(side),
        }
    }

    fn begin(&mut self, number: usize) -> Outcome {
        let (now, kind) = (self.now, self.kind);
        let side = &mut self.sides[number];
        if side.busy.is_some() {
            return Ok(false);
        }
        match side.path.next_step(now, false) {
            Step::Wait => return Ok(false),
            Step::Close => self.close(number),
            Step::Create => side.busy = Some(Busy::Creating),
            Step::Connect(mut queue, address) => {
                if let Address::Cm { receives, .. } = address {
                    queue.records.set_limit(receives);
                }
                side.busy = Some(Busy::Connecting(queue));
            }
            Step::Destroy(mut queue, mut waiting) => {
                if kind == Kind::Roce {
                    for message in std::mem::take(&mut queue.received) {
                        side.receive(message)?;
                    }
                }
                let unsettled = queue.records.take_unfinished(&mut waiting);
                side.path.set_unsettled(unsettled);
                for job in waiting {
                    side.assign(job);
                }
                // Nothing arrives after that, or it is not acknowledged.
                queue.is_stopped = kind == Kind::Roce;
                side.busy = Some(Busy::Destroying(queue));
            }
        }
        Ok(true)
    }

    fn end_step(&mut self, number: usize) -> bool {
        let address = Address::Cm {
            listener: None,
            secret: 0,
            receives: RECEIVES,
        };
        let kind = self.kind;
        let side = &mut self.sides[number];
        match side.busy.take() {
            None => return false,
            Some(Busy::Creating) => {
                let accepts = number == 0 && kind == Kind::Iwarp;
                let message = side.path.created(Queue::new(kind, accepts), address);
                self.send(number, message);
            }
            Some(Busy::Connecting(queue)) => {
                let message = side.path.connected(queue);
                self.send(number, message);
            }
            Some(Busy::Destroying(_)) => {
                // No packet of the epoch can arrive anymore.
                self.network[number].remove(&side.path.epoch);
                self.close(number);
            }
        }
        true
    }

    fn close(&mut self, number: usize) {
        let message = self.sides[number].path.closed(None, self.now);
        self.send(number, message);
        self.settle(number);
    }

    fn fail(&mut self, number: usize) -> bool {
        let side = &mut self.sides[number];
        if self.faults == 0 {
            return false;
        }
        match side.busy.take() {
            Some(Busy::Creating) => side.path.not_created(fault(), self.now),
            Some(Busy::Connecting(queue)) => side.path.not_connected(queue, &fault()),
            busy => {
                side.busy = busy;
                if side.busy.is_some() || side.path.queue().is_none() {
                    return false;
                }
                side.path.fail(&fault());
            }
        }
        self.faults -= 1;
        true
    }

    fn settle(&mut self, number: usize) {
        let side = &mut self.sides[number];
        let epoch = side.path.epoch;
        if let Some(mut known) = side.path.question() {
            known
                .jobs
                .retain(|&(transfer, job)| side.arrivals.has(transfer, job));
            known.regions.clear();
            self.send(
                number,
                Message::Settled {
                    path: 0,
                    epoch,
                    known,
                },
            );
        }
    }

    fn handle(&mut self, number: usize, message: &Message) -> Outcome<()> {
        let now = self.now;
        let side = &mut self.sides[number];
        let of = |error: ibverbs::Error| format!("side {number} refuses {message:?}: {error}");
        match message.clone() {
            Message::Up { epoch, address, .. } if epoch == side.path.epoch => {
                side.path.remote_up(address).map_err(of)?;
            }
            Message::Ready { epoch, .. } if epoch == side.path.epoch => {
                side.path.remote_ready().map_err(of)?;
            }
            Message::Down { epoch, unknown, .. } if epoch == side.path.epoch => {
                side.path.remote_down(unknown).map_err(of)?;
                self.settle(number);
            }
            Message::Settled { epoch, known, .. } if epoch == side.path.epoch => {
                for (waiting, fate) in side.path.settled(&known, now).map_err(of)? {
                    match fate {
                        Fate::Arrived => side.end(&waiting.job)?,
                        _ => side.assign(waiting),
                    }
                }
            }
            Message::Received { epoch, count, .. } if epoch == side.path.epoch => {
                if let Some(queue) = side.path.queue() {
                    let mut events = Vec::new();
                    let report = |event| events.push(event);
                    queue.records.acknowledge(count, report).map_err(of)?;
                    side.process(events, now)?;
                }
            }
            // Only this message can be late: it is sent while the path is open.
            Message::Received { epoch, .. } if epoch < side.path.epoch => {}
            message => return Err(format!("{message:?} in epoch {}", side.path.epoch)),
        }
        Ok(())
    }

    fn complete(&mut self, number: usize) -> Outcome {
        let side = &mut self.sides[number];
        let Some(queue) = side.path.queue() else {
            return Ok(false);
        };
        let Some(request) = queue.completed() else {
            return Ok(false);
        };
        queue.posted.pop_front();
        queue.arrived = queue.arrived.saturating_sub(1);
        let mut events = Vec::new();
        queue.records.complete(request, |event| events.push(event));
        side.process(events, self.now)?;
        Ok(true)
    }

    fn receive(&mut self, number: usize) -> Outcome {
        let side = &mut self.sides[number];
        let Some(queue) = side.path.queue() else {
            return Ok(false);
        };
        let Some(message) = queue.received.pop_front() else {
            return Ok(false);
        };
        queue.records.note_received();
        let count = queue.records.take_received();
        side.receive(message)?;
        let epoch = side.path.epoch;
        if let Some(count) = count {
            self.send(
                number,
                Message::Received {
                    path: 0,
                    epoch,
                    count,
                },
            );
        }
        Ok(true)
    }

    fn arrive(&mut self, number: usize) -> Outcome {
        let [a, b] = &mut self.sides;
        let (side, peer) = if number == 0 { (a, b) } else { (b, a) };
        let epoch = side.path.epoch;
        let Some(queue) = side.queue().filter(|queue| !queue.is_stopped) else {
            return Ok(false);
        };
        let Some(packet) = self.network[number]
            .get_mut(&epoch)
            .and_then(VecDeque::pop_front)
        else {
            return Ok(false);
        };
        match packet {
            Packet::Notice(job) => {
                if queue.is_iwarp && queue.received.len() >= RECEIVES as usize {
                    return Err("a message finds no receive".into());
                }
                queue.received.push_back(job);
            }
            Packet::Write(job) => {
                if side.counted > 0 {
                    return Err(format!("job {job} is written after it was counted"));
                }
                if peer.ended[job as usize] {
                    return Err(format!("job {job} is written after it has ended"));
                }
                side.written[job as usize] = true;
            }
        }
        // The sender may have destroyed its queue pair.
        if peer.path.epoch == epoch
            && let Some(queue) = peer.queue()
        {
            queue.arrived += usize::from(!queue.is_iwarp);
        }
        Ok(true)
    }

    fn check(&self) -> Outcome<()> {
        let [sender, receiver] = &self.sides;
        if receiver.counted > 1 {
            return Err("the transfer is counted twice".into());
        }
        for (ended, written) in sender.ended.iter().zip(receiver.written) {
            if *ended && !written {
                return Err("a job has ended before its bytes have arrived".into());
            }
        }
        Ok(())
    }

    /// Checks that everything arrives when nothing fails anymore.
    fn check_progress(&self) -> Outcome<()> {
        let mut state = self.clone();
        state.faults = 0;
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for side in [0, 1] {
                for action in ACTIONS {
                    while state.act(side, action)? {
                        has_changed = true;
                    }
                }
            }
            // A request whose packet was lost fails.
            for side in &mut state.sides {
                let is_lost = |queue: &mut Queue| queue.records.len() > 0;
                if !has_changed && side.path.queue().is_some_and(is_lost) {
                    side.path.fail(&fault());
                    has_changed = true;
                }
            }
        }
        state.check()?;
        let is_ready = state.sides.iter().all(|side| side.path.is_ready());
        if !is_ready || state.sides[0].ended.contains(&false) || state.sides[1].counted != 1 {
            return Err(format!("stuck: {state:#?}"));
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.faults, &self.network).hash(&mut hasher);
        self.sides.iter().for_each(|side| side.hash(&mut hasher));
        hasher.finish()
    }
}

/// Visits every state with at most this number of failures. Returns the number of states, which is
/// less than `limit`.
fn explore(kind: Kind, faults: u32, limit: usize) -> usize {
    let first = State::new(kind, faults);
    let mut reached = HashMap::from([(first.fingerprint(), None)]);
    let mut frontier = VecDeque::from([first]);
    while let Some(state) = frontier.pop_front() {
        let from = state.fingerprint();
        let check = |outcome: Outcome, last: Option<(usize, Action)>| {
            outcome.unwrap_or_else(|violation| {
                let mut steps = Vec::from_iter(last);
                let mut at = from;
                while let Some((previous, step)) = reached[&at] {
                    steps.push(step);
                    at = previous;
                }
                steps.reverse();
                panic!("{violation}, {kind:?}, after {steps:?}");
            })
        };
        check(state.check_progress().map(|()| true), None);
        let mut found = Vec::new();
        for side in [0, 1] {
            for action in ACTIONS {
                let mut next = state.clone();
                let outcome = next.act(side, action);
                let outcome = outcome.and_then(|has_changed| next.check().map(|()| has_changed));
                if check(outcome, Some((side, action))) {
                    found.push((next, side, action));
                }
            }
        }
        for (next, side, action) in found {
            if let Entry::Vacant(entry) = reached.entry(next.fingerprint()) {
                entry.insert(Some((from, (side, action))));
                frontier.push_back(next);
            }
        }
        assert!(reached.len() < limit, "more states than expected");
    }
    println!(
        "{kind:?}, at most {faults} failures: {} states",
        reached.len()
    );
    reached.len()
}

#[test]
fn no_order_of_steps_repeats_or_loses_a_job() {
    for kind in [Kind::Roce, Kind::Iwarp] {
        assert!(explore(kind, 1, 1_000_000) > 1000);
    }
}

#[test]
#[ignore = "takes minutes with optimization: see CONTRIBUTING.md"]
fn no_order_of_steps_repeats_or_loses_a_job_after_two_failures() {
    for kind in [Kind::Roce, Kind::Iwarp] {
        explore(kind, 2, 100_000_000);
    }
}
