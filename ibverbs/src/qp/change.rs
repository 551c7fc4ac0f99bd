//! Changing attributes of a queue pair one step at a time, for what `init`, `connect` and `start` do not cover.

use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    ibv_qp_attr,
};

use super::control::Control;
use super::pair::QueuePair;
use super::state::QpState;
use super::transitions;
use super::transport::Sends;
use crate::ah::AhAttr;
use crate::error::{Error, Result};
use crate::identity::{Psn, Qkey, Qpn};
use crate::kind::ErrorKind;
use crate::mr::AccessFlags;
use crate::port::Mtu;

/// What to change of a queue pair; what is `None` stays as it is.
///
/// # Example
/// A connected queue pair gets more patient, which takes a drained send queue:
/// ```no_run
/// use ibverbs::{QpChange, QpState, QueuePair, Rc};
/// # fn f(qp: &mut QueuePair<Rc>) -> Result<(), ibverbs::Error> {
/// qp.modify(&QpChange { timeout: Some(18), ..QpChange::to(QpState::SQD) })
///     .unwrap_err(); // the step from RTS to SQD does not take timeout
/// qp.modify(&QpChange::to(QpState::SQD))?;
/// qp.modify(&QpChange { timeout: Some(18), ..QpChange::to(QpState::SQD) })?;
/// qp.modify(&QpChange::to(QpState::RTS))
/// # }
/// ```
///
/// # References
/// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html), IBA 11.2.5.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpChange {
    /// The state to go to.
    pub state: Option<QpState>,
    /// Whether an event tells that the send queue has drained, on the way to SQD.
    pub notify_when_drained: Option<bool>,
    /// What the peer may do.
    pub access: Option<AccessFlags>,
    /// Index of the partition key.
    pub pkey_index: Option<u16>,
    /// The port, from 1.
    pub port_num: Option<u8>,
    /// The queue key that senders must know.
    pub qkey: Option<Qkey>,
    /// The way to the peer.
    pub address: Option<AhAttr>,
    /// The MTU of that way.
    pub path_mtu: Option<Mtu>,
    /// Waiting time for an acknowledgement: 4.096 µs × 2^timeout.
    pub timeout: Option<u8>,
    /// Retries without an acknowledgement.
    pub retry_cnt: Option<u8>,
    /// Retries when the peer has no receive posted.
    pub rnr_retry: Option<u8>,
    /// First packet sequence number that the peer sends.
    pub rq_psn: Option<Psn>,
    /// First packet sequence number that this side sends.
    pub sq_psn: Option<Psn>,
    /// Reads and atomics of this side that can be in flight.
    pub max_rd_atomic: Option<u8>,
    /// Reads and atomics of the peer that this side serves at once.
    pub max_dest_rd_atomic: Option<u8>,
    /// Code of the time that a peer waits when no receive is posted here.
    pub min_rnr_timer: Option<u8>,
    /// The peer's queue pair.
    pub dest_qpn: Option<Qpn>,
    /// At most so many kbit/s; raw packets only.
    pub rate_limit: Option<u32>,
}

impl QpChange {
    /// To this state, with nothing else.
    pub fn to(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// As the verb takes it.
    fn to_raw(self) -> (ibv_qp_attr, u32) {
        let mut attr = ibv_qp_attr::default();
        let mut mask = 0;
        macro_rules! set {
            ($($field:ident => $flag:ident, $raw:ident = $value:expr;)*) => {$(
                if let Some($field) = self.$field {
                    attr.$raw = $value;
                    mask |= $flag;
                }
            )*};
        }
        set! {
            state => IBV_QP_STATE, qp_state = state.0;
            notify_when_drained => IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify = notify_when_drained.into();
            access => IBV_QP_ACCESS_FLAGS, qp_access_flags = access.bits();
            pkey_index => IBV_QP_PKEY_INDEX, pkey_index = pkey_index;
            port_num => IBV_QP_PORT, port_num = port_num;
            qkey => IBV_QP_QKEY, qkey = qkey.0;
            address => IBV_QP_AV, ah_attr = address.to_raw();
            path_mtu => IBV_QP_PATH_MTU, path_mtu = path_mtu.0;
            timeout => IBV_QP_TIMEOUT, timeout = timeout;
            retry_cnt => IBV_QP_RETRY_CNT, retry_cnt = retry_cnt;
            rnr_retry => IBV_QP_RNR_RETRY, rnr_retry = rnr_retry;
            rq_psn => IBV_QP_RQ_PSN, rq_psn = rq_psn.0;
            sq_psn => IBV_QP_SQ_PSN, sq_psn = sq_psn.0;
            max_rd_atomic => IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic = max_rd_atomic;
            max_dest_rd_atomic => IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic = max_dest_rd_atomic;
            min_rnr_timer => IBV_QP_MIN_RNR_TIMER, min_rnr_timer = min_rnr_timer;
            dest_qpn => IBV_QP_DEST_QPN, dest_qp_num = dest_qpn.0;
            rate_limit => IBV_QP_RATE_LIMIT, rate_limit = rate_limit;
        }
        (attr, mask)
    }
}

impl<T: Sends> QueuePair<T> {
    /// Changes what `change` says, after checking it against the table of the specification: what is missing or not allowed in this step is named
    /// before the driver is asked. (iWARP has another table, and its driver is asked at once.)
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a step that does not exist, or with other attributes than it takes; for RESET with requests in flight, whose
    /// memory could not be told free: [destroy](QueuePair::destroy) the queue pair instead.
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn modify(&mut self, change: &QpChange) -> Result<()> {
        self.control().modify(change, self.is_idle())
    }

    /// Whether every request that was posted has been retired.
    pub fn is_idle(&self) -> bool {
        let caps = self.caps();
        let send = u32::try_from(self.send_room()).is_ok_and(|room| room >= caps.max_send_wr);
        send && u32::try_from(self.recv_room()).is_ok_and(|room| room >= caps.max_recv_wr)
    }
}

impl Control<'_> {
    /// `idle` says that no request is in flight.
    pub(super) fn modify(self, change: &QpChange, idle: bool) -> Result<()> {
        let from = self.state()?;
        let to = change.state.unwrap_or(from);
        let (mut attr, mask) = change.to_raw();
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidInput, "ibv_modify_qp", what));
        if self.follows_the_table() {
            if let Some(fault) = transitions::fault(self.kind, from, to, mask) {
                return refuse(format!("{}: {fault}", self.describe()));
            }
        }
        if to == QpState::RESET && !idle {
            let what = format!("{} to RESET with requests in flight", self.describe());
            return refuse(what).map_err(|error| error.with_hint("destroy it, which gives their buffers back"));
        }
        self.modify_raw(&to.to_string(), &mut attr, mask)
    }
}
