//! State transitions of a queue pair with the attributes of its identifier.

#![allow(unsafe_code)]

use std::fmt;

use ibverbs::{AccessFlags, Error, ErrorKind, QpState, QueuePair, Rc, Result};
use rdma_sys::{IBV_QP_ACCESS_FLAGS, ibv_modify_qp, ibv_qp_attr};

use crate::convert::zero_or_errno;
use crate::id::{Id, Path};
use crate::params::ConnectParams;

/// `IBV_QP_ACCESS_FLAGS` in the signed type of the attribute mask.
#[allow(clippy::cast_possible_wrap, reason = "the flag is a low bit")]
const ACCESS_FLAGS: i32 = IBV_QP_ACCESS_FLAGS as i32;

/// Moves a queue pair from RESET to INIT, so that receives can be posted.
pub(crate) fn to_init(
    qp: &mut QueuePair<Rc>,
    id: &Id,
    access: AccessFlags,
    path: &Path,
) -> Result<()> {
    // Soft-iWARP reports success in every state (`siw_qp_nextstate_from_rts`).
    if path.is_iwarp() {
        check_new(qp, path)?;
    }
    let (mut attr, mask) = id.init_qp_attr(QpState::INIT.0, path)?;
    attr.qp_access_flags = access.bits();
    modify(qp, &mut attr, mask | ACCESS_FLAGS, path).or_else(|error| {
        check_new(qp, path)?;
        Err(error)
    })
}

/// Fails if a queue pair cannot enter INIT.
fn check_new(qp: &QueuePair<Rc>, detail: &dyn fmt::Display) -> Result<()> {
    let state = qp.state()?;
    if state == QpState::RESET || state == QpState::INIT {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        "with_qp",
        format!("{detail}: the queue pair is in {state}"),
    )
    .with_help("use a queue pair in RESET"))
}

/// Moves a queue pair from INIT to RTR and RTS on InfiniBand and RoCE, after the peer is known. The
/// caller has limited `params` to the device.
pub(crate) fn to_rts(
    qp: &mut QueuePair<Rc>,
    id: &Id,
    params: &ConnectParams<'_>,
    detail: &dyn fmt::Display,
) -> Result<()> {
    let (mut attr, mask) = id.init_qp_attr(QpState::RTR.0, detail)?;
    attr.min_rnr_timer = params.min_rnr_timer;
    attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(params.responder_resources);
    modify(qp, &mut attr, mask, detail)?;
    let (mut attr, mask) = id.init_qp_attr(QpState::RTS.0, detail)?;
    attr.max_rd_atomic = attr.max_rd_atomic.min(params.initiator_depth);
    modify(qp, &mut attr, mask, detail)
}

fn modify(
    qp: &mut QueuePair<Rc>,
    attr: &mut ibv_qp_attr,
    mask: i32,
    detail: &dyn fmt::Display,
) -> Result<()> {
    let raw = qp.as_raw()?;
    // SAFETY: the queue pair is alive and exclusively borrowed, and the attributes are valid during
    // the call.
    let returned = unsafe { ibv_modify_qp(raw.as_ptr(), attr, mask) };
    let state = QpState(attr.qp_state);
    zero_or_errno(
        "ibv_modify_qp",
        &format_args!("{detail}: queue pair to {state}"),
        returned,
    )
}
