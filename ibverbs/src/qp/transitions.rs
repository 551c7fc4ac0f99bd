//! The state table of the specification: the attributes that a transition requires and allows.

use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CAP, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
};

use super::state::QpState;
use crate::transport::Transport;

/// The attributes of a transition, besides the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
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

/// The names of the attributes in [`QpChange`](super::change::QpChange).
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
const RESPOND: u32 = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
const RETRY: u32 = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
const START: u32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT;

const NO_ATTRIBUTES: Option<Transition> = Some(Transition {
    required: 0,
    optional: 0,
});

/// Returns the attributes of the transition from `from` to `to`, or `None` if there is none.
///
/// # References
/// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); IBA 10.3.1 and table 91
pub(crate) fn transition(transport: Transport, from: QpState, to: QpState) -> Option<Transition> {
    let mut transition = transition_without_resize(transport, from, to)?;
    // A queue pair with queues can be resized in every transition to a working state.
    if from != QpState::RESET
        && ![QpState::RESET, QpState::ERR].contains(&to)
        && !matches!(
            transport,
            Transport::XrcRecv | Transport::Srd | Transport::DcInitiator | Transport::DcTarget
        )
    {
        transition.optional |= IBV_QP_CAP;
    }
    Some(transition)
}

fn transition_without_resize(
    transport: Transport,
    from: QpState,
    to: QpState,
) -> Option<Transition> {
    match transport {
        Transport::DcInitiator => return initiator_transition(from, to),
        Transport::DcTarget => return target_transition(from, to),
        _ => {}
    }
    let only = |optional| {
        Some(Transition {
            required: 0,
            optional,
        })
    };
    let (sends, responds) = (
        !is(transport, Transport::XrcRecv),
        is(transport, Transport::Rc) || is(transport, Transport::XrcRecv),
    );
    let reliable = responds || is(transport, Transport::XrcSend);
    let connected = reliable || is(transport, Transport::Uc);
    let datagram = transport.receives_datagrams();
    let init = match transport {
        Transport::Ud | Transport::Srd => START | IBV_QP_QKEY,
        Transport::RawPacket => IBV_QP_PORT,
        _ => START | IBV_QP_ACCESS_FLAGS,
    };
    // Attributes that can be changed in RTS.
    let running = match transport {
        Transport::Ud | Transport::Srd => IBV_QP_CUR_STATE | IBV_QP_QKEY,
        Transport::RawPacket => IBV_QP_RATE_LIMIT,
        _ => {
            IBV_QP_CUR_STATE
                | IBV_QP_ACCESS_FLAGS
                | MIGRATION
                | when(responds, IBV_QP_MIN_RNR_TIMER)
        }
    };
    match (from, to) {
        (QpState::RESET, QpState::INIT) => Some(Transition {
            required: init,
            optional: 0,
        }),
        (QpState::INIT, QpState::INIT) => only(init),
        (QpState::INIT, QpState::RTR) => Some(Transition {
            required: when(connected, CONNECT) | when(responds, RESPOND),
            optional: when(
                connected,
                IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
            ) | when(datagram, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
        }),
        (QpState::RTR, QpState::RTS) => Some(Transition {
            required: when(connected || datagram, IBV_QP_SQ_PSN)
                | when(reliable, IBV_QP_TIMEOUT)
                | when(reliable && sends, RETRY),
            optional: running | when(is(transport, Transport::Srd), IBV_QP_RNR_RETRY),
        }),
        (QpState::RTS | QpState::SQD, QpState::RTS) => only(running),
        (QpState::SQE, QpState::RTS) if datagram || is(transport, Transport::Uc) => only(
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
                | when(reliable && sends, RETRY)
                | when(responds, RESPOND),
        ),
        (_, QpState::RESET) => NO_ATTRIBUTES,
        (_, QpState::ERR) if from != QpState::RESET && STATES.contains(&from) => NO_ATTRIBUTES,
        _ => None,
    }
}

/// Returns the attributes of a transition of a DC initiator (`modify_dci_qp_is_ok` of the kernel's
/// driver).
fn initiator_transition(from: QpState, to: QpState) -> Option<Transition> {
    let (required, optional) = match (from, to) {
        (_, QpState::RESET) => (0, 0),
        (_, QpState::ERR) if from != QpState::RESET && STATES.contains(&from) => (0, 0),
        (QpState::RESET, QpState::INIT) => (START, 0),
        (QpState::INIT, QpState::INIT) => (0, START),
        (QpState::INIT, QpState::RTR) => (IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX),
        (QpState::RTR, QpState::RTS) => {
            let required = IBV_QP_TIMEOUT | RETRY | IBV_QP_SQ_PSN;
            (required, IBV_QP_MIN_RNR_TIMER)
        }
        (QpState::RTS, QpState::RTS) => (0, IBV_QP_MIN_RNR_TIMER),
        _ => return None,
    };
    Some(Transition { required, optional })
}

/// Returns the attributes of a transition of a DC target (`mlx5_ib_modify_dct` of the kernel's
/// driver).
fn target_transition(from: QpState, to: QpState) -> Option<Transition> {
    let required = match (from, to) {
        (QpState::RESET, QpState::INIT) => START | IBV_QP_ACCESS_FLAGS,
        (QpState::INIT, QpState::RTR) => IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU,
        _ => return None,
    };
    Some(Transition {
        required,
        optional: 0,
    })
}

/// Returns the mask of the required attributes, including the state.
pub(crate) fn required_mask(transport: Transport, from: QpState, to: QpState) -> u32 {
    IBV_QP_STATE | transition(transport, from, to).map_or(0, |transition| transition.required)
}

fn is(transport: Transport, other: Transport) -> bool {
    transport == other
}

fn when(condition: bool, flags: u32) -> u32 {
    if condition { flags } else { 0 }
}

/// Checks a transition with the attributes `given`. Returns a message that names the attributes
/// that are missing or not allowed, or the possible next states, or `None` if the transition is
/// valid.
pub(crate) fn violation(
    transport: Transport,
    from: QpState,
    to: QpState,
    given: u32,
) -> Option<String> {
    let Some(Transition { required, optional }) = transition(transport, from, to) else {
        let next_states: Vec<String> = STATES
            .iter()
            .filter(|&&next| transition(transport, from, next).is_some())
            .map(ToString::to_string)
            .collect();
        return Some(format!(
            "there is no transition from {from} to {to}; available from {from}: {}",
            next_states.join(", ")
        ));
    };
    let given = given & !IBV_QP_STATE;
    let (missing, forbidden) = (required & !given, given & !(required | optional));
    let parts = [(missing, "requires "), (forbidden, "does not allow ")];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(flags, _)| *flags != 0)
        .map(|(flags, verb)| format!("{verb}{}", names(*flags)))
        .collect();
    (!parts.is_empty())
        .then(|| format!("the transition from {from} to {to} {}", parts.join(" and ")))
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
