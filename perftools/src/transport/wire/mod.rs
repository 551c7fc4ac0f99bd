//! Connected queue pairs as the engines' [`Wire`]: one thread's share of a test.
//!
//! Messages go round the queue pairs by number. `post` knows the verbs, `memory` what messages are
//! made of, `line` the services.

mod line;
mod memory;
mod polled;
mod post;
mod receiving;

use std::time::{Duration, Instant};

use ibverbs::{
    Completion, CompletionChannel, CompletionQueue, Direction, ProtectionDomain, RemoteMemory,
    Retired, WcOpcode, wr,
};

use rdmacm::datagram::multicast::Membership;

pub use line::Line;
use line::{Lane, with_qp};
use memory::{Content, Memory};
use post::{Job, low, widened};
use receiving::Receiving;

use super::payload;
use super::xrc::Queue;
use crate::config::Shape;
use crate::engine::{Exposed, Progress, Wire};
use crate::error::{Error, Result};
use crate::plan::{Pattern, Verb};

/// How often the connection manager is asked whether the connection stands.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Connected queue pairs with one completion queue.
pub struct VerbsWire {
    cq: CompletionQueue,
    channel: CompletionChannel,
    traffic: Traffic,
    checked: Instant,
    /// The device tells of messages that solicit it.
    solicited: bool,
    /// What its queue pairs belong to; they are destroyed before.
    _group: Option<Membership>,
}

/// What goes over them.
struct Traffic {
    lanes: Vec<Lane>,
    memory: Memory,
    receiving: Receiving,
    remote: Option<RemoteMemory>,
    /// Whether numbers travel with messages and credits, as some may be lost.
    numbered: bool,
    /// Every so many messages wake their receiver, where it sleeps through the others.
    solicits: Option<u64>,
    /// The number after that of the peer's latest message.
    reached: u64,
    acked: u64,
    /// Messages seen in memory since the completion queue was polled.
    unpolled: u32,
}

impl std::fmt::Debug for VerbsWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsWire")
            .field("lanes", &self.traffic.lanes)
            .finish_non_exhaustive()
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
        srq: Option<Queue>,
        group: Option<Membership>,
        shape: &Shape,
    ) -> Result<Self> {
        let mut lanes: Vec<Lane> = lines.into_iter().map(Lane::new).collect();
        let (memory, sink) = Memory::new(pd, *shape, &mut lanes)?;
        let receiving = Receiving::new(&mut lanes, srq, sink.as_ref(), shape)?;
        let numbered = !shape.is_reliable();
        let solicits = shape.solicits().then_some(u64::from(shape.batch));
        let traffic = Traffic {
            lanes,
            memory,
            receiving,
            remote: None,
            numbered,
            solicits,
            reached: 0,
            acked: 0,
            unpolled: 0,
        };
        Ok(Self {
            cq,
            channel,
            traffic,
            checked: Instant::now(),
            solicited: true,
            _group: group,
        })
    }

    /// Whether the device wakes a receiver for messages that solicit it.
    #[must_use]
    pub fn with_solicited(self, solicited: bool) -> Self {
        Self { solicited, ..self }
    }
}

impl Traffic {
    fn shape(&self) -> &Shape {
        &self.memory.shape
    }
}

impl Traffic {
    #[inline]
    fn take(&mut self, completion: Completion<'_>, progress: &mut Progress) -> Result<()> {
        let queue = completion.queue();
        // One that matches no request in flight is stale: it says nothing.
        let (lane, retired) = if self.receiving.shared_id() == Some(queue) {
            let qpn = completion.qp_num();
            let lane = self.lanes.iter().position(|lane| lane.qpn == qpn);
            (lane, self.receiving.retire(completion))
        } else {
            let Some(lane) = self.lanes.iter().position(|lane| lane.id == queue) else {
                return Ok(());
            };
            (
                Some(lane),
                with_qp!(&mut self.lanes[lane].line, qp => qp.retire(completion)).ok(),
            )
        };
        let (Some(lane), Some(retired)) = (lane, retired) else {
            return Ok(());
        };
        retired.ok()?;
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
        self.receiving.took(lane);
        let lane_of = &mut self.lanes[lane];
        let len = retired.byte_len().saturating_sub(self.memory.header);
        let with_imm = self.memory.shape.plan.verb == Verb::WriteImm;
        let is_credit = if with_imm {
            retired.opcode() != WcOpcode::RECV_RDMA_WITH_IMM
        } else {
            len == 0
        };
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
            return Err(Error::test(format!(
                "a message of {len} bytes arrived where all have {msg_size}"
            )));
        }
        let number = match retired.imm_data() {
            Some(imm) if self.numbered || with_imm => widened(imm, self.reached),
            _ => lane_of.arrived * qps + lane as u64,
        };
        lane_of.arrived += 1;
        lane_of.reached = lane_of.reached.max(number + 1);
        self.reached = match () {
            // Each lane gets every message: the slowest says how many more there may be.
            () if self.memory.shape.receivers > 1 => self
                .lanes
                .iter()
                .map(|lane| lane.reached)
                .min()
                .unwrap_or(0),
            () if self.numbered => self.reached.max(number + 1),
            () => self.reached + 1,
        };
        progress.reached = self.reached;
        progress.data += 1;
        progress.bytes += len as u64;
        if self.memory.shape.is_looked_at() {
            if with_imm {
                self.memory.look(self.memory.slot(number), number, 0)?;
            } else if let (Content::Distinct { idle, .. }, Some(buf)) =
                (&mut self.memory.content, retired.into_buf())
            {
                let bytes = &buf[self.memory.header..];
                if self.memory.shape.verify {
                    payload::check(bytes, number)?;
                    self.memory.verified += len as u64;
                } else {
                    payload::access(bytes);
                }
                idle.push(buf);
            }
        }
        Ok(())
    }

    fn give_back(&mut self, retired: Retired) {
        if let (Content::Distinct { idle, .. }, Some(buf)) =
            (&mut self.memory.content, retired.into_buf())
        {
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
        if self.memory.shape.is_looked_at()
            && matches!(self.memory.content, Content::Fetched { .. })
        {
            let (stride, places) = (self.shape().stride(), u64::from(self.shape().places()));
            for k in done..tag {
                let n = k * qps + lane as u64;
                self.memory
                    .check_fetched(usize::try_from(n % places).unwrap_or(0) * stride, n)?;
            }
        }
        Ok(())
    }
}

impl Wire for VerbsWire {
    fn exposed(&self) -> Option<Exposed> {
        let remote = self.traffic.memory.exposed.as_ref()?.remote();
        Some(Exposed {
            addr: remote.addr,
            len: remote.len,
            rkey: remote.rkey,
        })
    }

    fn peer_exposes(&mut self, memory: Exposed) {
        self.traffic.remote = Some(RemoteMemory {
            addr: memory.addr,
            len: memory.len,
            rkey: memory.rkey,
        });
    }

    #[inline]
    fn send(&mut self, first: u64, count: u32, signal_every: u32, last: u64) -> Result<()> {
        let Traffic {
            lanes,
            memory,
            remote,
            numbered,
            solicits,
            ..
        } = &mut self.traffic;
        if let Content::Marked { .. } = memory.content {
            memory.mark(first)?;
        }
        let (step, signal_every) = (lanes.len() as u64, u64::from(signal_every));
        let end = first + u64::from(count);
        // Which share of a number goes to which queue pair, both ends know by the number.
        for n in first..end.min(first + step) {
            let index = usize::try_from(n % step).unwrap_or(0);
            let job = Job {
                first: n,
                end,
                step,
                signal_every,
                last,
                numbered: *numbered,
                solicits: *solicits,
            };
            post::post(&mut lanes[index], memory, remote.as_ref(), &job)?;
        }
        Ok(())
    }

    fn send_credit(&mut self, reached: u64) -> Result<()> {
        let batch = u64::from(self.traffic.memory.shape.batch);
        let index = usize::try_from(reached / batch % self.traffic.lanes.len() as u64).unwrap_or(0);
        let lane = &mut self.traffic.lanes[index];
        let tag = lane.posted;
        if self.traffic.numbered && with_qp!(&mut lane.line, qp => qp.send_slots_free()) == 0 {
            return Ok(()); // the next one says it too
        }
        let request = wr::send_with_imm(wr::Empty, low(reached)).tag(tag);
        match &mut lane.line {
            Line::Rc(qp) => qp.post_send(wr::send(wr::Empty).tag(tag)),
            Line::Cm(connection) => connection.qp_mut().post_send(wr::send(wr::Empty).tag(tag)),
            Line::Xrc(line) => line
                .sender
                .post_send(wr::send(wr::Empty).for_srq(line.to).tag(tag)),
            Line::Uc(qp) => qp.post_send(request),
            Line::Ud(qp, to) => {
                qp.post_send(wr::send_to_with_imm(wr::Empty, *to, low(reached)).tag(tag))
            }
        }
        .map_err(Error::from)
    }

    fn post_receives(&mut self) -> Result<()> {
        let Traffic {
            lanes,
            memory,
            receiving,
            ..
        } = &mut self.traffic;
        receiving.fill(lanes, &mut memory.content, memory.shape.receives())
    }

    #[inline]
    fn repost(&mut self) -> Result<()> {
        let Traffic {
            lanes,
            memory,
            receiving,
            ..
        } = &mut self.traffic;
        receiving.refill(lanes, &mut memory.content)
    }

    #[inline]
    fn poll(&mut self) -> Result<Progress> {
        let mut progress = Progress::default();
        let in_memory = self.traffic.memory.shape.plan.pattern == Pattern::Polled;
        if in_memory && self.traffic.shows_soon(&mut progress)? {
            return Ok(progress);
        }
        for completion in self.cq.poll()? {
            self.traffic.take(completion, &mut progress)?;
        }
        if in_memory {
            self.traffic.unpolled = 0;
            self.traffic.shows(&mut progress)?;
        }
        Ok(progress)
    }

    fn arm(&mut self, solicited: bool) -> Result<()> {
        self.cq
            .arm(solicited && self.solicited)
            .map_err(Error::from)
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        self.channel
            .wait(Some(limit))
            .map(drop)
            .map_err(Error::from)
    }

    fn check(&mut self, now: Instant) -> Result<()> {
        if now.duration_since(self.checked) < CHECK_EVERY {
            return Ok(());
        }
        self.checked = now;
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
