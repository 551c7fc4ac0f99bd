//! [`VerbsDataPath`]: the connected queue pairs of one thread, as a [`DataPath`] for the engines.
//!
//! Message `n` travels on queue pair `n % qps`, as does credit `n`. `verbs` makes requests,
//! `posting` posts them, `receive_queues` posts receives, `completions` counts what has completed,
//! `turns` finds the first message that has not, `memory` owns the buffers, and `qp` wraps queue
//! pairs of all services. `transport::endpoint` creates data paths.

mod completions;
mod flags;
mod marks;
mod memory;
mod memory_polling;
mod message_number;
mod posting;
mod qp;
mod receive_queues;
mod turns;
mod verbs;

use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Held, ProtectionDomain, RemoteMemory,
    SharedRegion,
    event::{AsyncEvents, EventType},
};

use rdmacm::datagram::multicast::Membership;

use flags::{FlagRules, PostJob};
use memory::Memory;
use posting::Calls;
pub use qp::AnyQp;
use qp::QpState;
use receive_queues::RecvQueues;
use turns::Turns;

use crate::engine::payload::Payload;
use crate::engine::{DataPath, DataPathCounts, ExposedMemory};
use crate::spec::Shape;
use crate::spec::plan::{Pattern, Verb};
use crate::transport::gpu::{GpuMemory, TestGpu};
use crate::transport::xrc::SharedRecvQueue;
use base::error::{Error, Kind, Result};
use host::tcp;

/// Interval between checks for a disconnection reported by the connection manager.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Connected queue pairs with one completion queue.
pub struct VerbsDataPath {
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
    /// Memory of a GPU. It is freed last, after the queue pairs and queues that use it.
    _gpu_memory: Option<GpuMemory>,
}

/// The queue pairs of a data path with their memory and counts.
struct QpGroup {
    qps: Vec<QpState>,
    /// Index of the queue pair whose completion was handled last.
    latest: usize,
    calls: Calls,
    rules: FlagRules,
    memory: Memory,
    recv_queues: RecvQueues,
    counts: DataPathCounts,
    /// Messages and credits carry numbers, because some may be lost or overtake others.
    numbered: bool,
    /// The turns of messages and credits, if the queue pairs [take turns](Shape::takes_turns).
    turns: Option<Turns>,
    /// Messages carry their numbers as immediate data, because they are RDMA writes.
    with_imm: bool,
    /// Length in bytes of a received message that is only counted. `None` if messages have numbers
    /// that are checked, or if their payload is accessed.
    counted_len: Option<usize>,
    /// A poll returns at most one completion. A ping-pong test has one message in flight, so
    /// looking for a second completion would only take time.
    polls_one: bool,
    /// Messages detected in memory since the completion queue was polled.
    unpolled: u32,
    /// Confirmation that the peer has placed the writes, on devices that complete them before.
    placement: Option<Placement>,
}

/// RDMA reads at the end of a test that follow all writes. A completion of a write on iWARP only
/// shows that the local TCP stack has the data. The reads have one byte, because Soft-iWARP answers
/// an empty one with the data of its latest request while it transmits (docs/drivers.md, fault 51).
struct Placement {
    /// Target of the reads, for each queue pair.
    targets: Vec<Held<SharedRegion>>,
    /// The reads were posted.
    posted: bool,
    /// Reads that have not completed.
    pending: usize,
}

impl std::fmt::Debug for VerbsDataPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsDataPath")
            .field("qps", &self.traffic.qps)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl VerbsDataPath {
    /// Creates a data path from connected queue pairs, and registers the memory for a shape: host
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
        let max_inline = qps.iter_mut().map(|state| state.qp.max_inline()).min();
        let max_inline = max_inline.unwrap_or(0);
        let memory = match &mut gpu_memory {
            Some(gpu_memory) => Memory::on_gpu(pd, shape, payload, &mut qps, gpu_memory),
            None => Memory::new(pd, shape, payload, &mut qps, max_inline),
        };
        let (memory, target) = memory.map_err(Error::into_limit)?;
        let recv_queues = RecvQueues::new(&mut qps, srq, target.as_ref(), &shape)?;
        let numbered = shape.plan.numbers_messages();
        let with_imm = shape.plan.verb == Verb::WriteImm;
        let only_counts = !shape.plan.service.numbers_messages()
            && !with_imm
            && !shape.touches_payload()
            && !shape.takes_turns()
            && shape.receivers == 1;
        let traffic = QpGroup {
            latest: 0,
            calls: Calls::new(&memory),
            rules: FlagRules::new(&shape, qps.len()),
            qps,
            recv_queues,
            counts: DataPathCounts::default(),
            numbered,
            turns: shape.takes_turns().then(Turns::default),
            with_imm,
            counted_len: only_counts.then_some(shape.msg_size as usize + memory.header),
            memory,
            polls_one: shape.plan.pattern == Pattern::PingPong,
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
            _gpu_memory: gpu_memory,
        })
    }

    /// Sets the immediate data of message 0.
    #[must_use]
    pub(crate) fn with_first_imm(mut self, first_imm: u32) -> Self {
        self.traffic.memory.first_imm = first_imm;
        self
    }

    /// Keeps a multicast group joined until the queue pairs are destroyed.
    #[must_use]
    pub(crate) fn with_group(mut self, group: Option<Membership>) -> Self {
        self.group = group;
        self
    }

    /// Makes [`DataPath::confirm_placement`] read from the peer after the last write. Required on
    /// iWARP, where an RDMA write completes before the peer has it.
    pub(crate) fn confirming_placement(mut self, pd: &ProtectionDomain) -> Result<Self> {
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
    pub(crate) fn on_iwarp(self, is_iwarp: bool) -> Self {
        Self { is_iwarp, ..self }
    }
}

impl DataPath for VerbsDataPath {
    fn exposed(&self) -> Option<ExposedMemory> {
        let remote = self.traffic.memory.remote()?;
        Some(ExposedMemory {
            addr: remote.addr,
            len: remote.len,
            rkey: remote.rkey,
        })
    }

    fn peer_exposes(&mut self, memory: ExposedMemory) {
        self.traffic.memory.set_peer(RemoteMemory {
            addr: memory.addr,
            len: memory.len,
            rkey: memory.rkey,
        });
    }

    #[inline]
    fn send_one(&mut self, number: u64, last: u64) -> Result<()> {
        let QpGroup {
            qps,
            calls,
            rules,
            memory,
            ..
        } = &mut self.traffic;
        // Both ends know the queue pair of each message: message `n` travels on `n % step`.
        match &mut **qps {
            [state] => (calls.post_one)(state, memory, rules, number, last),
            states => {
                let index = usize::try_from(number % rules.step).unwrap_or(0);
                (calls.post_one)(&mut states[index], memory, rules, number, last)
            }
        }
    }

    fn send(&mut self, first: u64, count: u32, last: u64) -> Result<()> {
        let QpGroup {
            qps,
            calls,
            rules,
            memory,
            ..
        } = &mut self.traffic;
        let end = first + u64::from(count);
        for first in first..end.min(first + rules.step) {
            let state = &mut qps[usize::try_from(first % rules.step).unwrap_or(0)];
            if first + rules.step < end {
                (calls.post_list)(state, memory, rules, &PostJob { first, end, last })?;
            } else {
                (calls.post_one)(state, memory, rules, first, last)?;
            }
        }
        Ok(())
    }

    fn send_credit(&mut self, next_expected: u64) -> Result<bool> {
        let shape = self.traffic.memory.shape;
        let number = next_expected / u64::from(shape.batch) - 1;
        let index = usize::try_from(number % self.traffic.qps.len() as u64).unwrap_or(0);
        let state = &mut self.traffic.qps[index];
        if !state.has_slot_for_credit(shape.queue_depth()) {
            return Ok(false);
        }
        let tag = state.sends.posted;
        state
            .qp
            .post_credit(self.traffic.memory.imm(next_expected), tag)?;
        Ok(true)
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
    fn poll(&mut self) -> Result<u32> {
        (self.traffic.calls.poll)(&mut self.cq, &mut self.traffic)
    }

    #[inline]
    fn counts(&self) -> &DataPathCounts {
        &self.traffic.counts
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
        while let Some(event) = self.events.try_next()? {
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
            memory,
            placement,
            ..
        } = &mut self.traffic;
        let (Some(placement), Some(remote)) = (placement, memory.peer) else {
            return Ok(true);
        };
        if !placement.posted {
            placement.posted = true;
            for (state, target) in qps.iter_mut().zip(&placement.targets) {
                state
                    .qp
                    .post_short_read(*target, remote, state.sends.posted)?;
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
