//! The transitions of queue pairs that the kernel's core allows (`ib_modify_qp_is_ok`).

use crate::abi::core::qp_type;

pub(crate) const RESET: u8 = 0;
pub(crate) const INIT: u8 = 1;
pub(crate) const RTR: u8 = 2;
pub(crate) const RTS: u8 = 3;
pub(crate) const SQD: u8 = 4;
pub(crate) const SQE: u8 = 5;
pub(crate) const ERR: u8 = 6;

/// Bits of the mask of attributes.
pub(crate) mod mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const CUR_STATE: u32 = 1 << 1;
    pub(crate) const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub(crate) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const AV: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_CNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RQ_PSN: u32 = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(crate) const ALT_PATH: u32 = 1 << 14;
    pub(crate) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(crate) const PATH_MIG_STATE: u32 = 1 << 18;
    pub(crate) const CAP: u32 = 1 << 19;
    pub(crate) const DEST_QPN: u32 = 1 << 20;
    /// All bits that the kernel knows.
    pub(crate) const ALL: u32 = (1 << 26) - 1;
}

use mask::{
    ACCESS_FLAGS, ALT_PATH, AV, CUR_STATE, DEST_QPN, EN_SQD_ASYNC_NOTIFY, MAX_DEST_RD_ATOMIC,
    MAX_QP_RD_ATOMIC, MIN_RNR_TIMER, PATH_MIG_STATE, PATH_MTU, PKEY_INDEX, PORT, QKEY, RETRY_CNT,
    RNR_RETRY, RQ_PSN, SQ_PSN, STATE, TIMEOUT,
};

/// Returns `true` if a queue pair of this type may change between two states with these attributes.
pub(crate) fn allowed(from: u8, to: u8, kind: u8, attributes: u32) -> bool {
    if attributes & CUR_STATE != 0 && !matches!(from, RTR | RTS | SQD | SQE) {
        return false;
    }
    let Some((required, optional)) = transition(from, to, kind) else {
        return false;
    };
    attributes & required == required && attributes & !(required | optional | STATE) == 0
}

/// Returns the required and the optional attributes of a transition.
fn transition(from: u8, to: u8, kind: u8) -> Option<(u32, u32)> {
    let ud = kind == qp_type::UD;
    let raw = kind == qp_type::RAW_PACKET;
    let uc = kind == qp_type::UC;
    let initiator = kind == qp_type::XRC_INI;
    let target = kind == qp_type::XRC_TGT;
    let rc = kind == qp_type::RC;
    let responds = rc || target;
    let pick = |condition: bool, bits: u32| if condition { bits } else { 0 };
    let address = pick(ud, PKEY_INDEX | PORT | QKEY)
        | pick(
            uc || rc || initiator || target,
            PKEY_INDEX | PORT | ACCESS_FLAGS,
        );
    let connected = uc || rc || initiator || target;
    let path = pick(ud, QKEY)
        | pick(connected, ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE)
        | pick(responds, MIN_RNR_TIMER);
    Some(match (from, to) {
        (0..=ERR, RESET) | (INIT..=ERR, ERR) => (0, 0),
        (RESET, INIT) => (address | pick(raw, PORT), 0),
        (INIT, INIT) => (0, address),
        (INIT, RTR) => (
            pick(connected, AV | PATH_MTU | DEST_QPN | RQ_PSN)
                | pick(responds, MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER),
            pick(ud, PKEY_INDEX | QKEY) | pick(connected, ALT_PATH | ACCESS_FLAGS | PKEY_INDEX),
        ),
        (RTR, RTS) => (
            pick(!raw, SQ_PSN)
                | pick(rc || initiator || target, TIMEOUT)
                | pick(rc || initiator, RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC),
            CUR_STATE & !pick(raw, CUR_STATE) | path,
        ),
        (RTS, RTS) => (0, CUR_STATE & !pick(raw, CUR_STATE) | path),
        (SQD, RTS) => (0, CUR_STATE | path),
        (RTS, SQD) => (0, pick(!raw, EN_SQD_ASYNC_NOTIFY)),
        (SQD, SQD) => (
            0,
            pick(ud, PKEY_INDEX | QKEY)
                | pick(
                    connected,
                    AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE,
                )
                | pick(rc || initiator || target, PORT | TIMEOUT)
                | pick(rc || initiator, RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC)
                | pick(responds, MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER),
        ),
        (SQE, RTS) => (
            0,
            pick(ud, CUR_STATE | QKEY) | pick(uc, CUR_STATE | ACCESS_FLAGS),
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTR_RC: u32 =
        AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER | STATE;

    #[test]
    fn required_attributes_are_required() {
        let init = PKEY_INDEX | PORT | ACCESS_FLAGS | STATE;
        assert!(allowed(RESET, INIT, qp_type::RC, init));
        assert!(!allowed(RESET, INIT, qp_type::RC, init & !PORT));
        assert!(!allowed(RESET, INIT, qp_type::UD, init));
        assert!(allowed(INIT, RTR, qp_type::RC, RTR_RC));
        assert!(!allowed(INIT, RTR, qp_type::RC, RTR_RC & !RQ_PSN));
        assert!(!allowed(INIT, RTR, qp_type::UC, RTR_RC));
    }

    #[test]
    fn states_cannot_be_skipped() {
        for kind in [qp_type::RC, qp_type::UC, qp_type::UD] {
            assert!(!allowed(RESET, RTR, kind, RTR_RC));
            assert!(!allowed(INIT, RTS, kind, SQ_PSN | STATE));
            assert!(!allowed(ERR, RTS, kind, STATE));
            assert!(!allowed(RESET, ERR, kind, STATE));
            for from in [RESET, INIT, RTR, RTS, SQD, SQE, ERR] {
                assert!(allowed(from, RESET, kind, STATE), "from {from}");
            }
        }
    }

    #[test]
    fn the_current_state_is_named_only_when_it_may_have_changed() {
        assert!(allowed(RTR, RTS, qp_type::UD, SQ_PSN | CUR_STATE | STATE));
        assert!(!allowed(INIT, RTR, qp_type::UD, CUR_STATE | STATE));
    }
}
