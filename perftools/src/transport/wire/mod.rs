//! Connected queue pairs as the engines' [`Wire`]: one thread's share of a test.
//!
//! Messages go round the queue pairs by number. `post` knows the verbs, `memory` what messages are made of, `line`
//! the services.

mod line;
mod memory;
mod post;

use std::time::{Duration, Instant};

use ibverbs::{
    Completion, CompletionChannel, CompletionQueue, Direction, ProtectionDomain, RemoteMemory, Retired, Transport,
    WcOpcode, wr,
};

pub use line::Line;
use line::{Lane, with_qp};
use memory::{Content, Memory};
use post::{Job, low, widened};

use super::device::device_error;
use super::payload;
use crate::config::Shape;
use crate::engine::{Exposed, Progress, Wire};
use crate::error::{Error, Result};
use crate::plan::{Pattern, Verb};
use crate::tuning::MAX_POST_LIST;

/// How often the connection manager is asked whether the connection stands.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Connected queue pairs with one completion queue.
pub struct VerbsWire {
    cq: CompletionQueue,
    channel: CompletionChannel,
    traffic: Traffic,
    checked: Instant,
}

/// What goes over them.
struct Traffic {
    lanes: Vec<Lane>,
    memory: Memory,
    remote: Option<RemoteMemory>,
    /// Whether numbers travel with messages and credits, as some may be lost.
    numbered: bool,
    /// The number after that of the peer's latest message.
    reached: u64,
    acked: u64,
}

impl std::fmt::Debug for VerbsWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsWire").field("lanes", &self.traffic.lanes).finish_non_exhaustive()
    }
}

impl VerbsWire {
    /// Makes the memory of `shape` and joins it with connected queue pairs.
    ///
    /// # Errors
    /// The memory cannot be registered (the text says why, often the memlock limit).
    pub fn new(
        lines: Vec<Line>,
        pd: &ProtectionDomain,
        cq: CompletionQueue,
        channel: CompletionChannel,
        shape: &Shape,
    ) -> Result<Self> {
        let mut lanes: Vec<Lane> = lines.into_iter().map(Lane::new).collect();
        let memory = Memory::new(pd, *shape, &mut lanes)?;
        let numbered = !shape.is_reliable();
        let traffic = Traffic { lanes, memory, remote: None, numbered, reached: 0, acked: 0 };
        Ok(Self { cq, channel, traffic, checked: Instant::now() })
    }
}

impl Traffic {
    fn shape(&self) -> &Shape {
        &self.memory.shape
    }

    /// Posts as many receives on a lane.
    fn receives(&mut self, lane: usize, count: u32) -> Result<()> {
        let lane = &mut self.lanes[lane];
        let content = &mut self.memory.content;
        let mut left = count;
        while left > 0 {
            let now = left.min(MAX_POST_LIST);
            left -= now;
            with_qp!(&mut lane.line, qp => receive(qp, now, lane.sink, content)).map_err(device_error)?;
        }
        Ok(())
    }
}

fn receive<T: Transport>(
    qp: &mut ibverbs::QueuePair<T>,
    count: u32,
    sink: Option<ibverbs::Held<ibverbs::Sink>>,
    content: &mut Content,
) -> ibverbs::Result<()> {
    qp.recv_batch(|batch| {
        for _ in 0..count {
            match (&mut *content, sink) {
                (Content::Distinct { idle, .. }, _) if idle.is_empty() => batch.recv(wr::recv(wr::Empty))?,
                (Content::Distinct { idle, .. }, _) => {
                    if let Some(buf) = idle.pop() {
                        batch.recv(wr::recv(buf))?;
                    }
                }
                (_, Some(sink)) => batch.recv(wr::recv(sink))?,
                (_, None) => batch.recv(wr::recv(wr::Empty))?,
            }
        }
        Ok(())
    })
}

impl Traffic {
    #[inline]
    fn take(&mut self, completion: Completion<'_>, progress: &mut Progress) -> Result<()> {
        let queue = completion.queue();
        let Some(lane) = self.lanes.iter().position(|lane| lane.id == queue) else { return Ok(()) };
        // One that matches no request in flight is stale: it says nothing.
        let retired = with_qp!(&mut self.lanes[lane].line, qp => qp.retire(completion));
        let Ok(retired) = retired else { return Ok(()) };
        retired.ok().map_err(device_error)?;
        progress.completions += 1;
        match retired.direction() {
            Direction::Send => self.sent(lane, retired.tag(), progress),
            Direction::Recv => self.arrived(lane, retired, progress),
        }
    }

    /// Takes a message or a credit of the peer's.
    #[inline]
    fn arrived(&mut self, lane: usize, retired: Retired, progress: &mut Progress) -> Result<()> {
        let (qps, msg_size) = (self.lanes.len() as u64, self.memory.shape.msg_size as usize);
        let lane_of = &mut self.lanes[lane];
        lane_of.used += 1;
        let len = retired.byte_len().saturating_sub(self.memory.header);
        let with_imm = self.memory.shape.plan.verb == Verb::WriteImm;
        let is_credit = if with_imm { retired.opcode() != WcOpcode::RECV_RDMA_WITH_IMM } else { len == 0 };
        if is_credit {
            progress.credits += 1;
            let imm = retired.imm_data();
            self.acked = match imm {
                Some(imm) if self.numbered => self.acked.max(widened(imm, self.acked)),
                _ => self.acked + u64::from(self.memory.shape.batch),
            };
            progress.acked = self.acked;
            self.give_back(retired);
            return Ok(());
        }
        if len != msg_size {
            return Err(Error::test(format!("a message of {len} bytes arrived where all have {msg_size}")));
        }
        let number = match retired.imm_data() {
            Some(imm) if self.numbered || with_imm => widened(imm, self.reached),
            _ => lane_of.arrived * qps + lane as u64,
        };
        lane_of.arrived += 1;
        self.reached = if self.numbered { self.reached.max(number + 1) } else { self.reached + 1 };
        progress.reached = self.reached;
        progress.data += 1;
        progress.bytes += len as u64;
        if self.memory.shape.verify {
            if with_imm {
                self.memory.look(self.memory.slot(number), number, 0)?;
            } else if let (Content::Distinct { idle, .. }, Some(buf)) = (&mut self.memory.content, retired.into_buf()) {
                payload::check(&buf[self.memory.header..], number)?;
                self.memory.verified += len as u64;
                idle.push(buf);
            }
        }
        Ok(())
    }

    fn give_back(&mut self, retired: Retired) {
        if let (Content::Distinct { idle, .. }, Some(buf)) = (&mut self.memory.content, retired.into_buf()) {
            idle.push(buf);
        }
    }

    /// Takes the end of a message of this end's. Those before it on its queue pair have ended too.
    #[inline]
    fn sent(&mut self, lane: usize, tag: u64, progress: &mut Progress) -> Result<()> {
        let qps = self.lanes.len() as u64;
        let done = self.lanes[lane].completed;
        self.lanes[lane].completed = done.max(tag);
        progress.sent = self.lanes.iter().map(|lane| lane.completed).sum();
        if self.memory.shape.verify && matches!(self.memory.content, Content::Fetched { .. }) {
            let (stride, places) = (self.shape().stride(), u64::from(self.shape().places()));
            for k in done..tag {
                let n = k * qps + lane as u64;
                self.memory.check_fetched(usize::try_from(n % places).unwrap_or(0) * stride, n)?;
            }
        }
        Ok(())
    }
}

impl Wire for VerbsWire {
    fn exposed(&self) -> Option<Exposed> {
        let remote = self.traffic.memory.exposed.as_ref()?.remote();
        Some(Exposed { addr: remote.addr, len: remote.len, rkey: remote.rkey })
    }

    fn peer_exposes(&mut self, memory: Exposed) {
        self.traffic.remote = Some(RemoteMemory { addr: memory.addr, len: memory.len, rkey: memory.rkey });
    }

    #[inline]
    fn send(&mut self, first: u64, count: u32, signal_every: u32, last: u64) -> Result<()> {
        if let Content::Marked { .. } = self.traffic.memory.content {
            self.traffic.memory.mark(first)?;
        }
        let step = self.traffic.lanes.len() as u64;
        let end = first + u64::from(count);
        // Which share of a number goes to which queue pair, both ends know by the number.
        for n in first..end.min(first + step) {
            let index = usize::try_from(n % step).unwrap_or(0);
            let signal_every = u64::from(signal_every);
            let job = Job { first: n, end, step, signal_every, last, numbered: self.traffic.numbered };
            post::post(&mut self.traffic.lanes[index], &self.traffic.memory, self.traffic.remote, job)?;
        }
        Ok(())
    }

    fn send_credit(&mut self, reached: u64) -> Result<()> {
        let batch = u64::from(self.traffic.memory.shape.batch);
        let index = usize::try_from(reached / batch % self.traffic.lanes.len() as u64).unwrap_or(0);
        let lane = &mut self.traffic.lanes[index];
        let tag = lane.posted;
        if self.traffic.numbered && with_qp!(&mut lane.line, qp => qp.send_room()) == 0 {
            return Ok(()); // the next one says it too
        }
        let request = wr::send_with_imm(wr::Empty, low(reached)).tag(tag);
        match &mut lane.line {
            Line::Rc(qp) => qp.post_send(wr::send(wr::Empty).tag(tag)),
            Line::Cm(connection) => connection.qp_mut().post_send(wr::send(wr::Empty).tag(tag)),
            Line::Uc(qp) => qp.post_send(request),
            Line::Ud(qp, to) => qp.post_send(wr::send_to_with_imm(wr::Empty, *to, low(reached)).tag(tag)),
        }
        .map_err(|e| device_error(e.into()))
    }

    fn post_receives(&mut self) -> Result<()> {
        let each = self.traffic.shape().receives();
        (0..self.traffic.lanes.len()).try_for_each(|lane| self.traffic.receives(lane, each))
    }

    #[inline]
    fn repost(&mut self) -> Result<()> {
        for lane in 0..self.traffic.lanes.len() {
            let used = std::mem::take(&mut self.traffic.lanes[lane].used);
            if used > 0 {
                self.traffic.receives(lane, used)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<Progress> {
        let mut progress = Progress::default();
        for completion in self.cq.poll().map_err(device_error)? {
            self.traffic.take(completion, &mut progress)?;
        }
        if self.traffic.memory.shape.plan.pattern == Pattern::Polled
            && self.traffic.memory.shows(self.traffic.reached)?
        {
            self.traffic.reached += 1;
            progress.reached = self.traffic.reached;
            progress.data += 1;
            progress.bytes += u64::from(self.traffic.memory.shape.msg_size);
            progress.completions += 1;
        }
        Ok(progress)
    }

    fn arm(&mut self) -> Result<()> {
        self.cq.arm(false).map_err(device_error)
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        self.channel.wait(Some(limit)).map(drop).map_err(device_error)
    }

    fn check(&mut self) -> Result<()> {
        if self.checked.elapsed() < CHECK_EVERY {
            return Ok(());
        }
        self.checked = Instant::now();
        for lane in &mut self.traffic.lanes {
            if let Line::Cm(connection) = &mut lane.line {
                connection.check()?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, made: u64) -> Result<()> {
        self.traffic.memory.settle(made)
    }

    fn verified(&self) -> u64 {
        self.traffic.memory.verified
    }
}
