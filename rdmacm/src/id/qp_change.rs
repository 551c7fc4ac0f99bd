//! Queue pair attributes of the connection manager as a [`QpChange`] of [`ibverbs`].

use std::fmt;

use ibverbs::{AccessFlags, Mtu, Psn, QpState, Qpn, Result, qp::QpChange};
use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_TIMEOUT, ibv_qp_attr,
};

use crate::address::ah_attr;
use crate::id::Id;

/// Returns the change that a queue pair needs to enter `state`.
pub(crate) fn for_state(state: QpState, id: &Id, detail: &dyn fmt::Display) -> Result<QpChange> {
    let (attr, mask) = id.init_qp_attr(state.0, detail)?;
    Ok(from_attr(&attr, mask.unsigned_abs()))
}

fn from_attr(attr: &ibv_qp_attr, mask: u32) -> QpChange {
    let has = |flag: u32| mask & flag != 0;
    let mut change = QpChange::to(QpState(attr.qp_state));
    change.access =
        has(IBV_QP_ACCESS_FLAGS).then(|| AccessFlags::from_bits_retain(attr.qp_access_flags));
    change.pkey_index = has(IBV_QP_PKEY_INDEX).then_some(attr.pkey_index);
    change.port_num = has(IBV_QP_PORT).then_some(attr.port_num);
    change.address = has(IBV_QP_AV).then(|| ah_attr(&attr.ah_attr));
    change.path_mtu = has(IBV_QP_PATH_MTU).then_some(Mtu(attr.path_mtu));
    change.timeout = has(IBV_QP_TIMEOUT).then_some(attr.timeout);
    change.retry_cnt = has(IBV_QP_RETRY_CNT).then_some(attr.retry_cnt);
    change.rnr_retry = has(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry);
    change.rq_psn = has(IBV_QP_RQ_PSN).then_some(Psn(attr.rq_psn));
    change.sq_psn = has(IBV_QP_SQ_PSN).then_some(Psn(attr.sq_psn));
    change.max_rd_atomic = has(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic);
    change.max_dest_rd_atomic = has(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic);
    change.min_rnr_timer = has(IBV_QP_MIN_RNR_TIMER).then_some(attr.min_rnr_timer);
    change.dest_qpn = has(IBV_QP_DEST_QPN).then_some(Qpn(attr.dest_qp_num));
    change
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_in_the_mask_are_changed() {
        let attr = ibv_qp_attr {
            qp_state: QpState::RTR.0,
            dest_qp_num: 17,
            rq_psn: 5,
            timeout: 14,
            ..Default::default()
        };
        let change = from_attr(&attr, IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
        assert_eq!(
            change,
            QpChange::to(QpState::RTR).dest_qpn(Qpn(17)).rq_psn(Psn(5))
        );
    }
}
