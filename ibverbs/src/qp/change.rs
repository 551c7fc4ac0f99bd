//! Changing single attributes of a queue pair, where `init`, `connect` and `start` do not suffice.

use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CAP, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, ibv_qp_attr, ibv_qp_cap,
};
use rdma_types::setters;

use super::alternate::{AlternatePath, MigState};
use super::handle::QpHandle;
use super::pair::QueuePair;
use super::state::QpState;
use super::transitions;
use crate::ah::AhAttr;
use crate::error::{Error, ErrorKind, Result};
use crate::mr::AccessFlags;
use crate::numbers::{Psn, Qkey, Qpn};
use crate::port::{LinkLayer, Mtu};
use crate::transport::SendTransport;

/// Changes to the attributes of a queue pair. An attribute that is `None`, the default,
/// keeps its value.
///
/// # Example
/// The timeout of a connected queue pair can be changed while the send queue is drained:
/// ```no_run
/// use ibverbs::{QpState, QueuePair, Rc, qp::QpChange};
/// # fn f(qp: &mut QueuePair<Rc>) -> Result<(), ibverbs::Error> {
/// qp.modify(&QpChange::to(QpState::SQD).timeout(18))
/// .unwrap_err(); // the transition from RTS to SQD does not allow timeout
/// qp.modify(&QpChange::to(QpState::SQD))?;
/// qp.modify(&QpChange::to(QpState::SQD).timeout(18))?;
/// qp.modify(&QpChange::to(QpState::RTS))
/// # }
/// ```
///
/// # References
/// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html), IBA 11.2.5.2
#[doc(alias = "ibv_modify_qp")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpChange {
    /// State to move to.
    pub state: Option<QpState>,
    /// State that the queue pair is assumed to be in, for example after a send error.
    pub cur_state: Option<QpState>,
    /// `true` to receive an event when the send queue is drained, when moving to SQD.
    pub notify_when_drained: Option<bool>,
    /// Access of the peer to this side's memory.
    pub access: Option<AccessFlags>,
    /// Index of the partition key.
    pub pkey_index: Option<u16>,
    /// Number of the port, from 1.
    pub port_num: Option<u8>,
    /// Queue key that senders must use.
    pub qkey: Option<Qkey>,
    /// Path to the peer.
    pub address: Option<AhAttr>,
    /// Alternate path, for automatic path migration.
    pub alternate: Option<AlternatePath>,
    /// [`REARM`](MigState::REARM) to arm the alternate path, [`MIGRATED`](MigState::MIGRATED) to
    /// migrate to it now.
    pub path_mig_state: Option<MigState>,
    /// Path MTU.
    pub path_mtu: Option<Mtu>,
    /// Acknowledgement timeout: 4.096 µs × 2^timeout.
    pub timeout: Option<u8>,
    /// Retries without an acknowledgement.
    pub retry_cnt: Option<u8>,
    /// Retries when the peer has no receive posted.
    pub rnr_retry: Option<u8>,
    /// First packet sequence number of the peer.
    pub rq_psn: Option<Psn>,
    /// First packet sequence number of this side.
    pub sq_psn: Option<Psn>,
    /// Maximum number of RDMA reads and atomics of this side in flight.
    pub max_rd_atomic: Option<u8>,
    /// Maximum number of the peer's RDMA reads and atomics that this side executes at a time.
    pub max_dest_rd_atomic: Option<u8>,
    /// Code of the time that the peer waits before a retry when no receive is posted here.
    pub min_rnr_timer: Option<u8>,
    /// Number of the peer's queue pair.
    pub dest_qpn: Option<Qpn>,
    /// Rate limit in kbit/s, for raw packets only.
    pub rate_limit: Option<u32>,
    /// Maximum number of send requests in flight, if the device can [change
    /// it](crate::caps::DeviceCapFlags::RESIZE_MAX_WR). [`QueuePair::caps`] then returns the
    /// granted number.
    pub max_send_wr: Option<u32>,
    /// Maximum number of receives in flight, under the same condition.
    pub max_recv_wr: Option<u32>,
}

setters! {
    QpChange {
        state: Option<QpState>,
        cur_state: Option<QpState>,
        notify_when_drained: Option<bool>,
        access: Option<AccessFlags>,
        pkey_index: Option<u16>,
        port_num: Option<u8>,
        qkey: Option<Qkey>,
        address: Option<AhAttr>,
        alternate: Option<AlternatePath>,
        path_mig_state: Option<MigState>,
        path_mtu: Option<Mtu>,
        timeout: Option<u8>,
        retry_cnt: Option<u8>,
        rnr_retry: Option<u8>,
        rq_psn: Option<Psn>,
        sq_psn: Option<Psn>,
        max_rd_atomic: Option<u8>,
        max_dest_rd_atomic: Option<u8>,
        min_rnr_timer: Option<u8>,
        dest_qpn: Option<Qpn>,
        rate_limit: Option<u32>,
        max_send_wr: Option<u32>,
        max_recv_wr: Option<u32>,
    }
}

impl QpChange {
    /// Returns a change of no attribute.
    pub const fn new() -> Self {
        Self {
            state: None,
            cur_state: None,
            notify_when_drained: None,
            access: None,
            pkey_index: None,
            port_num: None,
            qkey: None,
            address: None,
            alternate: None,
            path_mig_state: None,
            path_mtu: None,
            timeout: None,
            retry_cnt: None,
            rnr_retry: None,
            rq_psn: None,
            sq_psn: None,
            max_rd_atomic: None,
            max_dest_rd_atomic: None,
            min_rnr_timer: None,
            dest_qpn: None,
            rate_limit: None,
            max_send_wr: None,
            max_recv_wr: None,
        }
    }

    /// Creates a change of the state only.
    pub const fn to(state: QpState) -> Self {
        Self::new().state(state)
    }

    /// Returns `true` if the change resizes a queue.
    fn resizes(&self) -> bool {
        self.max_send_wr.is_some() || self.max_recv_wr.is_some()
    }

    /// Returns the attributes and mask for the verb. `sizes` are the present queue sizes.
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
    /// Changes attributes, after checking them against the state table of the IBTA specification.
    /// The error names attributes that are missing or not allowed in the transition. iWARP has
    /// another table, so there only the driver checks.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`] for a transition that does not exist or does not take these
    ///   attributes, and for RESET with requests in flight, because the memory of these requests
    ///   could not be reclaimed. [Destroy](QueuePair::destroy) the queue pair instead.
    /// - [`ErrorKind::Busy`] for a change of the queue sizes with requests in flight.
    /// - [`ErrorKind::Unsupported`] for a change of the queue sizes if the device cannot resize
    ///   them, and for an alternate path on an Ethernet link.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QpState, QueuePair, Rc, qp::QpChange};
    /// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// qp.modify(&QpChange::to(QpState::SQD))?; // the device starts no further sends
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, change: &QpChange) -> Result<()> {
        if !change.resizes() {
            let idle = self.tables.is_done() && !self.tables.leaves_dangerous_completions();
            return self.handle().modify(change, idle, None);
        }
        let sizes = self.check_resize([change.max_send_wr, change.max_recv_wr])?;
        self.handle().modify(change, true, Some(&sizes))?;
        self.take_sizes()
    }

    /// Returns `true` if every posted request has been retired.
    pub fn is_idle(&self) -> bool {
        let (sends, recvs) = (&self.tables.sends, &self.tables.recvs.table);
        sends.is_empty() && recvs.is_empty()
    }
}

impl QpHandle<'_> {
    /// Changes attributes. `idle` is `true` if no request is in flight. `sizes` are the present
    /// queue sizes if the queues can be resized.
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
            return refuse(format!("{} has no queues to resize", self.describe()));
        }
        if self.follows_ibta_states() {
            if let Some(violation) = transitions::violation(self.transport, from, to, mask) {
                return refuse(format!("{}: {violation}", self.describe()));
            }
        }
        if to == QpState::RESET && !idle {
            let what = format!("{} to RESET with requests in flight", self.describe());
            return refuse(what).map_err(|error| {
                error.with_help("destroy the queue pair, which returns their buffers")
            });
        }
        let modified = self.modify_raw(&to.to_string(), &mut attr, mask);
        modified.map_err(|error| match change.alternate {
            Some(alternate) if error.kind() == ErrorKind::InvalidInput => {
                self.explain_path(error, alternate)
            }
            _ => error,
        })
    }

    /// Replaces the error for an alternate path on Ethernet, which the kernel reports as EINVAL.
    fn explain_path(self, error: Error, alternate: AlternatePath) -> Error {
        match self.context.query_port(alternate.address.port_num) {
            Ok(port) if port.link_layer != LinkLayer::INFINIBAND => error
                .with_kind(ErrorKind::Unsupported)
                .with_help("alternate paths exist on InfiniBand links only"),
            _ => error,
        }
    }
}
