//! Queue pairs: creation, attributes and states.

use super::Mlx5;
use super::progress::{Requester, Responder};
use super::streams::Streams;
use super::wqe::Layout;
use crate::abi::core::{ModifyQp, QP_CREATE_SQ_SIG_ALL, QpCap, QueryQpResp, event, qp_type};
use crate::abi::mlx5::{
    CreateQp as UserCreate, CreateQpResp, ModifyQp as UserModify, ModifyQpResp, QP_FLAG_DCI_STREAM,
    QP_FLAG_SCATTER_CQE, QP_FLAG_SIGNATURE, QP_FLAG_TYPE_DCI, QP_FLAG_TYPE_DCT,
};
use crate::attr::Udata;
use crate::errno::{Errno, Result};
use crate::memory::{self, Pinned};
use crate::nic::{CreateQp, Destroyed, EventTarget, Shared};
use crate::options::Link;
use crate::qp_state::{ERR, INIT, RESET, RTR, RTS, SQD, SQE, mask};
use crate::trace::trace;

/// Maximum number of RDMA READ and atomic operations in flight, in each direction.
pub(super) const MAX_READS: u8 = 16;
/// Largest `ibv_mtu`: 4096 bytes.
const MAX_MTU: u8 = 5;

/// Types of queue pairs that the adapter handles differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Rc,
    Uc,
    Ud,
    XrcInitiator,
    XrcTarget,
    DcInitiator,
    DcTarget,
}

impl Transport {
    /// Returns `true` if requests are acknowledged.
    pub(super) fn is_reliable(self) -> bool {
        !matches!(self, Self::Uc | Self::Ud)
    }

    pub(super) fn layout(self) -> Layout {
        Layout {
            xrc: self == Self::XrcInitiator,
            address_vector: matches!(self, Self::Ud | Self::DcInitiator),
        }
    }
}

/// A queue in memory of the program.
pub(super) struct Ring {
    pub(super) memory: Pinned,
    /// Number of blocks, a power of 2.
    pub(super) blocks: u32,
    /// Size of a block as a power of 2.
    pub(super) shift: u32,
    /// Blocks that the adapter has taken, modulo 2^16.
    pub(super) taken: u16,
}

impl Ring {
    /// Returns the offset of a block.
    pub(super) fn offset(&self, index: u16) -> u64 {
        u64::from(u32::from(index) & (self.blocks - 1)) << self.shift
    }

    /// Takes a request of this number of blocks, at most those that are posted: the number is in
    /// the request, which may be malformed.
    pub(super) fn take(&mut self, blocks: u16, posted: u16) {
        let left = posted.wrapping_sub(self.taken);
        self.taken = self.taken.wrapping_add(blocks.min(left));
    }
}

pub(super) struct Qp {
    pub(super) number: u32,
    pub(super) transport: Transport,
    /// Number 0 or 1 that other ports see, if it is a queue pair for management datagrams.
    pub(super) special: Option<u8>,
    /// Requests may change keys of registered memory: the queue pair belongs to the kernel.
    pub(super) changes_regions: bool,
    pub(super) pd: Option<u32>,
    pub(super) send_cq: Option<u32>,
    pub(super) recv_cq: Option<u32>,
    pub(super) srq: Option<u32>,
    pub(super) xrcd: Option<u32>,
    /// Number that the provider uses to find the queue pair of a completion.
    pub(super) uidx: u32,
    pub(super) dc_key: u64,
    pub(super) receive: Option<Ring>,
    pub(super) send: Option<Ring>,
    pub(super) doorbell: Option<Pinned>,
    pub(super) state: u8,
    pub(super) attr: ModifyQp,
    cap: QpCap,
    flags: u32,
    /// Short data of messages and responses is delivered in the completion ("scatter to CQE").
    pub(super) scatters_messages: bool,
    pub(super) scatters_responses: bool,
    pub(super) groups: Vec<[u8; 16]>,
    /// Requests in flight. On a queue pair with streams, those of the current stream.
    pub(super) requester: Requester,
    /// Streams of a DC initiator.
    pub(super) streams: Option<Streams>,
    pub(super) responder: Responder,
    pub(super) events: EventTarget,
    pub(super) async_events: u32,
}

/// Offsets of the doorbell record.
const RECEIVE: u64 = 0;
const SEND: u64 = 4;

/// Returns the queues in the memory of a queue pair: `rq` receive requests of `1 << shift` bytes,
/// and `sq` blocks of the send queue.
pub(super) fn rings(memory: &Pinned, rq: u32, shift: u32, sq: u32) -> (Option<Ring>, Option<Ring>) {
    let ring = |offset, blocks: u32, shift| {
        let memory = memory.part(offset, u64::from(blocks) << shift)?;
        (blocks > 0).then_some(Ring {
            memory,
            blocks,
            shift,
            taken: 0,
        })
    };
    (ring(0, rq, shift), ring(u64::from(rq) << shift, sq, 6))
}

impl Qp {
    /// Returns a queue pair without queues.
    pub(super) fn new(transport: Transport, events: EventTarget) -> Self {
        Self {
            number: 0,
            transport,
            special: None,
            changes_regions: false,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: None,
            uidx: 0,
            dc_key: 0,
            receive: None,
            send: None,
            doorbell: None,
            state: RESET,
            attr: ModifyQp::default(),
            cap: QpCap::default(),
            flags: 0,
            scatters_messages: false,
            scatters_responses: false,
            groups: Vec::new(),
            requester: Requester::default(),
            streams: None,
            responder: Responder::default(),
            events,
            async_events: 0,
        }
    }

    /// Returns the number of posted blocks of the send queue, modulo 2^16.
    pub(super) fn send_posted(&self) -> u16 {
        self.posted(SEND)
    }

    pub(super) fn receive_posted(&self) -> u16 {
        self.posted(RECEIVE)
    }

    fn posted(&self, offset: u64) -> u16 {
        let count = self.doorbell.map_or(0, |record| record.load_be32(offset));
        (count & 0xffff) as u16
    }

    /// Returns the size of a packet on a network, in bytes.
    pub(super) fn mtu(&self) -> u32 {
        128 << u32::from(self.attr.path_mtu.clamp(1, MAX_MTU))
    }

    pub(super) fn report(&mut self, cx: &mut Shared, event: u32) {
        self.async_events += 1;
        self.events.report(&mut cx.channels, event);
    }
}

/// Returns the transport of a new queue pair.
fn transport(kind: u8, flags: u32) -> Result<Transport> {
    Ok(match kind {
        qp_type::RC => Transport::Rc,
        qp_type::UC => Transport::Uc,
        qp_type::UD => Transport::Ud,
        qp_type::XRC_INI => Transport::XrcInitiator,
        qp_type::XRC_TGT => Transport::XrcTarget,
        qp_type::DRIVER if flags & QP_FLAG_TYPE_DCI != 0 => Transport::DcInitiator,
        qp_type::DRIVER if flags & QP_FLAG_TYPE_DCT != 0 => Transport::DcTarget,
        _ => return Err(Errno::EOPNOTSUPP),
    })
}

impl Mlx5 {
    pub(super) fn new_qp(
        &mut self,
        cx: &mut Shared,
        create: &CreateQp,
        udata: &Udata,
    ) -> Result<(u32, u32, QpCap)> {
        let user: UserCreate = udata.read()?;
        let transport = transport(create.kind, user.flags)?;
        if user.flags & QP_FLAG_SIGNATURE != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let streams = (user.flags & QP_FLAG_DCI_STREAM != 0)
            .then(|| Streams::new(user.dci_streams))
            .transpose()?;
        if streams.is_some() && transport != Transport::DcInitiator {
            return Err(Errno::EINVAL);
        }
        let has_queues = !matches!(transport, Transport::XrcTarget | Transport::DcTarget);
        if (has_queues && create.send_cq.is_none())
            || (matches!(transport, Transport::Rc | Transport::Uc | Transport::Ud)
                && create.recv_cq.is_none())
        {
            return Err(Errno::EINVAL);
        }
        let mut receive = None;
        let mut send = None;
        let mut doorbell = None;
        if has_queues {
            let (rq, sq) = (user.rq_wqe_count, user.sq_wqe_count);
            let valid = |count: u32| count == 0 || (count.is_power_of_two() && count <= 1 << 15);
            if !valid(rq) || !valid(sq) || !(rq == 0 || (4..=10).contains(&user.rq_wqe_shift)) {
                return Err(Errno::EINVAL);
            }
            let rq_size = u64::from(rq) << user.rq_wqe_shift;
            let memory = memory::pin(user.buf_addr, rq_size + u64::from(sq) * 64, true)?;
            (receive, send) = rings(&memory, rq, user.rq_wqe_shift, sq);
            doorbell = Some(memory::pin(user.db_addr, 8, true)?);
        }
        // As `create_user_qp` of the driver: `configure_responder_scat_cqe` and
        // `configure_requester_scat_cqe`.
        let scatters = user.flags & QP_FLAG_SCATTER_CQE != 0;
        let signals_all = create.flags & QP_CREATE_SQ_SIG_ALL != 0;
        let (number, qpn) = self.add_qp(
            cx,
            Qp {
                scatters_messages: scatters && matches!(transport, Transport::Rc | Transport::Uc),
                scatters_responses: scatters && transport == Transport::Rc && signals_all,
                pd: create.pd,
                send_cq: create.send_cq,
                recv_cq: create.recv_cq,
                srq: create.srq,
                xrcd: create.xrcd,
                uidx: user.uidx,
                dc_key: user.access_key,
                receive,
                send,
                doorbell,
                cap: create.cap,
                flags: create.flags,
                streams,
                ..Qp::new(transport, create.events)
            },
        )?;
        udata.write(&CreateQpResp {
            bfreg_index: user.bfreg_index,
            ece_options: user.ece_options,
            ..CreateQpResp::default()
        })?;
        Ok((number, qpn, create.cap))
    }

    /// Adds a queue pair, and returns its index and its number.
    pub(super) fn add_qp(&mut self, cx: &mut Shared, qp: Qp) -> Result<(u32, u32)> {
        let index = self.qps.insert(qp)?;
        cx.network.open();
        let qpn = cx.network.qpn(index);
        self.qps.get_mut(index).ok_or(Errno::EINVAL)?.number = qpn;
        Ok((index, qpn))
    }

    pub(super) fn change_qp(
        &mut self,
        cx: &mut Shared,
        number: u32,
        modify: &ModifyQp,
        udata: &Udata,
    ) -> Result<()> {
        let user: UserModify = udata.read()?;
        self.modify(cx, number, modify)?;
        let qp = self.qps.get(number).ok_or(Errno::EINVAL)?;
        let is_new_target = qp.transport == Transport::DcTarget && qp.state == RTR;
        udata.write(&ModifyQpResp {
            response_length: 16,
            ece_options: user.ece_options,
            dctn: if is_new_target { qp.number } else { 0 },
            ..ModifyQpResp::default()
        })
    }

    /// Changes attributes and the state of a queue pair.
    pub(super) fn modify(&mut self, cx: &mut Shared, number: u32, modify: &ModifyQp) -> Result<()> {
        let qp = self.qps.get_mut(number).ok_or(Errno::EINVAL)?;
        let bits = modify.attr_mask;
        let remote = cx.network.is_remote(qp.attr.dest_qp_num);
        let next = if bits & mask::STATE != 0 {
            modify.qp_state
        } else {
            qp.state
        };
        check_driver(cx, qp, modify, next)?;
        copy_attributes(&mut qp.attr, modify);
        match next {
            RESET => reset(qp),
            ERR => {}
            _ => {
                if bits & mask::RQ_PSN != 0 {
                    qp.responder = Responder::new(modify.rq_psn);
                }
                if bits & mask::SQ_PSN != 0 {
                    qp.requester = Requester::new(modify.sq_psn, &qp.attr, remote);
                }
                qp.state = next;
            }
        }
        if next == ERR {
            self.with_qp(number, |nic, qp| nic.enter_error(cx, qp));
        }
        Ok(())
    }

    pub(super) fn qp_attr(&self, number: u32) -> Result<QueryQpResp> {
        let qp = self.qps.get(number).ok_or(Errno::EINVAL)?;
        let attr = &qp.attr;
        Ok(QueryQpResp {
            dest: attr.dest,
            alt_dest: attr.alt_dest,
            max_send_wr: qp.cap.max_send_wr,
            max_recv_wr: qp.receive.as_ref().map_or(0, |ring| ring.blocks),
            max_send_sge: qp.cap.max_send_sge,
            max_recv_sge: qp.cap.max_recv_sge,
            max_inline_data: qp.cap.max_inline_data,
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qp_num,
            qp_access_flags: attr.qp_access_flags,
            pkey_index: attr.pkey_index,
            alt_pkey_index: attr.alt_pkey_index,
            qp_state: qp.state,
            cur_qp_state: qp.state,
            path_mtu: attr.path_mtu,
            path_mig_state: attr.path_mig_state,
            sq_draining: 0,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port_num,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            alt_port_num: attr.alt_port_num,
            alt_timeout: attr.alt_timeout,
            sq_sig_all: u8::from(qp.flags & QP_CREATE_SQ_SIG_ALL != 0),
            reserved: [0; 5],
        })
    }

    pub(super) fn remove_qp(&mut self, number: u32) -> Destroyed {
        for special in &mut self.special {
            *special = special.filter(|index| *index != number);
        }
        let qp = self.qps.remove(number);
        if let Some(qp) = qp.as_ref().filter(|qp| qp.transport == Transport::DcTarget) {
            trace(|| format!("DC target executed {} requests", qp.responder.executed));
        }
        Destroyed {
            completion: 0,
            asynchronous: qp.map_or(0, |qp| qp.async_events),
        }
    }

    /// Moves a queue pair to the error state and flushes its requests. A DC target has no such
    /// state (`MLX5_DCTC_STATE_*` in the kernel's headers), because it serves many initiators.
    pub(super) fn enter_error(&mut self, cx: &mut Shared, qp: &mut Qp) {
        if qp.state == ERR || qp.transport == Transport::DcTarget {
            return;
        }
        qp.state = ERR;
        self.flush(cx, qp);
        if qp.srq.is_some() {
            qp.report(cx, event::QP_LAST_WQE_REACHED);
        }
    }

    /// Calls a function with a queue pair that is taken out of the table for the time being.
    pub(super) fn with_qp<R>(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut Self, &mut Qp) -> R,
    ) -> Option<R> {
        let mut qp = self.qps.remove(number)?;
        let result = change(self, &mut qp);
        self.qps.put_back(number, qp);
        Some(result)
    }
}

/// Checks a modification as the driver does.
fn check_driver(cx: &Shared, qp: &Qp, modify: &ModifyQp, next: u8) -> Result<()> {
    let has = |bit: u32| modify.attr_mask & bit != 0;
    // The driver has no command from RTS to SQD: only the adapter itself drains a send queue.
    let known = match (qp.state, next) {
        (_, RESET) | (RESET | INIT, INIT) | (INIT, RTR) | (RTR | RTS | SQD | SQE, RTS) => true,
        (from, ERR) => from != RESET,
        _ => false,
    };
    if !known
        || !dc_allowed(qp, modify.attr_mask, next)
        || (has(mask::MAX_QP_RD_ATOMIC) && modify.max_rd_atomic > MAX_READS)
        || (has(mask::MAX_DEST_RD_ATOMIC) && modify.max_dest_rd_atomic > MAX_READS)
        || (has(mask::PATH_MTU) && !(1..=MAX_MTU).contains(&modify.path_mtu))
        || (has(mask::AV) && cx.link == Link::Ethernet && modify.dest.is_global == 0)
    {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Returns `true` unless a DC queue pair changes in a way that the driver refuses
/// (`modify_dci_qp_is_ok` and `mlx5_ib_modify_dct`).
fn dc_allowed(qp: &Qp, bits: u32, next: u8) -> bool {
    let address = mask::PKEY_INDEX | mask::PORT;
    let retries = mask::TIMEOUT | mask::RETRY_CNT | mask::RNR_RETRY;
    let (required, optional) = match (qp.transport, qp.state, next) {
        (Transport::DcInitiator, _, RESET) | (Transport::DcInitiator, INIT..=ERR, ERR) => (0, 0),
        (Transport::DcInitiator, RESET, INIT) => (address, 0),
        (Transport::DcInitiator, INIT, INIT) => (0, address),
        (Transport::DcInitiator, INIT, RTR) => (mask::PATH_MTU, mask::PKEY_INDEX | mask::AV),
        (Transport::DcInitiator, RTR, RTS) => (
            retries | mask::MAX_QP_RD_ATOMIC | mask::SQ_PSN,
            mask::MIN_RNR_TIMER,
        ),
        (Transport::DcInitiator, RTS, RTS) => (0, mask::MIN_RNR_TIMER),
        (Transport::DcTarget, RESET, INIT) => (address | mask::ACCESS_FLAGS, 0),
        (Transport::DcTarget, INIT, RTR) => (mask::MIN_RNR_TIMER | mask::AV | mask::PATH_MTU, 0),
        (Transport::DcInitiator | Transport::DcTarget, ..) => return false,
        _ => return true,
    };
    bits & required == required && bits & !(required | optional | mask::STATE) == 0
}

/// Copies the attributes that the mask names.
fn copy_attributes(to: &mut ModifyQp, from: &ModifyQp) {
    let has = |bit: u32| from.attr_mask & bit != 0;
    macro_rules! copy {
        ($($bit:ident: $($field:ident),+;)+) => {
            $(if has(mask::$bit) { $(to.$field = from.$field;)+ })+
        };
    }
    copy! {
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: dest;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        ALT_PATH: alt_dest, alt_pkey_index, alt_port_num, alt_timeout;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qp_num;
    }
}

/// Returns a queue pair to the state after its creation. The provider resets the doorbell record.
fn reset(qp: &mut Qp) {
    qp.state = RESET;
    qp.requester = Requester::default();
    if let Some(streams) = &mut qp.streams {
        streams.reset();
    }
    qp.responder = Responder::default();
    for ring in [&mut qp.receive, &mut qp.send].into_iter().flatten() {
        ring.taken = 0;
    }
    qp.attr = ModifyQp::default();
}
