//! Querying the attributes of a queue pair.

use rdma_sys::{
    IBV_QP_CAP, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RNR_RETRY, IBV_QP_SQ_PSN,
    IBV_QP_STATE,
};

use super::alternate::{AlternatePath, MigState};
use super::handle::QpHandle;
use super::pair::QueuePair;
use super::state::QpState;
use crate::ah::AhAttr;
use crate::error::Result;
use crate::mr::AccessFlags;
use crate::numbers::{Psn, Qkey, Qpn};
use crate::port::Mtu;
use crate::transport::SendTransport;

/// The attributes of a queue pair, as the device reports them. The values of attributes that the
/// transport or the state does not use are meaningless.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc};
/// # fn f(qp: &QueuePair<Rc>) -> ibverbs::Result<()> {
/// let attr = qp.query()?;
/// let microseconds = 4.096 * f64::from(attr.timeout).exp2();
/// println!(
///     "{} to {}, acknowledgement timeout {microseconds:.0} µs",
///     attr.state, attr.dest_qpn
/// );
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_query_qp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpAttr {
    /// State of the queue pair.
    pub state: QpState,
    /// `true` while the send queue is being drained, in state SQD.
    pub is_draining: bool,
    /// Remote access that this queue pair permits to the peer.
    pub access: AccessFlags,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Number of the port, from 1.
    pub port_num: u8,
    /// Queue key that datagrams to this queue pair must have.
    pub qkey: Qkey,
    /// Path to the peer.
    pub address: AhAttr,
    /// Alternate path, if there is one.
    pub alternate: Option<AlternatePath>,
    /// State of the path migration.
    pub path_mig_state: MigState,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Acknowledgement timeout: 4.096 µs × 2^timeout.
    pub timeout: u8,
    /// Number of retries if no acknowledgement arrives.
    pub retry_cnt: u8,
    /// Number of retries if the peer has no receive posted (RNR).
    pub rnr_retry: u8,
    /// Packet sequence number that the receive queue expects.
    pub rq_psn: Psn,
    /// Packet sequence number of the send queue.
    pub sq_psn: Psn,
    /// Maximum number of RDMA reads and atomics of this side in flight.
    pub max_rd_atomic: u8,
    /// Maximum number of the peer's RDMA reads and atomics that this side executes at a time.
    pub max_dest_rd_atomic: u8,
    /// Time that the peer waits before a retry if no receive is posted here, in the encoding of
    /// the RNR NAK timer.
    pub min_rnr_timer: u8,
    /// Number of the peer's queue pair.
    pub dest_qpn: Qpn,
    /// Maximum number of send requests in flight.
    pub max_send_wr: u32,
    /// Maximum number of receives in flight.
    pub max_recv_wr: u32,
    /// Maximum length of inline data in bytes.
    pub max_inline_data: u32,
    /// Rate limit in kbit/s, or 0 for none.
    pub rate_limit: u32,
}

impl QpHandle<'_> {
    pub(crate) fn query(self) -> Result<QpAttr> {
        // Every flag of `enum ibv_qp_attr_mask` except `IBV_QP_RATE_LIMIT`. Queries return the rate
        // limit without that flag.
        const ALL: u32 = (1 << 21) - 1;
        // The driver of EFA refuses other flags.
        const EFA: u32 = IBV_QP_STATE
            | IBV_QP_PKEY_INDEX
            | IBV_QP_PORT
            | IBV_QP_QKEY
            | IBV_QP_SQ_PSN
            | IBV_QP_CAP
            | IBV_QP_RNR_RETRY;
        let attr = match self.query_raw(ALL) {
            Err(error) if error.is_unsupported() => self.query_raw(EFA)?,
            queried => queried?,
        };
        Ok(QpAttr {
            state: QpState(attr.qp_state),
            is_draining: attr.sq_draining != 0,
            access: AccessFlags::from_bits_retain(attr.qp_access_flags),
            pkey_index: attr.pkey_index,
            port_num: attr.port_num,
            qkey: Qkey(attr.qkey),
            address: AhAttr::from_raw(&attr.ah_attr),
            alternate: AlternatePath::from_raw(&attr),
            path_mig_state: MigState(attr.path_mig_state),
            path_mtu: Mtu(attr.path_mtu),
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            rq_psn: Psn(attr.rq_psn),
            sq_psn: Psn(attr.sq_psn),
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            dest_qpn: Qpn(attr.dest_qp_num),
            max_send_wr: attr.cap.max_send_wr,
            max_recv_wr: attr.cap.max_recv_wr,
            max_inline_data: attr.cap.max_inline_data,
            rate_limit: attr.rate_limit,
        })
    }
}

impl<T: SendTransport> QueuePair<T> {
    /// Queries the attributes of the queue pair.
    ///
    /// # Errors
    /// Fails if the device was removed.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc};
    /// # fn f(qp: &QueuePair<Rc>) -> ibverbs::Result<()> {
    /// println!("at most {} reads in flight", qp.query()?.max_rd_atomic);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttr> {
        self.handle().query()
    }
}
