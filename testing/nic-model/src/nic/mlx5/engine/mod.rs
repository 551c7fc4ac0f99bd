//! The adapter without a driver: its queues, memory keys and network.
//!
//! `testing/mlx5-device` puts the interface of the firmware before it, which Linux's own driver
//! uses. The memory is that of a virtual machine.

mod objects;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use super::cqe::{Cqe, kind};
use super::qp::{Qp, Transport, rings};
use super::{Mlx5, caps, cq};
use crate::abi::core::{GidEntry, ModifyQp, event};
use crate::channels::{ASYNC, COMPLETION, Channels};
use crate::clock::Clock;
use crate::errno::{Errno, Result};
use crate::fault::{DeviceFault, DeviceFaults, Effect};
use crate::keys::{Keys, Region, Target, index};
use crate::memory::{Mapping, Pinned};
use crate::network::Network;
use crate::network::packet::{self, Header, Packet, flag};
use crate::nic::{CreateCq, CreateSrq, EventTarget, Nic, Shared};
use crate::options::Link;
use crate::qp_state::{self, mask};
use crate::syscall;

pub use crate::network::{Counters, Traffic};
pub use objects::*;

/// First part of the names of networks, which only engines use.
const NETWORK: &str = "mlx5-engine";
/// Index of the queue pair of the general services.
const GENERAL_SERVICES: u32 = 1;
/// Packets that one step delivers at most.
const PACKETS_PER_STEP: usize = 64;

/// Objects whose memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Object {
    Key,
    CompletionQueue,
    QueuePair,
    SharedReceiveQueue,
}

/// Part of the handles of queue pairs and of shared receive queues in asynchronous events. Other
/// handles are the numbers of completion queues.
const QUEUE_PAIR: u64 = 1 << 32;
const SHARED_RECEIVE_QUEUE: u64 = 1 << 33;

/// The adapter without a driver.
pub struct Engine {
    nic: Mlx5,
    cx: Shared,
    /// Mappings of the memory of objects. They are dropped after the objects.
    mappings: HashMap<(Object, u32), Vec<Mapping>>,
    completions: Pipe,
    asynchronous: Pipe,
    faults: DeviceFaults,
    /// Effects of faults that the driver must learn of.
    reports: Vec<Event>,
    agent: Option<Agent>,
}

/// Answers a datagram to queue pair 1 in place of the driver. It gets the number of the adapter,
/// the counters of its port and the datagram. It returns `None` if the datagram is for the driver.
pub type Agent = fn(u32, &Counters, &[u8]) -> Option<Vec<u8>>;

/// The end of a channel that a driver reads.
struct Pipe {
    channel: u32,
    reader: File,
}

impl Pipe {
    fn new(channels: &mut Channels, size: usize) -> Result<Self> {
        let (channel, reader) = channels.create(size)?;
        let reader = File::from(reader);
        syscall::set_nonblocking(reader.as_raw_fd())?;
        Ok(Self { channel, reader })
    }

    /// Returns the next event.
    fn next<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        let mut event = [0; SIZE];
        self.reader.read_exact(&mut event).ok().map(|()| event)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// Creates an adapter that reaches only itself.
    ///
    /// # Errors
    /// Fails if the process cannot open more files.
    pub fn new() -> io::Result<Self> {
        Self::with_network(None)
    }

    /// Creates an adapter that reaches the adapters with the same network in other processes of the
    /// user.
    ///
    /// # Errors
    /// Fails if the process cannot open more files.
    pub fn connected(network: &str) -> io::Result<Self> {
        Self::with_network(Some(network))
    }

    fn with_network(name: Option<&str>) -> io::Result<Self> {
        let mut channels = Channels::new();
        let completions = Pipe::new(&mut channels, COMPLETION)?;
        let asynchronous = Pipe::new(&mut channels, ASYNC)?;
        let largest = packet::MULTICAST_QPN;
        let device = format!("{NETWORK}-{}", name.unwrap_or_default());
        let mut network = Network::new(device, caps::QPN_BITS, largest, name.is_none());
        network.groups_reach_others = true;
        network.open();
        let lid = u16::try_from(network.node).unwrap_or(u16::MAX);
        Ok(Self {
            nic: Mlx5::new(),
            cx: Shared {
                keys: Keys::new(caps::MAX_KEYS),
                channels,
                network,
                clock: Clock::new(false),
                link: Link::InfiniBand,
                lid,
                gids: Vec::new(),
                sent: 0,
                received: 0,
                has_failed: false,
            },
            mappings: HashMap::new(),
            completions,
            asynchronous,
            faults: DeviceFaults::default(),
            reports: Vec::new(),
            agent: None,
        })
    }

    /// Returns the number of the adapter in its network, from 1, which is its LID as well.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.cx.network.node
    }

    /// Sets the first GID of the port, which datagrams with a global route header contain.
    pub fn set_gid(&mut self, gid: [u8; 16]) {
        self.cx.gids = vec![GidEntry {
            gid: zerocopy::transmute!(gid),
            port_num: 1,
            ..GidEntry::default()
        }];
    }

    /// Sets the agent that answers datagrams to queue pair 1.
    pub fn set_agent(&mut self, agent: Agent) {
        self.agent = Some(agent);
    }

    /// Returns the counters of the port.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.cx.network.counters
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.mappings.len()
    }

    /// Returns `true` unless a fault has taken the link of the port down.
    #[must_use]
    pub fn is_link_up(&self) -> bool {
        self.cx.network.link_up
    }

    /// Orders a fault for the next step.
    pub fn fail(&mut self, fault: DeviceFault) {
        self.faults.order(fault);
    }

    /// Ends all faults. Only a reset ends a fatal error.
    pub fn repair(&mut self) {
        if !self.cx.has_failed {
            self.faults.repair();
        }
        self.set_link(true);
    }

    fn set_link(&mut self, up: bool) {
        if self.cx.network.link_up != up {
            self.cx.network.link_up = up;
            self.cx.network.counters.link_downed += u64::from(!up);
            self.reports.push(Event::Link { up });
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Link { up } => self.set_link(up),
            Effect::LoseEvent => self.cx.channels.lose_next = true,
            Effect::Fail => {
                self.cx.has_failed = true;
                self.reports.push(Event::Fatal);
            }
        }
    }

    /// Removes all objects, and ends faults except that of the link.
    pub fn reset(&mut self) {
        self.faults.repair();
        self.cx.has_failed = false;
        self.nic = Mlx5::new();
        self.cx.keys = Keys::new(caps::MAX_KEYS);
        self.mappings.clear();
    }

    /// Creates a memory key and returns its index: the upper 24 bits.
    ///
    /// # Errors
    /// Fails if the memory is too short or if there are too many keys.
    pub fn create_key(&mut self, new: &MemoryKey<'_>) -> io::Result<u32> {
        let mut mappings = Vec::new();
        let region = |memory| {
            Target::Region(Region {
                memory,
                iova: new.iova,
                access: new.access,
                mapping: None,
            })
        };
        let target = match &new.memory {
            KeyMemory::Nothing => region(Pinned::of_model(std::ptr::null_mut(), 0)),
            KeyMemory::Region(buffer) => region(map(buffer, new.length, &mut mappings)?),
            KeyMemory::Window(kind) => Target::Window {
                kind: *kind,
                bound: None,
            },
        };
        let value = self.cx.keys.insert_variant(new.pd, target, new.variant)?;
        self.mappings.insert((Object::Key, index(value)), mappings);
        Ok(index(value))
    }

    /// Destroys a memory key. Returns `false` if it does not exist.
    pub fn destroy_key(&mut self, index: u32) -> bool {
        self.cx.keys.remove(index);
        self.mappings.remove(&(Object::Key, index)).is_some()
    }

    /// Creates a completion queue and returns its number.
    ///
    /// # Errors
    /// Fails if the memory is too short, if the sizes are invalid, or if there are too many queues.
    pub fn create_cq(&mut self, new: &CompletionQueue<'_>) -> io::Result<u32> {
        let mut mappings = Vec::new();
        let last = new.entries.checked_sub(1).ok_or(Errno::EINVAL)?;
        let length = cq::check(last, new.entry_size)?;
        let memory = map(&new.memory, length, &mut mappings)?;
        let doorbell = map(&new.doorbell, 8, &mut mappings)?;
        let events = EventTarget {
            channel: Some(self.asynchronous.channel),
            user_handle: 0,
        };
        let create = CreateCq {
            entries: last,
            comp_channel: Some(self.completions.channel),
            events,
        };
        let number = self.nic.add_cq(&create, memory, doorbell, new.entry_size)?;
        self.nic.name_cq(number);
        self.mappings
            .insert((Object::CompletionQueue, number), mappings);
        Ok(number)
    }

    /// Replaces the entries of a completion queue. The driver copies those that it has not read.
    ///
    /// # Errors
    /// Fails if the queue does not exist, if the memory is too short, or if there are more unread
    /// entries.
    pub fn resize_cq(
        &mut self,
        number: u32,
        entries: u32,
        entry_size: u32,
        memory: &Buffer<'_>,
    ) -> io::Result<()> {
        let object = (Object::CompletionQueue, number);
        let last = entries.checked_sub(1).ok_or(Errno::EINVAL)?;
        let mut mappings = Vec::new();
        let memory = map(memory, cq::check(last, entry_size)?, &mut mappings)?;
        self.nic
            .replace_cq(&mut self.cx, number, last, entry_size, memory)?;
        // The old entries stay mapped with the doorbell record.
        self.mappings.entry(object).or_default().extend(mappings);
        Ok(())
    }

    /// Destroys a completion queue. Returns `false` if it does not exist.
    pub fn destroy_cq(&mut self, number: u32) -> bool {
        self.nic.remove_cq(number);
        self.mappings
            .remove(&(Object::CompletionQueue, number))
            .is_some()
    }

    /// Creates a queue pair and returns its number.
    ///
    /// # Errors
    /// Fails if the memory is too short or if there are too many queue pairs.
    pub fn create_qp(&mut self, new: &QueuePair<'_>) -> io::Result<u32> {
        let mut mappings = Vec::new();
        let receives = u64::from(new.receives) << new.log_receive_size;
        let length = receives + u64::from(new.send_blocks) * 64;
        let mut qp = Qp::new(
            match new.service {
                Service::Reliable | Service::KeyChanges => Transport::Rc,
                Service::Unreliable => Transport::Uc,
                Service::Datagram | Service::SubnetManagement | Service::GeneralServices => {
                    Transport::Ud
                }
                Service::XrcInitiator => Transport::XrcInitiator,
                Service::XrcTarget => Transport::XrcTarget,
            },
            EventTarget {
                channel: Some(self.asynchronous.channel),
                user_handle: 0,
            },
        );
        if length > 0 {
            let memory = map(&new.memory, length, &mut mappings)?;
            (qp.receive, qp.send) =
                rings(&memory, new.receives, new.log_receive_size, new.send_blocks);
            qp.doorbell = Some(map(&new.doorbell, 8, &mut mappings)?);
        }
        qp.pd = Some(new.pd);
        qp.send_cq = Some(new.send_cq);
        qp.recv_cq = Some(new.receive_cq);
        qp.srq = new.srq;
        qp.xrcd = new.xrcd;
        qp.uidx = new.user_index;
        qp.special = match new.service {
            Service::SubnetManagement => Some(0),
            Service::GeneralServices => Some(1),
            _ => None,
        };
        qp.changes_regions = new.service == Service::KeyChanges;
        let special = qp.special;
        let (index, number) = self.nic.add_qp(&mut self.cx, qp)?;
        if let Some(special) = special {
            self.nic.special[usize::from(special)] = Some(index);
        }
        self.nic.with_qp(index, |_, qp| {
            qp.events.user_handle = QUEUE_PAIR | u64::from(number);
        });
        self.mappings.insert((Object::QueuePair, number), mappings);
        Ok(number)
    }

    /// Creates a shared receive queue and returns its number.
    ///
    /// # Errors
    /// Fails if the memory is too short or if there are too many queues.
    pub fn create_srq(&mut self, new: &SharedReceiveQueue<'_>) -> io::Result<u32> {
        let mut mappings = Vec::new();
        let length = u64::from(new.requests) << new.log_request_size;
        let memory = map(&new.memory, length, &mut mappings)?;
        let doorbell = map(&new.doorbell, 8, &mut mappings)?;
        // The first 16 bytes have the index of the next request.
        let stride = 1_u32.checked_shl(new.log_request_size).unwrap_or(0);
        if stride < 32 {
            return Err(Errno::EINVAL.into());
        }
        let create = CreateSrq {
            pd: new.pd,
            xrc: new.xrc,
            max_wr: new.requests,
            max_sge: stride / 16 - 1,
            limit: 0,
            events: EventTarget {
                channel: Some(self.asynchronous.channel),
                user_handle: 0,
            },
        };
        let nic = &mut self.nic;
        let number = nic.add_srq(&create, memory, doorbell, stride, new.user_index)?;
        nic.name_srq(number, SHARED_RECEIVE_QUEUE | u64::from(number));
        self.mappings
            .insert((Object::SharedReceiveQueue, number), mappings);
        Ok(number)
    }

    /// Sets the limit of a shared receive queue, below which it reports an event.
    ///
    /// # Errors
    /// Fails if it does not exist, or if the limit is above its size.
    pub fn limit_srq(&mut self, number: u32, limit: u32) -> io::Result<()> {
        Ok(self.nic.modify_srq(number, limit)?)
    }

    /// Returns the limit of a shared receive queue, or `None` if it does not exist.
    #[must_use]
    pub fn srq_limit(&self, number: u32) -> Option<u32> {
        self.nic.query_srq(number).ok().map(|attr| attr.limit)
    }

    /// Destroys a shared receive queue. Returns `false` if it does not exist.
    pub fn destroy_srq(&mut self, number: u32) -> bool {
        self.nic.remove_srq(number);
        self.mappings
            .remove(&(Object::SharedReceiveQueue, number))
            .is_some()
    }

    /// Returns the state of a queue pair, or `None` if it does not exist.
    #[must_use]
    pub fn state(&self, number: u32) -> Option<State> {
        self.mappings.get(&(Object::QueuePair, number))?;
        let index = self.cx.network.local_index(number)?;
        Some(match self.nic.qp_state(index) {
            qp_state::RESET => State::Reset,
            qp_state::INIT => State::Init,
            qp_state::RTR => State::ReadyToReceive,
            qp_state::RTS => State::ReadyToSend,
            _ => State::Error,
        })
    }

    /// Changes a queue pair and its state.
    ///
    /// # Errors
    /// Fails if it does not exist, or if the state cannot follow the present one.
    pub fn modify_qp(&mut self, number: u32, state: State, change: &Change) -> io::Result<()> {
        let index = self.cx.network.local_index(number).ok_or(Errno::EINVAL)?;
        let modify = modification(state, change);
        Ok(self.nic.modify(&mut self.cx, index, &modify)?)
    }

    /// Adds a queue pair to a multicast group, or removes it.
    ///
    /// # Errors
    /// Fails if the queue pair does not exist, or if it is not in the group.
    pub fn join(&mut self, number: u32, group: [u8; 16], member: bool) -> io::Result<()> {
        let index = self.cx.network.local_index(number).ok_or(Errno::EINVAL)?;
        let joined = if member {
            self.nic.attach_multicast(index, group)
        } else {
            self.nic.detach_multicast(index, group)
        };
        Ok(joined?)
    }

    /// Destroys a queue pair. Returns `false` if it does not exist.
    pub fn destroy_qp(&mut self, number: u32) -> bool {
        if let Some(index) = self.cx.network.local_index(number) {
            self.nic.remove_qp(index);
        }
        self.mappings.remove(&(Object::QueuePair, number)).is_some()
    }

    /// Completes a request without an operation of a queue that is not a queue pair.
    pub fn complete_empty_request(&mut self, cq: u32, number: u32, user_index: u32, counter: u16) {
        let cqe = Cqe {
            srqn_uidx: user_index.into(),
            sop_drop_qpn: number.into(),
            wqe_counter: counter.into(),
            ..Cqe::default()
        };
        self.nic.complete(&mut self.cx, cq, cqe, kind::REQ, false);
    }

    /// Executes posted requests, handles packets and timers. Returns `true` if there was work.
    pub fn step(&mut self) -> bool {
        let now = self.cx.clock.now();
        if let Some(effect) = self.faults.next(self.cx.network.sent, now) {
            self.apply(effect);
        }
        if self.faults.stopped {
            return false;
        }
        let mut worked = self.cx.network.poll();
        worked |= self.nic.step(&mut self.cx);
        for _ in 0..PACKETS_PER_STEP {
            let Some(packet) = self.cx.network.receive(self.cx.clock.now()) else {
                break;
            };
            worked = true;
            if packet.header.kind != packet::MANAGEMENT && !self.answer(&packet) {
                self.nic.receive(&mut self.cx, packet);
            }
        }
        self.cx.channels.flush();
        worked
    }

    /// Passes a datagram to queue pair 1 to the agent. Returns `true` if it has sent an answer.
    fn answer(&mut self, packet: &Packet) -> bool {
        let request = &packet.header;
        let network = &mut self.cx.network;
        let is_management = request.flags & flag::DATAGRAM != 0
            && network.local_index(request.destination) == Some(GENERAL_SERVICES);
        let agent = self.agent.filter(|_| is_management);
        let payload =
            agent.and_then(|answer| answer(network.node, &network.counters, &packet.payload));
        let Some(payload) = payload else {
            return false;
        };
        let header = Header {
            source: GENERAL_SERVICES,
            source_lid: self.cx.lid,
            source_gid: request.destination_gid,
            destination: network.datagram_destination(request.source_lid, request.source),
            destination_gid: request.source_gid,
            ..*request
        };
        network.send(Packet { header, payload }, self.cx.clock.now());
        true
    }

    /// Returns the events since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.reports);
        while let Some(bytes) = self.completions.next() {
            let number = u32::try_from(u64::from_ne_bytes(bytes)).unwrap_or(0);
            events.push(Event::Completion(number));
        }
        while let Some(bytes) = self.asynchronous.next::<ASYNC>() {
            let (handle, kind) = bytes.split_at(8);
            let handle = u64::from_ne_bytes(handle.try_into().unwrap_or_default());
            let kind = u32::from_ne_bytes(kind[..4].try_into().unwrap_or_default());
            let number = u32::try_from(handle & u64::from(u32::MAX)).unwrap_or(0);
            events.extend(match kind {
                event::CQ_ERR => Some(Event::CompletionQueueError(number)),
                event::QP_REQ_ERR => Some(Event::InvalidRequest(number)),
                event::QP_ACCESS_ERR => Some(Event::AccessError(number)),
                event::QP_LAST_WQE_REACHED => Some(Event::LastRequest(number)),
                event::SRQ_LIMIT_REACHED => Some(Event::LimitReached(number)),
                _ => None,
            });
        }
        events
    }
}

/// Maps the first `length` bytes of a buffer.
fn map(buffer: &Buffer<'_>, length: u64, mappings: &mut Vec<Mapping>) -> Result<Pinned> {
    let mapping = Mapping::new(&buffer.parts)?;
    let memory = mapping.part(buffer.offset, length).ok_or(Errno::EINVAL)?;
    mappings.push(mapping);
    Ok(memory)
}

/// Returns the command of the kernel's core for a change.
fn modification(state: State, change: &Change) -> ModifyQp {
    let mut modify = ModifyQp {
        attr_mask: mask::STATE,
        qp_state: state as u8,
        ..ModifyQp::default()
    };
    macro_rules! set {
        ($($field:ident: $bit:ident, $($to:ident).+;)+) => {
            $(if let Some(value) = change.$field {
                modify.attr_mask |= mask::$bit;
                modify.$($to).+ = value;
            })+
        };
    }
    set! {
        access: ACCESS_FLAGS, qp_access_flags;
        qkey: QKEY, qkey;
        service_level: AV, dest.sl;
        path_mtu: PATH_MTU, path_mtu;
        peer: DEST_QPN, dest_qp_num;
        receive_psn: RQ_PSN, rq_psn;
        send_psn: SQ_PSN, sq_psn;
        reads_of_peer: MAX_DEST_RD_ATOMIC, max_dest_rd_atomic;
        reads: MAX_QP_RD_ATOMIC, max_rd_atomic;
        min_rnr_timer: MIN_RNR_TIMER, min_rnr_timer;
        timeout: TIMEOUT, timeout;
        retries: RETRY_CNT, retry_cnt;
        rnr_retries: RNR_RETRY, rnr_retry;
    }
    modify
}
