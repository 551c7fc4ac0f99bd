//! What a queue pair is set to.

use super::alternate::{AlternatePath, MigState};
use super::control::Control;
use super::pair::QueuePair;
use super::state::QpState;
use crate::ah::AhAttr;
use crate::error::Result;
use crate::mr::AccessFlags;
use crate::numbers::{Psn, Qkey, Qpn};
use crate::port::Mtu;
use crate::transport::SendTransport;

/// What a queue pair is set to, as the device says it. What its transport or state has no use for
/// means nothing.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc};
/// # fn f(qp: &QueuePair<Rc>) -> ibverbs::Result<()> {
/// let attr = qp.query()?;
/// let microseconds = 4.096 * f64::from(attr.timeout).exp2();
/// println!(
///     "{} to {}, {microseconds:.0} µs for an acknowledgement",
///     attr.state, attr.dest_qpn
/// );
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_query_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpAttr {
    /// Its state.
    pub state: QpState,
    /// Whether its send queue is being drained, in SQD.
    pub is_draining: bool,
    /// What the peer may do.
    pub access: AccessFlags,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Its port, from 1.
    pub port_num: u8,
    /// The queue key that senders must know.
    pub qkey: Qkey,
    /// The way to the peer.
    pub address: AhAttr,
    /// The other way to the peer, if it has one.
    pub alternate: Option<AlternatePath>,
    /// Where it stands between the two.
    pub path_mig_state: MigState,
    /// The MTU of the way.
    pub path_mtu: Mtu,
    /// Waiting time for an acknowledgement: 4.096 µs × 2^timeout.
    pub timeout: u8,
    /// Retries without an acknowledgement.
    pub retry_cnt: u8,
    /// Retries when the peer has no receive posted.
    pub rnr_retry: u8,
    /// Packet sequence number that is expected of the peer.
    pub rq_psn: Psn,
    /// Packet sequence number that this side sends.
    pub sq_psn: Psn,
    /// Reads and atomics of this side that can be in flight.
    pub max_rd_atomic: u8,
    /// Reads and atomics of the peer that this side serves at once.
    pub max_dest_rd_atomic: u8,
    /// Code of the time that a peer waits when no receive is posted here.
    pub min_rnr_timer: u8,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// Requests of the send queue that can be in flight.
    pub max_send_wr: u32,
    /// Receives that can be in flight.
    pub max_recv_wr: u32,
    /// Bytes that a request can carry inline.
    pub max_inline_data: u32,
    /// At most so many kbit/s; 0 for no limit.
    pub rate_limit: u32,
}

impl Control<'_> {
    pub(crate) fn query(self) -> Result<QpAttr> {
        const ALL: u32 = (1 << 21) - 1; // every flag of enum ibv_qp_attr_mask but the rate limit, which a query need not ask for
        let attr = self.ask(ALL)?;
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
    /// What the queue pair is set to.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc};
    /// # fn f(qp: &QueuePair<Rc>) -> ibverbs::Result<()> {
    /// println!("reads in flight at most: {}", qp.query()?.max_rd_atomic);
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_query_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html)
    pub fn query(&self) -> Result<QpAttr> {
        self.control().query()
    }
}
