//! Connected queue pairs as the [`Wire`] of the engines: the part of a test that one thread runs.
//!
//! Messages are distributed over the queue pairs by number. `posting` posts requests, `memory`
//! holds the buffers, `qp` wraps the queue pairs of all services. `transport::endpoint` creates it.

mod memory;
mod memory_polling;
mod posting;
mod qp;
mod receive_queues;

use std::time::{Duration, Instant};

use ibverbs::{
    Completion, CompletionChannel, CompletionQueue, Direction, ProtectionDomain, RemoteMemory,
    Retired, WcOpcode, wr,
};

use rdmacm::datagram::multicast::Membership;

use memory::{Content, Memory};
use posting::{PostJob, low, widened};
pub use qp::AnyQp;
use qp::{QpState, with_qp};
use receive_queues::RecvQueues;

use crate::common::error::{Error, Result};
use crate::rperf::engine::payload;
use crate::rperf::engine::{ExposedMemory, PollCounts, Wire};
use crate::rperf::spec::Shape;
use crate::rperf::spec::plan::{Pattern, Verb};
use crate::rperf::transport::xrc::SharedRecvQueue;

/// How often the connection manager is asked whether the connection stands.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Connected queue pairs with one completion queue.
pub struct VerbsWire {
    cq: CompletionQueue,
    channel: CompletionChannel,
    traffic: QpGroup,
    checked: Instant,
    /// The device tells of messages that solicit it.
    solicited: bool,
    /// What its queue pairs belong to; they are destroyed before.
    _group: Option<Membership>,
}

/// What goes over them.
struct QpGroup {
    qps: Vec<QpState>,
    memory: Memory,
    receiving: RecvQueues,
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
            .field("lanes", &self.traffic.qps)
            .finish_non_exhaustive()
    }
}

impl VerbsWire {
    /// Makes the memory of `shape` and joins it with connected queue pairs.
    ///
    /// # Errors
    /// The memory cannot be registered (the text says why, often the memlock limit).
    pub fn new(
        connected: Vec<AnyQp>,
        pd: &ProtectionDomain,
        cq: CompletionQueue,
        channel: CompletionChannel,
        srq: Option<SharedRecvQueue>,
        group: Option<Membership>,
        shape: &Shape,
    ) -> Result<Self> {
        let mut qps: Vec<QpState> = connected.into_iter().map(QpState::new).collect();
        let (memory, sink) = Memory::new(pd, *shape, &mut qps)?;
        let receiving = RecvQueues::new(&mut qps, srq, sink.as_ref(), shape)?;
        let numbered = !shape.is_reliable();
        let solicits = shape.solicits().then_some(u64::from(shape.batch));
        let traffic = QpGroup {
            qps,
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

impl QpGroup {
    fn shape(&self) -> &Shape {
        &self.memory.shape
    }
}

impl QpGroup {
    #[inline]
    fn take(&mut self, completion: Completion<'_>, progress: &mut PollCounts) -> Result<()> {
        let queue = completion.queue();
        // One that matches no request in flight is stale: it says nothing.
        let (index, retired) = if self.receiving.shared_id() == Some(queue) {
            let qpn = completion.qp_num();
            let index = self.qps.iter().position(|state| state.qpn == qpn);
            (index, self.receiving.retire(completion))
        } else {
            let Some(index) = self.qps.iter().position(|state| state.id == queue) else {
                return Ok(());
            };
            (
                Some(index),
                with_qp!(&mut self.qps[index].qp, qp => qp.retire(completion)).ok(),
            )
        };
        let (Some(index), Some(retired)) = (index, retired) else {
            return Ok(());
        };
        retired.ok()?;
        progress.completions += 1;
        match retired.direction() {
            Direction::Send => self.sent(index, retired.tag(), progress),
            Direction::Recv => self.arrived(index, retired, progress),
        }
    }

    /// Takes a message or a credit of the peer's.
    #[inline]
    fn arrived(&mut self, index: usize, retired: Retired, progress: &mut PollCounts) -> Result<()> {
        let (qps, msg_size) = (self.qps.len() as u64, self.memory.shape.msg_size as usize);
        self.receiving.took(index);
        let state = &mut self.qps[index];
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
            _ => state.arrived * qps + index as u64,
        };
        state.arrived += 1;
        state.reached = state.reached.max(number + 1);
        self.reached = match () {
            // Each index gets every message: the slowest says how many more there may be.
            () if self.memory.shape.receivers > 1 => self
                .qps
                .iter()
                .map(|state| state.reached)
                .min()
                .unwrap_or(0),
            () if self.numbered => self.reached.max(number + 1),
            () => self.reached + 1,
        };
        progress.reached = self.reached;
        progress.data += 1;
        progress.bytes += len as u64;
        if self.memory.shape.touches_payload() {
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
    fn sent(&mut self, index: usize, tag: u64, progress: &mut PollCounts) -> Result<()> {
        let qps = self.qps.len() as u64;
        let done = self.qps[index].completed;
        self.qps[index].completed = done.max(tag);
        progress.sent = self.qps.iter().map(|state| state.completed).sum();
        if self.memory.shape.touches_payload()
            && matches!(self.memory.content, Content::Fetched { .. })
        {
            let (stride, fetch_slots) =
                (self.shape().stride(), u64::from(self.shape().fetch_slots()));
            for k in done..tag {
                let n = k * qps + index as u64;
                self.memory
                    .check_fetched(usize::try_from(n % fetch_slots).unwrap_or(0) * stride, n)?;
            }
        }
        Ok(())
    }
}

impl Wire for VerbsWire {
    fn exposed(&self) -> Option<ExposedMemory> {
        let remote = self.traffic.memory.exposed.as_ref()?.remote();
        Some(ExposedMemory {
            addr: remote.addr,
            len: remote.len,
            rkey: remote.rkey,
        })
    }

    fn peer_exposes(&mut self, memory: ExposedMemory) {
        self.traffic.remote = Some(RemoteMemory {
            addr: memory.addr,
            len: memory.len,
            rkey: memory.rkey,
        });
    }

    #[inline]
    fn send(&mut self, first: u64, count: u32, signal_every: u32, last: u64) -> Result<()> {
        let QpGroup {
            qps,
            memory,
            remote,
            numbered,
            solicits,
            ..
        } = &mut self.traffic;
        if let Content::Marked { .. } = memory.content {
            memory.mark(first)?;
        }
        let (step, signal_every) = (qps.len() as u64, u64::from(signal_every));
        let end = first + u64::from(count);
        // Which share of a number goes to which queue pair, both ends know by the number.
        for n in first..end.min(first + step) {
            let index = usize::try_from(n % step).unwrap_or(0);
            let job = PostJob {
                first: n,
                end,
                step,
                signal_every,
                last,
                numbered: *numbered,
                solicits: *solicits,
            };
            posting::post(&mut qps[index], memory, remote.as_ref(), &job)?;
        }
        Ok(())
    }

    fn send_credit(&mut self, reached: u64) -> Result<()> {
        let batch = u64::from(self.traffic.memory.shape.batch);
        let index = usize::try_from(reached / batch % self.traffic.qps.len() as u64).unwrap_or(0);
        let state = &mut self.traffic.qps[index];
        let tag = state.posted;
        if self.traffic.numbered && with_qp!(&mut state.qp, qp => qp.send_slots_free()) == 0 {
            return Ok(()); // the next one says it too
        }
        let request = wr::send_with_imm(wr::Empty, low(reached)).tag(tag);
        match &mut state.qp {
            AnyQp::Rc(qp) => qp.post_send(wr::send(wr::Empty).tag(tag)),
            AnyQp::Cm(connection) => connection.qp_mut().post_send(wr::send(wr::Empty).tag(tag)),
            AnyQp::Xrc(connection) => connection
                .sender
                .post_send(wr::send(wr::Empty).for_srq(connection.to).tag(tag)),
            AnyQp::Uc(qp) => qp.post_send(request),
            AnyQp::Ud(qp, to) => {
                qp.post_send(wr::send_to_with_imm(wr::Empty, *to, low(reached)).tag(tag))
            }
        }
        .map_err(Error::from)
    }

    fn post_receives(&mut self) -> Result<()> {
        let QpGroup {
            qps,
            memory,
            receiving,
            ..
        } = &mut self.traffic;
        receiving.fill(qps, &mut memory.content, memory.shape.receives())
    }

    #[inline]
    fn repost(&mut self) -> Result<()> {
        let QpGroup {
            qps,
            memory,
            receiving,
            ..
        } = &mut self.traffic;
        receiving.refill(qps, &mut memory.content)
    }

    #[inline]
    fn poll(&mut self) -> Result<PollCounts> {
        let mut progress = PollCounts::default();
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
        for state in &mut self.traffic.qps {
            if let AnyQp::Cm(connection) = &mut state.qp {
                connection.check()?;
            }
        }
        Ok(())
    }

    fn verify_final(&mut self, made: u64) -> Result<()> {
        self.traffic.memory.verify_final(made)
    }

    fn verified(&self) -> u64 {
        self.traffic.memory.verified
    }
}
