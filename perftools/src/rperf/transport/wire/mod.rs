//! [`VerbsWire`]: the connected queue pairs of one thread, as a [`Wire`] for the engines.
//!
//! Message `n` travels on queue pair `n % qps`. `posting` posts requests, `receive_queues` posts
//! receives, `memory` owns the buffers, and `qp` wraps queue pairs of all services.
//! `transport::endpoint` creates the wires.

mod memory;
mod memory_polling;
mod message_number;
mod posting;
mod qp;
mod receive_queues;

use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, Direction, Held, ProtectionDomain,
    RemoteMemory, Retired, SharedRegion, Sink, WcOpcode,
    event::{AsyncEvents, EventType},
};

use rdmacm::datagram::multicast::Membership;

use memory::{Content, Memory};
use message_number::from_low_bits;
use posting::PostJob;
pub use qp::AnyQp;
use qp::QpState;
use receive_queues::RecvQueues;

use crate::common::error::{Error, Kind, Result};
use crate::rperf::engine::payload::{self, Payload};
use crate::rperf::engine::{ExposedMemory, PollCounts, Wire};
use crate::rperf::spec::Shape;
use crate::rperf::spec::plan::{Pattern, Verb};
use crate::rperf::stats::tcp;
use crate::rperf::transport::gpu::{GpuMemory, TestGpu};
use crate::rperf::transport::xrc::SharedRecvQueue;

/// Interval between checks for a disconnection reported by the connection manager.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Connected queue pairs with one completion queue.
pub struct VerbsWire {
    cq: CompletionQueue,
    channel: CompletionChannel,
    /// Events of the device, such as its failure.
    events: AsyncEvents,
    traffic: QpGroup,
    last_check: Instant,
    /// The device is iWARP: its connections are those of TCP. Soft-iWARP does not support
    /// solicited events.
    is_iwarp: bool,
    /// The multicast group of the queue pairs, which are destroyed before it.
    group: Option<Membership>,
    /// Registered memory that no request uses.
    extra_memory: Option<Sink>,
    /// Memory of a GPU. It is freed last, after the queue pairs and queues that use it.
    _gpu_memory: Option<GpuMemory>,
}

/// The queue pairs of a wire with their memory and counts.
struct QpGroup {
    qps: Vec<QpState>,
    memory: Memory,
    recv_queues: RecvQueues,
    /// Memory of the peer.
    remote: Option<RemoteMemory>,
    /// Messages and credits carry numbers, because some may be lost.
    numbered: bool,
    /// Number of messages after which one is solicited, if any. It wakes a receiver that sleeps
    /// until it must return credit.
    solicit_every: Option<u64>,
    /// Number after that of the peer's latest message.
    reached: u64,
    /// Messages of this end that the peer returned credit for.
    acked: u64,
    /// Messages detected in memory since the completion queue was polled.
    unpolled: u32,
    /// Confirmation that the peer has placed the writes, on devices that complete them before.
    placement: Option<Placement>,
}

/// RDMA reads at the end of a test that follow all writes. A completion of a write on iWARP only
/// shows that the local TCP stack has the data. The reads have one byte, because Soft-iWARP answers
/// an empty one with the data of its latest request while it transmits (ci/DRIVERS.md, fault 51).
struct Placement {
    /// Target of the reads, for each queue pair.
    targets: Vec<Held<SharedRegion>>,
    /// The reads were posted.
    posted: bool,
    /// Reads that have not completed.
    pending: usize,
}

impl std::fmt::Debug for VerbsWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsWire")
            .field("qps", &self.traffic.qps)
            .field("group", &self.group)
            .field("extra_memory", &self.extra_memory)
            .finish_non_exhaustive()
    }
}

impl VerbsWire {
    /// Creates a wire from connected queue pairs, and registers the memory for a shape: host
    /// memory, or that of a GPU.
    ///
    /// # Errors
    /// Returns an error of [`Kind::Limit`] if the memory cannot be registered, often because of
    /// the memlock limit.
    pub(super) fn new(
        connected: Vec<AnyQp>,
        pd: &ProtectionDomain,
        (cq, channel): (CompletionQueue, CompletionChannel),
        srq: Option<SharedRecvQueue>,
        (shape, payload, gpu): (Shape, Payload, Option<&TestGpu>),
    ) -> Result<Self> {
        let mut gpu_memory = gpu.map(GpuMemory::new);
        let mut qps: Vec<QpState> = connected.into_iter().map(QpState::new).collect();
        let memory = match &mut gpu_memory {
            Some(gpu_memory) => Memory::on_gpu(pd, shape, payload, &mut qps, gpu_memory),
            None => Memory::new(pd, shape, payload, &mut qps),
        };
        let (memory, target) = memory.map_err(Error::into_limit)?;
        let recv_queues = RecvQueues::new(&mut qps, srq, target.as_ref(), &shape)?;
        let numbered = !shape.is_reliable();
        let solicit_every = shape.solicits().then_some(u64::from(shape.batch));
        let traffic = QpGroup {
            qps,
            memory,
            recv_queues,
            remote: None,
            numbered,
            solicit_every,
            reached: 0,
            acked: 0,
            unpolled: 0,
            placement: None,
        };
        Ok(Self {
            cq,
            channel,
            events: pd.context().async_events()?,
            traffic,
            last_check: Instant::now(),
            is_iwarp: false,
            group: None,
            extra_memory: None,
            _gpu_memory: gpu_memory,
        })
    }

    /// Keeps a multicast group joined until the queue pairs are destroyed.
    #[must_use]
    pub fn with_group(mut self, group: Option<Membership>) -> Self {
        self.group = group;
        self
    }

    /// Keeps memory registered that no request uses.
    #[must_use]
    pub fn with_extra_memory(mut self, memory: Option<Sink>) -> Self {
        self.extra_memory = memory;
        self
    }

    /// Makes [`Wire::confirm_placement`] read from the peer after the last write. Required on
    /// iWARP, where an RDMA write completes before the peer has it.
    ///
    /// # Errors
    /// Returns an error if the memory for the reads cannot be registered.
    pub fn confirming_placement(mut self, pd: &ProtectionDomain) -> Result<Self> {
        // The sink of a read on iWARP must be remotely writable.
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = pd.shared(8, access)?;
        let targets = self
            .traffic
            .qps
            .iter_mut()
            .map(|state| state.qp.hold(&region));
        let targets = targets.collect::<ibverbs::Result<Vec<_>>>()?;
        self.traffic.placement = Some(Placement {
            pending: targets.len(),
            targets,
            posted: false,
        });
        Ok(self)
    }

    /// Sets whether the device is iWARP. Then every completion wakes a sleeping receiver.
    #[must_use]
    pub fn on_iwarp(self, is_iwarp: bool) -> Self {
        Self { is_iwarp, ..self }
    }
}

impl QpGroup {
    fn shape(&self) -> &Shape {
        &self.memory.shape
    }

    /// Retires a completion and counts its message or credit.
    #[inline]
    fn handle_completion(
        &mut self,
        completion: Completion<'_>,
        progress: &mut PollCounts,
    ) -> Result<()> {
        let queue = completion.queue();
        let (index, retired) = if self.recv_queues.shared_id() == Some(queue) {
            let qpn = completion.qp_num();
            let index = self.qps.iter().position(|state| state.recv_qpn == qpn);
            (index, self.recv_queues.retire(completion))
        } else {
            let Some(index) = self.qps.iter().position(|state| state.id == queue) else {
                return Ok(());
            };
            (Some(index), self.qps[index].qp.retire(completion))
        };
        // A completion that matches no request in flight is stale.
        let (Some(index), Some(retired)) = (index, retired) else {
            return Ok(());
        };
        retired.ok()?;
        progress.completions += 1;
        match retired.direction() {
            Direction::Send
                if retired.opcode() == WcOpcode::RDMA_READ && self.placement.is_some() =>
            {
                if let Some(placement) = &mut self.placement {
                    placement.pending = placement.pending.saturating_sub(1);
                }
                Ok(())
            }
            Direction::Send => self.handle_send(index, retired.tag(), progress),
            Direction::Recv => self.handle_recv(index, retired, progress),
        }
    }

    /// Counts a received message or credit, and checks the payload if the test requires it.
    #[inline]
    fn handle_recv(
        &mut self,
        index: usize,
        retired: Retired,
        progress: &mut PollCounts,
    ) -> Result<()> {
        let (qps, msg_size) = (self.qps.len() as u64, self.memory.shape.msg_size as usize);
        self.recv_queues.record_use(index);
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
                Some(imm) if self.numbered => self.acked.max(from_low_bits(imm, self.acked)),
                _ => self.acked + u64::from(self.memory.shape.batch),
            };
            progress.acked = self.acked;
            self.recycle(retired);
            return Ok(());
        }
        if len != msg_size {
            return Err(Error::test(format!(
                "received a message of {len} bytes: expected {msg_size} bytes"
            )));
        }
        let number = match retired.imm_data() {
            Some(imm) if self.numbered || with_imm => from_low_bits(imm, self.reached),
            _ => state.arrived * qps + index as u64,
        };
        if self.numbered {
            let receivers = self.memory.shape.receivers;
            let turn = if receivers > 1 { number } else { number / qps };
            if !state.arrivals.get_or_insert_default().record(turn) {
                progress.duplicates += 1;
                self.recycle(retired);
                return Ok(());
            }
        }
        state.arrived += 1;
        state.reached = state.reached.max(number + 1);
        self.reached = if self.memory.shape.receivers > 1 {
            // Every queue pair receives every message, so the slowest one limits the sender.
            let all = self.qps.iter().map(|state| state.reached);
            all.min().unwrap_or(0)
        } else if self.numbered {
            self.reached.max(number + 1)
        } else {
            self.reached + 1
        };
        progress.reached = self.reached;
        progress.data += 1;
        progress.bytes += len as u64;
        if self.memory.shape.touches_payload() {
            if with_imm {
                self.memory
                    .check_slot(self.memory.slot_offset(number), number, 0)?;
            } else if let (Content::Distinct { idle, .. }, Some(buf)) =
                (&mut self.memory.content, retired.into_buf())
            {
                let bytes = &buf[self.memory.header..];
                if self.memory.shape.verify {
                    self.memory.payload.check(bytes, number, 0)?;
                    self.memory.verified += len as u64;
                } else {
                    payload::access(bytes);
                }
                idle.push(buf);
            }
        }
        Ok(())
    }

    /// Keeps the buffer of a receive for a later receive.
    fn recycle(&mut self, retired: Retired) {
        if let (Content::Distinct { idle, .. }, Some(buf)) =
            (&mut self.memory.content, retired.into_buf())
        {
            idle.push(buf);
        }
    }

    /// Counts completed sends and checks fetched data. A completion also completes all earlier
    /// requests on its queue pair.
    #[inline]
    fn handle_send(&mut self, index: usize, tag: u64, progress: &mut PollCounts) -> Result<()> {
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
        let remote = self.traffic.memory.remote()?;
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
            solicit_every,
            ..
        } = &mut self.traffic;
        if let Content::Marked { .. } = memory.content {
            memory.write_marked(first)?;
        }
        let (step, signal_every) = (qps.len() as u64, u64::from(signal_every));
        let end = first + u64::from(count);
        // Both ends know the queue pair of each message: message `n` travels on `n % step`.
        for n in first..end.min(first + step) {
            let index = usize::try_from(n % step).unwrap_or(0);
            let job = PostJob {
                first: n,
                end,
                step,
                signal_every,
                last,
                numbered: *numbered,
                solicit_every: *solicit_every,
            };
            posting::post(&mut qps[index], memory, remote.as_ref(), &job)?;
        }
        Ok(())
    }

    fn send_credit(&mut self, reached: u64) -> Result<()> {
        let batch = u64::from(self.traffic.memory.shape.batch);
        let index = usize::try_from(reached / batch % self.traffic.qps.len() as u64).unwrap_or(0);
        let state = &mut self.traffic.qps[index];
        if self.traffic.numbered && state.qp.send_slots_free() == 0 {
            return Ok(()); // the next credit acknowledges these messages too
        }
        let tag = state.posted;
        state.qp.post_credit(reached, tag).map_err(Error::from)
    }

    fn post_receives(&mut self) -> Result<()> {
        let QpGroup {
            qps,
            memory,
            recv_queues,
            ..
        } = &mut self.traffic;
        recv_queues.fill(qps, &mut memory.content, memory.shape.receives())
    }

    #[inline]
    fn repost(&mut self) -> Result<()> {
        let QpGroup {
            qps,
            memory,
            recv_queues,
            ..
        } = &mut self.traffic;
        recv_queues.refill(qps, &mut memory.content)
    }

    #[inline]
    fn poll(&mut self) -> Result<PollCounts> {
        let mut progress = PollCounts::default();
        let polls_memory = self.traffic.memory.shape.plan.pattern == Pattern::Polled;
        if polls_memory && self.traffic.poll_memory_repeatedly(&mut progress)? {
            return Ok(progress);
        }
        for completion in self.cq.poll()? {
            self.traffic.handle_completion(completion, &mut progress)?;
        }
        if polls_memory {
            self.traffic.unpolled = 0;
            self.traffic.poll_memory(&mut progress)?;
        }
        Ok(progress)
    }

    fn arm(&mut self, solicited: bool) -> Result<()> {
        self.cq
            .arm(solicited && !self.is_iwarp)
            .map_err(Error::from)
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        self.channel
            .wait(Some(limit))
            .map(drop)
            .map_err(Error::from)
    }

    fn check(&mut self, now: Instant) -> Result<()> {
        if now.duration_since(self.last_check) < CHECK_INTERVAL {
            return Ok(());
        }
        self.last_check = now;
        while let Some(event) = self.events.try_get()? {
            if event.event_type == EventType::DEVICE_FATAL {
                let device = self.events.context().device_name();
                return Err(Error::new(
                    Kind::DeviceFailure,
                    format!("{device} reported a fatal error"),
                )
                .with_help(
                    "see the kernel's log (`dmesg`), and reset the device or restart the host",
                ));
            }
        }
        for state in &mut self.traffic.qps {
            if let AnyQp::Cm(connection) = &mut state.qp {
                connection.check()?;
            }
        }
        Ok(())
    }

    fn confirm_placement(&mut self) -> Result<bool> {
        let QpGroup {
            qps,
            remote,
            placement,
            ..
        } = &mut self.traffic;
        let (Some(placement), Some(remote)) = (placement, remote) else {
            return Ok(true);
        };
        if !placement.posted {
            placement.posted = true;
            for (state, target) in qps.iter_mut().zip(&placement.targets) {
                state.qp.post_short_read(*target, *remote, state.posted)?;
            }
        }
        Ok(placement.pending == 0)
    }

    fn verify_final(&mut self, made: u64) -> Result<()> {
        self.traffic.memory.verify_final(made)
    }

    fn verified(&self) -> u64 {
        self.traffic.memory.verified
    }

    fn retransmitted(&self) -> Option<u64> {
        if !self.is_iwarp {
            return None;
        }
        let connections = self.traffic.qps.iter().map(|state| match &state.qp {
            AnyQp::Cm(connection) => Some(connection.tcp_connection()),
            _ => None,
        });
        tcp::retransmitted(&connections.collect::<Option<Vec<_>>>()?)
    }
}
