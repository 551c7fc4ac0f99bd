//! Changing attributes of a queue pair one step at a time, for what `init`, `connect` and `start`
//! do not cover.

use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CAP, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, ibv_qp_attr, ibv_qp_cap,
};

use super::alternate::{AlternatePath, MigState};
use super::control::Control;
use super::pair::QueuePair;
use super::state::QpState;
use super::transitions;
use crate::ah::AhAttr;
use crate::error::{Error, Result};
use crate::in_flight::Table;
use crate::kind::ErrorKind;
use crate::mr::AccessFlags;
use crate::numbers::{Psn, Qkey, Qpn};
use crate::port::{LinkLayer, Mtu};
use crate::transport::SendTransport;

/// What to change of a queue pair; what is `None` stays as it is.
///
/// # Example
/// A connected queue pair gets more patient, which takes a drained send queue:
/// ```no_run
/// use ibverbs::{QpState, QueuePair, Rc, qp::QpChange};
/// # fn f(qp: &mut QueuePair<Rc>) -> Result<(), ibverbs::Error> {
/// qp.modify(&QpChange {
///     timeout: Some(18),
///     ..QpChange::to(QpState::SQD)
/// })
/// .unwrap_err(); // the step from RTS to SQD does not take timeout
/// qp.modify(&QpChange::to(QpState::SQD))?;
/// qp.modify(&QpChange {
///     timeout: Some(18),
///     ..QpChange::to(QpState::SQD)
/// })?;
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
    /// The state that it is taken to be in, as where a send error may have moved it.
    pub cur_state: Option<QpState>,
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
    /// The other way to the peer, for when the first fails.
    pub alternate: Option<AlternatePath>,
    /// [`REARM`](MigState::REARM) to arm the other way, [`MIGRATED`](MigState::MIGRATED) to take
    /// it at once.
    pub path_mig_state: Option<MigState>,
    /// The MTU of the way.
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
    /// Requests of the send queue that can be in flight, where the device can [change
    /// it](crate::caps::DeviceCapFlags::RESIZE_MAX_WR); [`QueuePair::caps`] then says what it
    /// gave.
    pub max_send_wr: Option<u32>,
    /// Receives that can be in flight, as above.
    pub max_recv_wr: Option<u32>,
}

impl QpChange {
    /// To this state, with nothing else.
    pub fn to(state: QpState) -> Self {
        Self {
            state: Some(state),
            ..Self::default()
        }
    }

    /// Whether it changes how long the queues are.
    fn resizes(&self) -> bool {
        self.max_send_wr.is_some() || self.max_recv_wr.is_some()
    }

    /// As the verb takes it, of a queue pair with these sizes.
    fn to_raw(self, sizes: &ibv_qp_cap) -> (ibv_qp_attr, u32) {
        let mut attr = ibv_qp_attr {
            cap: *sizes,
            ..Default::default()
        };
        let mut mask = 0;
        if let Some(alternate) = self.alternate {
            alternate.write_to(&mut attr);
            mask |= IBV_QP_ALT_PATH;
        }
        macro_rules! set {
            ($($field:ident => $flag:ident, $($raw:ident).+ = $value:expr;)*) => {$(
                if let Some($field) = self.$field {
                    attr.$($raw).+ = $value;
                    mask |= $flag;
                }
            )*};
        }
        set! {
            state => IBV_QP_STATE, qp_state = state.0;
            cur_state => IBV_QP_CUR_STATE, cur_qp_state = cur_state.0;
            path_mig_state => IBV_QP_PATH_MIG_STATE, path_mig_state = path_mig_state.0;
            max_send_wr => IBV_QP_CAP, cap.max_send_wr = max_send_wr;
            max_recv_wr => IBV_QP_CAP, cap.max_recv_wr = max_recv_wr;
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

impl<T: SendTransport> QueuePair<T> {
    /// Changes what `change` says, after checking it against the table of the specification: what
    /// is missing or not allowed in this step is named before the driver is asked. (iWARP has
    /// another table, and its driver is asked at once.)
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a step that does not exist, or with other attributes than it
    /// takes; for RESET with requests in flight, whose memory could not be told free:
    /// [destroy](QueuePair::destroy) the queue pair instead. [`ErrorKind::QueueFull`] for other
    /// sizes while requests are in flight. [`ErrorKind::Unsupported`] for other sizes where the
    /// device cannot change them, and for an alternate path on an Ethernet link.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QpState, QueuePair, Rc, qp::QpChange};
    /// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// qp.modify(&QpChange::to(QpState::SQD))?; // no further send starts
    ///
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn modify(&mut self, change: &QpChange) -> Result<()> {
        if !change.resizes() {
            return self.control().modify(change, self.is_idle(), None);
        }
        let sizes = self.check_resize([change.max_send_wr, change.max_recv_wr])?;
        self.control().modify(change, true, Some(&sizes))?;
        self.take_sizes()
    }

    /// Whether every request that was posted has been retired.
    pub fn is_idle(&self) -> bool {
        let (sends, recvs) = (&self.tables.sends, &self.tables.recvs.table);
        sends.room() == sends.capacity() && recvs.room() == recvs.capacity()
    }
}

impl Control<'_> {
    /// `idle` says that no request is in flight; the sizes are those of queues that can be changed.
    pub(crate) fn modify(
        self,
        change: &QpChange,
        idle: bool,
        sizes: Option<&ibv_qp_cap>,
    ) -> Result<()> {
        let from = self.state()?;
        let to = change.state.unwrap_or(from);
        let (mut attr, mask) = change.to_raw(sizes.unwrap_or(&ibv_qp_cap::default()));
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidInput, "ibv_modify_qp", what));
        if change.resizes() && sizes.is_none() {
            return refuse(format!(
                "{}, which has no queues, to other sizes",
                self.describe()
            ));
        }
        if self.follows_the_table() {
            if let Some(fault) = transitions::fault(self.kind, from, to, mask) {
                return refuse(format!("{}: {fault}", self.describe()));
            }
        }
        if to == QpState::RESET && !idle {
            let what = format!("{} to RESET with requests in flight", self.describe());
            return refuse(what)
                .map_err(|error| error.with_hint("destroy it, which gives their buffers back"));
        }
        let modified = self.modify_raw(&to.to_string(), &mut attr, mask);
        modified.map_err(|error| match change.alternate {
            Some(alternate) if error.kind() == ErrorKind::InvalidInput => {
                self.explain_path(error, alternate)
            }
            _ => error,
        })
    }

    /// The kernel takes no alternate path on links other than InfiniBand, and says "invalid
    /// argument".
    fn explain_path(self, error: Error, alternate: AlternatePath) -> Error {
        match self.context.query_port(alternate.address.port_num) {
            Ok(port) if port.link_layer != LinkLayer::INFINIBAND => error
                .of_kind(ErrorKind::Unsupported)
                .with_hint("alternate paths are of InfiniBand links only"),
            _ => error,
        }
    }
}
