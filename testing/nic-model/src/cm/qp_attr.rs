//! The attributes of a queue pair for each state (`rdma_init_qp_attr`).

use zerocopy::FromZeros;

use super::connection::{Connection, Phase};
use super::query::{HOP_LIMIT, MTU, PORT};
use super::resolve::find_gid;
use super::{Cm, Id};
use crate::abi::core::{AhAttr, GlobalRoute, qp_type};
use crate::abi::rdma_cm::QpAttr;
use crate::errno::{Errno, Result};
use crate::nic::Shared;
use crate::qp_state::{INIT, RTR, RTS, mask};

/// Key of datagram queue pairs (`RDMA_UDP_QKEY`).
const UDP_QKEY: u32 = 0x0123_4567;

/// Access rights (`IBV_ACCESS_…`).
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ: u32 = 1 << 2;
const REMOTE_ATOMIC: u32 = 1 << 3;

impl Cm {
    pub(super) fn init_qp_attr(
        &mut self,
        cx: &Shared,
        file: u32,
        number: u32,
        state: u32,
    ) -> Result<QpAttr> {
        let id = self.bound_id(file, number)?;
        let state = u8::try_from(state).map_err(|_| Errno::EINVAL)?;
        let mut attributes = QpAttr {
            qp_state: u32::from(state),
            ..QpAttr::new_zeroed()
        };
        match &id.connection {
            Some(connection) if id.qp_type != qp_type::UD => {
                connected(&mut attributes, cx, id, connection, state)?;
            }
            _ => unconnected(&mut attributes, id),
        }
        if state == RTR {
            attributes.rq_psn = id.psn;
        }
        if let (true, Some(timeout)) =
            (attributes.qp_attr_mask & mask::TIMEOUT != 0, id.ack_timeout)
        {
            attributes.timeout = timeout;
        }
        Ok(attributes)
    }
}

/// Attributes before a request was sent or received (`cma_ib_init_qp_attr`).
fn unconnected(attributes: &mut QpAttr, id: &Id) {
    attributes.port_num = PORT;
    attributes.qp_attr_mask = mask::STATE | mask::PKEY_INDEX | mask::PORT;
    if id.qp_type == qp_type::UD {
        attributes.qkey = UDP_QKEY;
        attributes.qp_attr_mask |= mask::QKEY;
    } else {
        attributes.qp_attr_mask |= mask::ACCESS_FLAGS;
    }
}

/// Attributes of a connection (`ib_cm_init_qp_attr`).
fn connected(
    attributes: &mut QpAttr,
    cx: &Shared,
    id: &Id,
    connection: &Connection,
    state: u8,
) -> Result<()> {
    let rc = id.qp_type == qp_type::RC;
    let initiates = rc || id.qp_type == qp_type::XRC_INI;
    let responds = rc || id.qp_type == qp_type::XRC_TGT;
    let has_peer = matches!(
        connection.phase,
        Phase::ReqReceived | Phase::RepSent | Phase::RepReceived | Phase::Established
    );
    match state {
        INIT if has_peer || connection.phase == Phase::ReqSent => {
            attributes.qp_attr_mask =
                mask::STATE | mask::ACCESS_FLAGS | mask::PKEY_INDEX | mask::PORT;
            attributes.qp_access_flags = REMOTE_WRITE;
            if connection.responder_resources > 0 {
                attributes.qp_access_flags |= REMOTE_READ | REMOTE_ATOMIC;
            }
            attributes.port_num = PORT;
        }
        RTR if has_peer => {
            attributes.qp_attr_mask =
                mask::STATE | mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
            attributes.ah_attr = address_handle(cx, id, connection);
            attributes.path_mtu = u32::from(MTU);
            attributes.dest_qp_num = connection.peer_qpn;
            if responds {
                attributes.qp_attr_mask |= mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER;
                attributes.max_dest_rd_atomic = connection.responder_resources;
            }
        }
        RTS if has_peer => {
            attributes.qp_attr_mask = mask::STATE | mask::SQ_PSN;
            attributes.sq_psn = connection.peer_psn;
            if initiates {
                attributes.qp_attr_mask |=
                    mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC;
                attributes.retry_cnt = connection.retry_count;
                attributes.rnr_retry = connection.rnr_retry_count;
                attributes.max_rd_atomic = connection.initiator_depth;
            }
            if initiates || responds {
                attributes.qp_attr_mask |= mask::TIMEOUT;
                attributes.timeout = connection.ack_timeout();
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Returns the address of the peer.
fn address_handle(cx: &Shared, id: &Id, connection: &Connection) -> AhAttr {
    let index = find_gid(cx, id.source).map_or(0, |entry| entry.gid_index);
    AhAttr {
        grh: GlobalRoute {
            dgid: id.destination.gid(),
            sgid_index: u8::try_from(index).unwrap_or(u8::MAX),
            hop_limit: HOP_LIMIT,
            traffic_class: connection.traffic_class,
            ..GlobalRoute::default()
        },
        is_global: 1,
        port_num: PORT,
        ..AhAttr::default()
    }
}
