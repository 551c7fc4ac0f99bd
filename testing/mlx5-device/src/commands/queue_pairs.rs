//! Queue pairs: their queues, states and attributes.

use nic_model::engine::{Change, QueuePair, Service, State, rights};

use super::{doorbell, queue_memory};
use crate::adapter::Adapter;
use crate::layout::{Field, structures};
use crate::status::{Failure, Status, ensure};

structures! {
    /// The context. The path to the peer is the `primary_address_path` in it.
    qpc {
        STATE = 0x0, 4;
        ST = 0x8, 8;
        PD = 0x28, 24;
        MTU = 0x40, 3;
        LOG_RQ_SIZE = 0x49, 4;
        LOG_RQ_STRIDE = 0x4d, 3;
        NO_SQ = 0x50, 1;
        LOG_SQ_SIZE = 0x51, 4;
        USER_INDEX = 0x88, 24;
        LOG_PAGE_SIZE = 0xa3, 5;
        REMOTE_QPN = 0xa8, 24;
        PATH_ACK_TIMEOUT = 0x100, 5;
        PATH_SL = 0x1e4, 4;
        LOG_SRA_MAX = 0x388, 3;
        RETRY_COUNT = 0x38d, 3;
        RNR_RETRY = 0x390, 3;
        NEXT_SEND_PSN = 0x3c8, 24;
        CQN_SND = 0x3e8, 24;
        LOG_RRA_MAX = 0x488, 3;
        RRE = 0x490, 1;
        RWE = 0x491, 1;
        RAE = 0x492, 1;
        PAGE_OFFSET = 0x494, 6;
        MIN_RNR_NAK = 0x4a3, 5;
        NEXT_RCV_PSN = 0x4a8, 24;
        XRCD = 0x4c8, 24;
        CQN_RCV = 0x4e8, 24;
        DBR_ADDR = 0x500, 64;
        Q_KEY = 0x540, 32;
        RQ_TYPE = 0x565, 3;
        SRQN_RMPN_XRQN = 0x568, 24;
    }

    /// The number of the queue pair, at the same offset in outputs and inputs.
    queue_pair {
        QPN = 0x48, 24;
    }

    modify_in {
        OPT_PARAM_MASK = 0x80, 32;
    }

    /// Options of enhanced connection establishment in the input and in the output of the commands
    /// with a context.
    ece_in {
        ECE = 0xa0, 32;
    }

    ece_out {
        ECE = 0x60, 32;
    }
}

/// Optional parameters of a change (`MLX5_QP_OPTPAR_*`).
mod optional {
    pub(super) const RIGHTS: u32 = 1 << 1 | 1 << 2 | 1 << 3;
    pub(super) const Q_KEY: u32 = 1 << 5;
    pub(super) const RNR_TIMEOUT: u32 = 1 << 6;
    pub(super) const PRIMARY_PATH: u32 = 1 << 7;
    pub(super) const SRA_MAX: u32 = 1 << 8;
    pub(super) const RRA_MAX: u32 = 1 << 9;
    pub(super) const RETRY_COUNT: u32 = 1 << 12;
    pub(super) const RNR_RETRY: u32 = 1 << 13;
    pub(super) const ACK_TIMEOUT: u32 = 1 << 14;
}

/// Byte range of the context in inputs and outputs.
const CONTEXT: std::ops::Range<usize> = 0x18..0x100;
/// Byte range of the path to the peer in the context.
const PATH: std::ops::Range<usize> = 0x18..0x44;
/// Bytes of a block of the send queue.
const SEND_BLOCK: u64 = 64;
const NONE: Failure = Failure::new(Status::BadResource, "no such queue pair");

/// Returns the transport of a type of queue pair (`MLX5_QP_ST_*`).
fn service(kind: u64, has_send_queue: bool) -> Option<Service> {
    Some(match kind {
        0x3 if has_send_queue => Service::XrcInitiator,
        0x3 => Service::XrcTarget,
        0x0 => Service::Reliable,
        0xc => Service::KeyChanges,
        0x1 => Service::Unreliable,
        0x2 => Service::Datagram,
        0x7 => Service::SubnetManagement,
        0x8 => Service::GeneralServices,
        _ => return None,
    })
}

pub(super) fn create(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    const RECEIVE_QUEUE: u64 = 0;
    const SHARED: u64 = 1;
    let context = &input[CONTEXT];
    let has_send_queue = qpc::NO_SQ.get(context) == 0;
    let service = service(qpc::ST.get(context), has_send_queue).ok_or(Failure::new(
        Status::BadParameter,
        "unknown type of queue pair",
    ))?;
    let receives = if qpc::RQ_TYPE.get(context) == RECEIVE_QUEUE {
        1_u32 << qpc::LOG_RQ_SIZE.get(context)
    } else {
        0
    };
    let is_xrc = matches!(service, Service::XrcInitiator | Service::XrcTarget);
    let is_shared = qpc::RQ_TYPE.get(context) == SHARED && !is_xrc;
    let send_blocks = if has_send_queue {
        1_u32 << qpc::LOG_SQ_SIZE.get(context)
    } else {
        0
    };
    let log_receive_size = qpc::LOG_RQ_STRIDE.get32(context) + 4;
    let length = (u64::from(receives) << log_receive_size) + u64::from(send_blocks) * SEND_BLOCK;
    let (log_pages, offset) = (
        qpc::LOG_PAGE_SIZE.get(context),
        qpc::PAGE_OFFSET.get(context),
    );
    let memory = &adapter.memory;
    let record = qpc::DBR_ADDR.get(context);
    let new = QueuePair {
        service,
        pd: qpc::PD.get32(context),
        send_cq: qpc::CQN_SND.get32(context),
        receive_cq: qpc::CQN_RCV.get32(context),
        srq: is_shared.then(|| qpc::SRQN_RMPN_XRQN.get32(context)),
        xrcd: is_xrc.then(|| qpc::XRCD.get32(context)),
        user_index: qpc::USER_INDEX.get32(context),
        receives,
        log_receive_size,
        send_blocks,
        memory: queue_memory(memory, input, log_pages, offset, length)?,
        doorbell: doorbell(memory, record)?,
    };
    let number = adapter.engine.create_qp(&new);
    let number =
        number.map_err(|_| Failure::new(Status::NoResource, "the queue pair cannot be created"))?;
    adapter.objects.queue_pairs.insert(number, context.to_vec());
    queue_pair::QPN.set(output, u64::from(number));
    accept_options(input, output);
    Ok(())
}

/// Accepts all options of enhanced connection establishment. They have no effect.
fn accept_options(input: &[u8], output: &mut [u8]) {
    ece_out::ECE.set(output, ece_in::ECE.get(input));
}

pub(super) fn destroy(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let number = queue_pair::QPN.get32(input);
    adapter.objects.queue_pairs.remove(&number);
    if adapter.engine.destroy_qp(number) {
        Ok(())
    } else {
        Err(NONE)
    }
}

/// Changes the state, and the attributes that the command has.
pub(super) fn modify(
    state: State,
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let number = queue_pair::QPN.get32(input);
    let context = adapter.objects.queue_pairs.get_mut(&number).ok_or(NONE)?;
    let before = adapter.engine.state(number).ok_or(NONE)?;
    let new = input.get(CONTEXT).filter(|_| takes_context(state));
    let change = new.map(|new| {
        let mask = modify_in::OPT_PARAM_MASK.get32(input);
        attributes(new, before, state, mask)
    });
    let change = change.unwrap_or_default();
    ensure(
        adapter.engine.modify_qp(number, state, &change).is_ok(),
        Status::BadSystemState,
        "the state does not follow the present one",
    )?;
    if let Some(new) = new.filter(|_| change.service_level.is_some()) {
        let timeout = qpc::PATH_ACK_TIMEOUT.get(context);
        context[PATH].copy_from_slice(&new[PATH]);
        qpc::PATH_ACK_TIMEOUT.set(context, timeout);
    }
    record(context, &change);
    if takes_context(state) {
        accept_options(input, output);
    }
    Ok(())
}

/// Returns `true` if the command to change to a state has a context.
fn takes_context(state: State) -> bool {
    !matches!(state, State::Reset | State::Error)
}

/// Returns the attributes that a command changes: those that the transition needs, and those that
/// the mask of optional parameters names.
fn attributes(context: &[u8], before: State, state: State, mask: u32) -> Change {
    let needed = |from, to| (before, state) == (from, to);
    let init = needed(State::Reset, State::Init);
    let receives = needed(State::Init, State::ReadyToReceive);
    let sends = needed(State::ReadyToReceive, State::ReadyToSend);
    let get = |takes: bool, field: Field| takes.then(|| field.get32(context));
    let byte = |takes, field: Field| {
        get(takes, field).map(|value| u8::try_from(value).expect("the field has at most 8 bits"))
    };
    let has = |bit| mask & bit != 0;
    let count = |log: Option<u8>| log.map(|log| 1 << log);
    Change {
        access: (init || has(optional::RIGHTS)).then(|| access(context)),
        qkey: get(init || has(optional::Q_KEY), qpc::Q_KEY),
        service_level: byte(receives || has(optional::PRIMARY_PATH), qpc::PATH_SL),
        path_mtu: byte(receives, qpc::MTU),
        peer: get(receives, qpc::REMOTE_QPN),
        receive_psn: get(receives, qpc::NEXT_RCV_PSN),
        send_psn: get(sends, qpc::NEXT_SEND_PSN),
        reads_of_peer: count(byte(receives || has(optional::RRA_MAX), qpc::LOG_RRA_MAX)),
        reads: count(byte(sends || has(optional::SRA_MAX), qpc::LOG_SRA_MAX)),
        min_rnr_timer: byte(receives || has(optional::RNR_TIMEOUT), qpc::MIN_RNR_NAK),
        timeout: byte(sends || has(optional::ACK_TIMEOUT), qpc::PATH_ACK_TIMEOUT),
        retries: byte(sends || has(optional::RETRY_COUNT), qpc::RETRY_COUNT),
        rnr_retries: byte(sends || has(optional::RNR_RETRY), qpc::RNR_RETRY),
    }
}

fn access(context: &[u8]) -> u32 {
    let right = |field: Field, right| if field.get(context) == 1 { right } else { 0 };
    right(qpc::RWE, rights::REMOTE_WRITE)
        | right(qpc::RRE, rights::REMOTE_READ)
        | right(qpc::RAE, rights::REMOTE_ATOMIC)
}

/// Sets the changed attributes in the context that the driver can query.
fn record(context: &mut [u8], change: &Change) {
    let log = |count: Option<u8>| count.map(|count| count.ilog2());
    for (field, value) in [
        (qpc::Q_KEY, change.qkey),
        (qpc::PATH_SL, change.service_level.map(u32::from)),
        (qpc::MTU, change.path_mtu.map(u32::from)),
        (qpc::REMOTE_QPN, change.peer),
        (qpc::NEXT_RCV_PSN, change.receive_psn),
        (qpc::NEXT_SEND_PSN, change.send_psn),
        (qpc::LOG_RRA_MAX, log(change.reads_of_peer)),
        (qpc::LOG_SRA_MAX, log(change.reads)),
        (qpc::MIN_RNR_NAK, change.min_rnr_timer.map(u32::from)),
        (qpc::PATH_ACK_TIMEOUT, change.timeout.map(u32::from)),
        (qpc::RETRY_COUNT, change.retries.map(u32::from)),
        (qpc::RNR_RETRY, change.rnr_retries.map(u32::from)),
    ] {
        if let Some(value) = value {
            field.set(context, u64::from(value));
        }
    }
    if let Some(access) = change.access {
        for (field, right) in [
            (qpc::RWE, rights::REMOTE_WRITE),
            (qpc::RRE, rights::REMOTE_READ),
            (qpc::RAE, rights::REMOTE_ATOMIC),
        ] {
            field.set(context, u64::from(access & right != 0));
        }
    }
}

pub(super) fn query(adapter: &mut Adapter, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    let number = queue_pair::QPN.get32(input);
    let context = adapter.objects.queue_pairs.get(&number).ok_or(NONE)?;
    output[CONTEXT].copy_from_slice(context);
    let state = adapter.engine.state(number).ok_or(NONE)?;
    qpc::STATE.set(&mut output[CONTEXT], state as u64);
    Ok(())
}

/// Adds a queue pair to a multicast group, or removes it.
pub(super) fn join(member: bool, adapter: &mut Adapter, input: &[u8]) -> Result<(), Failure> {
    const GROUP: std::ops::Range<usize> = 0x10..0x20;
    let group = input[GROUP].try_into().expect("16 bytes");
    let joined = adapter
        .engine
        .join(queue_pair::QPN.get32(input), group, member);
    let reason = "no such queue pair, or it is not in the group";
    ensure(joined.is_ok(), Status::BadResource, reason)
}
