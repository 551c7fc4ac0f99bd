//! Queue pairs: creation, attributes and states.

use std::collections::VecDeque;

use super::Efa;
use super::caps;
use super::counter::{Counter, Event, count};
use super::descriptor::{Completion, Queue, RECEIVE_SIZE, SEND_SIZE, Status};
use super::progress::{InFlight, Message};
use crate::abi::core::{ModifyQp, QP_CREATE_SQ_SIG_ALL, QpCap, QueryQpResp, qp_type};
use crate::abi::efa::{CreateQp as UserCreate, CreateQpResp, QP_SRD};
use crate::attr::Udata;
use crate::errno::{Errno, Result};
use crate::memory::{PAGE, Pinned};
use crate::nic::{CreateQp, Destroyed, Shared};
use crate::qp_state::{self, ERR, INIT, RESET, RTR, RTS, SQD, SQE, mask};

/// Offsets of the doorbells in their page.
const SEND_DOORBELL: u32 = 0;
const RECEIVE_DOORBELL: u32 = 64;

/// A queue in memory of the adapter.
pub(super) struct Ring {
    pub(super) memory: Pinned,
    /// Number of descriptors, a power of 2.
    count: u32,
    size: u16,
    doorbell: u32,
    /// Descriptors that the adapter has taken, modulo 2^16.
    taken: u16,
}

impl Ring {
    /// Takes the next descriptor.
    pub(super) fn take<T: zerocopy::FromBytes + zerocopy::IntoBytes>(
        &mut self,
        doorbells: Pinned,
    ) -> Option<T> {
        let posted = (doorbells.load_u32(u64::from(self.doorbell)) & 0xffff) as u16;
        if posted == self.taken {
            return None;
        }
        let slot = u32::from(self.taken) & (self.count - 1);
        self.taken = self.taken.wrapping_add(1);
        let mut descriptor = T::new_zeroed();
        self.memory.read(
            u64::from(slot) * u64::from(self.size),
            descriptor.as_mut_bytes(),
        );
        Some(descriptor)
    }
}

pub(super) struct Qp {
    pub(super) number: u32,
    pub(super) is_srd: bool,
    pub(super) pd: u32,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) send: Ring,
    pub(super) receive: Ring,
    pub(super) doorbells: Pinned,
    /// Numbers of the shared memory.
    memory: [u32; 3],
    pub(super) state: u8,
    pub(super) qkey: u32,
    pub(super) rnr_retry: u8,
    sq_psn: u32,
    cap: QpCap,
    flags: u32,
    /// SRD requests without a response.
    pub(super) in_flight: Vec<InFlight>,
    /// Sequence number of the next SRD request.
    pub(super) next: u32,
    /// SRD messages that this queue pair has received, with its answers.
    pub(super) received: VecDeque<Message>,
    /// Completion counters with their operations.
    pub(super) counters: Vec<(u32, Counter)>,
}

impl Efa {
    pub(super) fn new_qp(
        &mut self,
        cx: &mut Shared,
        create: &CreateQp,
        udata: &Udata,
    ) -> Result<(u32, u32, QpCap)> {
        let cap = create.cap;
        if cap.max_send_wr > caps::MAX_SQ_WR
            || cap.max_recv_wr > caps::MAX_RQ_WR
            || cap.max_send_sge > u32::from(caps::MAX_SQ_SGE)
            || cap.max_recv_sge > u32::from(caps::MAX_RQ_SGE)
            || cap.max_inline_data > u32::from(super::descriptor::INLINE_SIZE)
        {
            return Err(Errno::EINVAL);
        }
        if !matches!(create.kind, qp_type::UD | qp_type::DRIVER)
            || create.srq.is_some()
            || create.flags & !QP_CREATE_SQ_SIG_ALL != 0
        {
            return Err(Errno::EOPNOTSUPP);
        }
        let user: UserCreate = udata.read()?;
        let is_srd = create.kind == qp_type::DRIVER;
        if is_srd && user.driver_qp_type != QP_SRD {
            return Err(Errno::EOPNOTSUPP);
        }
        let (Some(pd), Some(send_cq), Some(recv_cq), 0) =
            (create.pd, create.send_cq, create.recv_cq, user.comp_mask)
        else {
            return Err(Errno::EINVAL);
        };
        let count = |bytes: u32, size: u16| {
            let count = bytes / u32::from(size);
            (count.is_power_of_two() && bytes.is_multiple_of(u32::from(size)) && count <= 1 << 15)
                .then_some(count)
                .ok_or(Errno::EINVAL)
        };
        let sends = count(user.sq_ring_size, SEND_SIZE)?;
        let receives = count(user.rq_ring_size, RECEIVE_SIZE)?;
        let (send_key, send) = self.share(u64::from(user.sq_ring_size))?;
        let (receive_key, receive) = self.share(u64::from(user.rq_ring_size))?;
        let (doorbell_key, doorbells) = self.share(PAGE)?;
        let ring = |memory, count, size, doorbell| Ring {
            memory,
            count,
            size,
            doorbell,
            taken: 0,
        };
        let number = self.qps.insert(Qp {
            number: 0,
            is_srd,
            pd,
            send_cq,
            recv_cq,
            send: ring(send, sends, SEND_SIZE, SEND_DOORBELL),
            receive: ring(receive, receives, RECEIVE_SIZE, RECEIVE_DOORBELL),
            doorbells,
            memory: [send_key, receive_key, doorbell_key],
            state: RESET,
            qkey: 0,
            rnr_retry: 0,
            sq_psn: 0,
            cap,
            flags: create.flags,
            in_flight: Vec::new(),
            next: 0,
            received: VecDeque::new(),
            counters: Vec::new(),
        })?;
        cx.network.open();
        let qpn = cx.network.qpn(number);
        self.qps.get_mut(number).ok_or(Errno::EINVAL)?.number = qpn;
        udata.write(&CreateQpResp {
            rq_db_offset: RECEIVE_DOORBELL,
            sq_db_offset: SEND_DOORBELL,
            rq_mmap_key: super::offset(receive_key),
            rq_mmap_size: receive.length(),
            rq_db_mmap_key: super::offset(doorbell_key),
            sq_db_mmap_key: super::offset(doorbell_key),
            llq_desc_mmap_key: super::offset(send_key),
            send_sub_cq_idx: 0,
            recv_sub_cq_idx: 1,
            ..CreateQpResp::default()
        })?;
        Ok((number, qpn, cap))
    }

    pub(super) fn change_qp(
        &mut self,
        cx: &mut Shared,
        number: u32,
        modify: &ModifyQp,
    ) -> Result<()> {
        let qp = self.qps.get_mut(number).ok_or(Errno::EINVAL)?;
        let bits = modify.attr_mask;
        let has = |bit: u32| bits & bit != 0;
        if bits & !MODIFIABLE != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let current = if has(mask::CUR_STATE) {
            modify.cur_qp_state
        } else {
            qp.state
        };
        let next = if has(mask::STATE) {
            modify.qp_state
        } else {
            current
        };
        let allowed = if qp.is_srd {
            srd_allowed(current, next, bits)
        } else {
            qp_state::allowed(current, next, qp_type::UD, bits)
        };
        if !allowed {
            return Err(Errno::EINVAL);
        }
        if has(mask::QKEY) {
            qp.qkey = modify.qkey;
        }
        if has(mask::SQ_PSN) {
            qp.sq_psn = modify.sq_psn;
        }
        if has(mask::RNR_RETRY) {
            qp.rnr_retry = modify.rnr_retry;
        }
        if next == RESET {
            qp.reset();
        }
        qp.state = next;
        if next == ERR {
            self.flush(cx, number);
        }
        Ok(())
    }

    pub(super) fn qp_attr(&self, number: u32, bits: u32) -> Result<QueryQpResp> {
        if bits & !QUERYABLE != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let qp = self.qps.get(number).ok_or(Errno::EINVAL)?;
        Ok(QueryQpResp {
            max_send_wr: qp.cap.max_send_wr,
            max_recv_wr: qp.cap.max_recv_wr,
            max_send_sge: qp.cap.max_send_sge,
            max_recv_sge: qp.cap.max_recv_sge,
            max_inline_data: qp.cap.max_inline_data,
            qkey: qp.qkey,
            sq_psn: qp.sq_psn,
            qp_state: qp.state,
            rnr_retry: qp.rnr_retry,
            port_num: 1,
            sq_sig_all: u8::from(qp.flags & QP_CREATE_SQ_SIG_ALL != 0),
            ..QueryQpResp::default()
        })
    }

    /// Removes a queue pair. Its completions stay in their queues.
    pub(super) fn remove_qp(&mut self, number: u32) -> Destroyed {
        if let Some(qp) = self.qps.remove(number) {
            self.unshare(&qp.memory);
        }
        Destroyed::default()
    }

    /// Completes all requests of a queue pair in the error state as flushed.
    fn flush(&mut self, cx: &mut Shared, number: u32) {
        let Some(mut qp) = self.qps.remove(number) else {
            return;
        };
        let doorbells = qp.doorbells;
        let mut sends: Vec<_> = qp.in_flight.drain(..).map(|entry| entry.send).collect();
        while let Some(send) = qp.send.take::<super::descriptor::Send>(doorbells) {
            sends.push(send);
        }
        for send in sends {
            self.complete_send(cx, &qp, &send, Status::Flushed);
        }
        while let Some((id, _)) = qp.take_receive() {
            let status = Status::Flushed;
            count(&qp.counters, Event::Received { status });
            let entry = Completion::new(Queue::Receive, id, qp.number, Status::Flushed);
            self.complete(cx, qp.recv_cq, Queue::Receive, &entry);
        }
        self.qps.put_back(number, qp);
    }
}

impl Qp {
    /// Returns `true` if completion counters can be attached.
    pub(super) fn can_attach(&self) -> bool {
        matches!(self.state, RESET | INIT)
    }

    /// Returns `true` if messages arrive.
    pub(super) fn receives(&self) -> bool {
        matches!(self.state, RTR | RTS | SQD | SQE)
    }

    /// Takes the next receive request: its identifier and its buffers.
    pub(super) fn take_receive(&mut self) -> Option<(u16, Vec<super::descriptor::Receive>)> {
        let first: super::descriptor::Receive = self.receive.take(self.doorbells)?;
        let mut buffers = vec![first];
        while !buffers
            .last()
            .is_some_and(super::descriptor::Receive::is_last)
        {
            buffers.push(self.receive.take(self.doorbells)?);
        }
        Some((first.id, buffers))
    }

    /// Returns the queue pair to the state after its creation. The provider begins at the start of
    /// the rings without writing the doorbells.
    fn reset(&mut self) {
        self.doorbells.write(u64::from(SEND_DOORBELL), &[0; 4]);
        self.doorbells.write(u64::from(RECEIVE_DOORBELL), &[0; 4]);
        self.send.taken = 0;
        self.receive.taken = 0;
        self.qkey = 0;
        self.rnr_retry = 0;
        self.sq_psn = 0;
        self.in_flight.clear();
        self.received.clear();
    }
}

/// Attributes that the driver can modify.
const MODIFIABLE: u32 = mask::STATE
    | mask::CUR_STATE
    | mask::EN_SQD_ASYNC_NOTIFY
    | mask::PKEY_INDEX
    | mask::PORT
    | mask::QKEY
    | mask::SQ_PSN
    | mask::RNR_RETRY;
/// Attributes that the driver can query, with the capacities.
const QUERYABLE: u32 = mask::STATE
    | mask::PKEY_INDEX
    | mask::PORT
    | mask::QKEY
    | mask::SQ_PSN
    | mask::CAP
    | mask::RNR_RETRY;

/// Returns `true` if an SRD queue pair may change between two states with these attributes
/// (`srd_qp_state_table` of the driver).
fn srd_allowed(from: u8, to: u8, bits: u32) -> bool {
    if bits & mask::CUR_STATE != 0 && !matches!(from, RTR | RTS | SQD | SQE) {
        return false;
    }
    let address = mask::PKEY_INDEX | mask::QKEY;
    let resume = mask::CUR_STATE | mask::QKEY;
    let (required, optional) = match (from, to) {
        (_, RESET) | (INIT..=ERR, ERR) => (0, 0),
        (RESET, INIT) => (address | mask::PORT, 0),
        (INIT, INIT) => (0, address | mask::PORT),
        (INIT, RTR) | (SQD, SQD) => (0, address),
        (RTR, RTS) => (mask::SQ_PSN, resume | mask::RNR_RETRY),
        (RTS | SQD | SQE, RTS) => (0, resume),
        (RTS, SQD) => (0, mask::EN_SQD_ASYNC_NOTIFY),
        _ => return false,
    };
    bits & required == required && bits & !(required | optional | mask::STATE) == 0
}
