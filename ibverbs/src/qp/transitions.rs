//! Which attributes a step between two states needs, and which it takes: the table of the
//! specification, in words.

use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CAP, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
};

use super::state::QpState;
use crate::transport::QpType;

/// What a step must be given, and what it may be given besides the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) required: u32,
    pub(crate) optional: u32,
}

const STATES: [QpState; 7] = [
    QpState::RESET,
    QpState::INIT,
    QpState::RTR,
    QpState::RTS,
    QpState::SQD,
    QpState::SQE,
    QpState::ERR,
];

/// The attributes by the names that they have in [`QpChange`](super::change::QpChange).
const NAMES: [(u32, &str); 21] = [
    (IBV_QP_CUR_STATE, "cur_state"),
    (IBV_QP_EN_SQD_ASYNC_NOTIFY, "notify_when_drained"),
    (IBV_QP_ACCESS_FLAGS, "access"),
    (IBV_QP_PKEY_INDEX, "pkey_index"),
    (IBV_QP_PORT, "port_num"),
    (IBV_QP_QKEY, "qkey"),
    (IBV_QP_AV, "address"),
    (IBV_QP_PATH_MTU, "path_mtu"),
    (IBV_QP_TIMEOUT, "timeout"),
    (IBV_QP_RETRY_CNT, "retry_cnt"),
    (IBV_QP_RNR_RETRY, "rnr_retry"),
    (IBV_QP_RQ_PSN, "rq_psn"),
    (IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic"),
    (IBV_QP_ALT_PATH, "alternate"),
    (IBV_QP_PATH_MIG_STATE, "path_mig_state"),
    (IBV_QP_MIN_RNR_TIMER, "min_rnr_timer"),
    (IBV_QP_SQ_PSN, "sq_psn"),
    (IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic"),
    (IBV_QP_DEST_QPN, "dest_qpn"),
    (IBV_QP_RATE_LIMIT, "rate_limit"),
    (IBV_QP_CAP, "max_send_wr, max_recv_wr"),
];

const MIGRATION: u32 = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
const CONNECT: u32 = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const SERVE: u32 = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
const PATIENCE: u32 = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
const START: u32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT;

/// What a step from `from` to `to` takes; `None` if there is no such step.
///
/// # References
/// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); IBA 10.3.1 and table 91
pub(crate) fn step(kind: QpType, from: QpState, to: QpState) -> Option<Step> {
    let mut step = step_of_same_size(kind, from, to)?;
    // The sizes of queues can change wherever it has some and goes on, where the device can.
    if from != QpState::RESET
        && ![QpState::RESET, QpState::ERR].contains(&to)
        && !is(kind, QpType::XRC_RECV)
    {
        step.optional |= IBV_QP_CAP;
    }
    Some(step)
}

fn step_of_same_size(kind: QpType, from: QpState, to: QpState) -> Option<Step> {
    const NOTHING: Option<Step> = Some(Step {
        required: 0,
        optional: 0,
    });
    let only = |optional| {
        Some(Step {
            required: 0,
            optional,
        })
    };
    let (sends, serves) = (
        !is(kind, QpType::XRC_RECV),
        is(kind, QpType::RC) || is(kind, QpType::XRC_RECV),
    );
    let reliable = serves || is(kind, QpType::XRC_SEND);
    let connected = reliable || is(kind, QpType::UC);
    let datagram = is(kind, QpType::UD);
    let init = match kind {
        QpType::UD => START | IBV_QP_QKEY,
        QpType::RAW_PACKET => IBV_QP_PORT,
        _ => START | IBV_QP_ACCESS_FLAGS,
    };
    // What can be changed of a queue pair that sends.
    let running = match kind {
        QpType::UD => IBV_QP_CUR_STATE | IBV_QP_QKEY,
        QpType::RAW_PACKET => IBV_QP_RATE_LIMIT,
        _ => {
            IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | MIGRATION | when(serves, IBV_QP_MIN_RNR_TIMER)
        }
    };
    match (from, to) {
        (QpState::RESET, QpState::INIT) => Some(Step {
            required: init,
            optional: 0,
        }),
        (QpState::INIT, QpState::INIT) => only(init),
        (QpState::INIT, QpState::RTR) => Some(Step {
            required: when(connected, CONNECT) | when(serves, SERVE),
            optional: when(
                connected,
                IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
            ) | when(datagram, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
        }),
        (QpState::RTR, QpState::RTS) => Some(Step {
            required: when(connected || datagram, IBV_QP_SQ_PSN)
                | when(reliable, IBV_QP_TIMEOUT)
                | when(reliable && sends, PATIENCE),
            optional: running,
        }),
        (QpState::RTS | QpState::SQD, QpState::RTS) => only(running),
        (QpState::SQE, QpState::RTS) if datagram || is(kind, QpType::UC) => only(
            IBV_QP_CUR_STATE
                | if datagram {
                    IBV_QP_QKEY
                } else {
                    IBV_QP_ACCESS_FLAGS
                },
        ),
        (QpState::RTS, QpState::SQD) if connected || datagram => only(IBV_QP_EN_SQD_ASYNC_NOTIFY),
        (QpState::SQD, QpState::SQD) if datagram => only(IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
        (QpState::SQD, QpState::SQD) if connected => only(
            IBV_QP_AV
                | MIGRATION
                | IBV_QP_ACCESS_FLAGS
                | IBV_QP_PKEY_INDEX
                | when(reliable, IBV_QP_PORT | IBV_QP_TIMEOUT)
                | when(reliable && sends, PATIENCE)
                | when(serves, SERVE),
        ),
        (_, QpState::RESET) => NOTHING,
        (
            QpState::INIT
            | QpState::RTR
            | QpState::RTS
            | QpState::SQD
            | QpState::SQE
            | QpState::ERR,
            QpState::ERR,
        ) => NOTHING,
        _ => None,
    }
}

/// The attributes that a step must be given, with the state.
pub(crate) fn needed(kind: QpType, from: QpState, to: QpState) -> u32 {
    IBV_QP_STATE | step(kind, from, to).map_or(0, |step| step.required)
}

fn is(kind: QpType, other: QpType) -> bool {
    kind == other
}

fn when(condition: bool, flags: u32) -> u32 {
    if condition { flags } else { 0 }
}

/// What is wrong with a step that is given these attributes: what it lacks, what it does not take,
/// or where it could go instead.
pub(crate) fn fault(kind: QpType, from: QpState, to: QpState, given: u32) -> Option<String> {
    let Some(Step { required, optional }) = step(kind, from, to) else {
        let ways: Vec<String> = STATES
            .iter()
            .filter(|&&next| step(kind, from, next).is_some())
            .map(ToString::to_string)
            .collect();
        return Some(format!(
            "there is no step from {from} to {to}; from {from} it goes to {}",
            ways.join(", ")
        ));
    };
    let given = given & !IBV_QP_STATE;
    let (missing, forbidden) = (required & !given, given & !(required | optional));
    let parts = [(missing, "lacks "), (forbidden, "does not take ")];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(flags, _)| *flags != 0)
        .map(|(flags, verb)| format!("{verb}{}", names(*flags)))
        .collect();
    (!parts.is_empty()).then(|| format!("the step from {from} to {to} {}", parts.join(" and ")))
}

fn names(flags: u32) -> String {
    let names: Vec<&str> = NAMES
        .iter()
        .filter(|(flag, _)| flags & flag != 0)
        .map(|(_, name)| *name)
        .collect();
    if names.is_empty() {
        format!("attributes {flags:#x}")
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
#[path = "transitions_tests.rs"]
mod tests;
