//! Connecting a queue pair without the connection manager.

use rdma_sys::ibv_qp_attr;
use rdma_types::setters;

use super::handle::QpHandle;
use super::pair::QueuePair;
use super::state::QpState;
use super::transitions::required_mask;
use crate::ah::{AhAttr, GlobalRoute};
use crate::error::Result;
use crate::gid::{Gid, GidIndex};
use crate::mr::AccessFlags;
use crate::numbers::{Psn, Qpn};
use crate::port::{Lid, Mtu};
#[cfg(feature = "mlx5")]
use crate::transport::Transport;
use crate::transport::{ConnectedTransport, SendTransport};

/// The address of a queue pair, which two peers exchange to connect. [`QueuePair::endpoint`]
/// returns it.
///
/// Its text form is `LID:QPN:PSN:GID` in 51 characters, the format of the `ibv_*_pingpong` programs
/// of rdma-core.
///
/// # Example
/// The application exchanges endpoints over a connection of its own:
/// ```no_run
/// use ibverbs::{Endpoint, QueuePair, Rc, RcPath};
/// use std::io::{BufRead, BufReader, Write};
/// # fn f(qp: &mut QueuePair<Rc>, path: &RcPath) -> Result<(), Box<dyn std::error::Error>> {
/// let mut peer = BufReader::new(std::net::TcpStream::connect("host1:18515")?);
/// let ours = qp.endpoint(path)?;
/// writeln!(peer.get_mut(), "{ours}")?;
/// let mut line = String::new();
/// peer.read_line(&mut line)?;
/// let theirs: Endpoint = line.trim_end().parse()?;
/// qp.connect(path, &theirs)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Endpoint {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// First packet sequence number that the queue pair sends.
    pub psn: Psn,
    /// LID of the port, or 0 on RoCE.
    pub lid: Lid,
    /// GID of the port.
    pub gid: Gid,
}

/// The path of a connection, with its timeouts, retries and access rights.
///
/// An unreliable connection ignores timeouts, retries and the limits of RDMA reads.
///
/// # Example
/// A path whose peer may read memory. The connection fails after 7 × 268 ms without an
/// acknowledgement:
/// ```
/// use ibverbs::{AccessFlags, GidIndex, Mtu, RcPath};
/// let path = RcPath::new(1, GidIndex(1), Mtu::B1024)
///     .timeout(16) // 4.096 µs × 2¹⁶ = 268 ms
///     .retry_cnt(6)
///     .access(AccessFlags::REMOTE_READ);
/// assert_eq!(path.mtu.bytes(), Some(1024));
/// ```
#[doc(alias = "ibv_modify_qp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RcPath {
    /// Local port, from 1.
    pub port_num: u8,
    /// Index of the local GID. `None` for an InfiniBand path within the subnet, which is addressed
    /// by LID only.
    pub sgid_index: Option<GidIndex>,
    /// Path MTU, at most the active MTU of both ports.
    pub mtu: Mtu,
    /// First packet sequence number that this side sends. The peer receives it in this side's
    /// [endpoint](crate::QueuePair::endpoint). Use [`Psn::random`] if queue pairs are connected
    /// again, because late packets of the earlier connection can match equal numbers. Default:
    /// `Psn(0)`.
    pub psn: Psn,
    /// Index of the partition key. Default: `0`.
    pub pkey_index: u16,
    /// Service level, 0 to 15. Default: `0`.
    pub sl: u8,
    /// Hop limit of the packets. Default: `64`.
    pub hop_limit: u8,
    /// Traffic class (DSCP and ECN bits of RoCE v2 packets). Default: `0`.
    pub traffic_class: u8,
    /// Flow label, 20 bits. RoCE v2 devices can derive the UDP source port from it, which switches
    /// use for ECMP. Default: `0`.
    pub flow_label: u32,
    /// Low bits of this port's LID if the port has several LIDs. Default: `0`.
    pub src_path_bits: u8,
    /// Rate limit code (`enum ibv_rate`), or 0 for the port's rate. Default: `0`.
    pub static_rate: u8,
    /// Acknowledgement timeout: 4.096 µs × 2^timeout, 0 to 31. 0 waits forever. Default: `14` (67
    /// ms).
    pub timeout: u8,
    /// Retries without an acknowledgement, 0 to 7. On Soft-RoCE, 7 means without limit.
    /// Default: `6`.
    pub retry_cnt: u8,
    /// Retries when the peer has no receive posted, 0 to 6. 7 means without limit. Default:
    /// `7`.
    pub rnr_retry: u8,
    /// Time that the peer waits before such a retry, as a code from 0 to 31: 1 is 0.01 ms, 12 is
    /// 0.64 ms, 0 is 655 ms (IBA table 45). Default: `12`.
    pub min_rnr_timer: u8,
    /// Maximum number of RDMA reads and atomics of this side in flight, at most the device's
    /// `max_qp_init_rd_atom`. Default: `1`.
    pub max_rd_atomic: u8,
    /// Maximum number of the peer's RDMA reads and atomics that this side executes at a time, at
    /// most the device's `max_qp_rd_atom`. Default: `1`.
    pub max_dest_rd_atomic: u8,
    /// Access of the peer to this side's memory. The registration must allow it too. Default:
    /// `AccessFlags::empty()`.
    pub access: AccessFlags,
}

setters! {
    RcPath {
        port_num: u8,
        sgid_index: Option<GidIndex>,
        mtu: Mtu,
        psn: Psn,
        pkey_index: u16,
        sl: u8,
        hop_limit: u8,
        traffic_class: u8,
        flow_label: u32,
        src_path_bits: u8,
        static_rate: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        min_rnr_timer: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        access: AccessFlags,
    }
}

impl RcPath {
    /// Creates a path from this port and GID with this MTU and with defaults for everything else.
    pub fn new(port_num: u8, sgid_index: impl Into<Option<GidIndex>>, mtu: Mtu) -> Self {
        Self {
            port_num,
            sgid_index: sgid_index.into(),
            mtu,
            psn: Psn(0),
            pkey_index: 0,
            sl: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            src_path_bits: 0,
            static_rate: 0,
            timeout: 14,
            retry_cnt: 6,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            access: AccessFlags::empty(),
        }
    }
}

impl<T: SendTransport> QueuePair<T> {
    /// Returns the state that the device reports.
    ///
    /// # Errors
    /// Fails if the device was removed.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QpState, QueuePair, Rc};
    /// # fn f(qp: &QueuePair<Rc>) -> ibverbs::Result<()> {
    /// if qp.state()? == QpState::ERR {
    ///     println!("connect again");
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> Result<QpState> {
        self.handle().state()
    }

    /// Moves the queue pair to the error state. The driver flushes the requests in flight as far as
    /// it implements that. Destroying the queue pair returns the buffers of the others.
    ///
    /// # Errors
    /// Fails if the device was removed.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionQueue, QueuePair, Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) -> ibverbs::Result<()> {
    /// qp.to_error()?;
    /// for completion in cq.poll()? {
    ///     let buf = qp.retire(completion)?.into_buf(); // flushed
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn to_error(&mut self) -> Result<()> {
        self.handle().to_error()
    }
}

impl<T: ConnectedTransport> QueuePair<T> {
    /// Returns the endpoint that the peer needs to connect on this path: the number of the queue
    /// pair, the first packet sequence number and the address of the port.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the path's entry of the GID table is
    /// empty, [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the port does not
    /// exist.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Endpoint, QueuePair, Rc, RcPath};
    /// # fn f(qp: &mut QueuePair<Rc>, path: &RcPath, exchange: impl Fn(Endpoint) -> Endpoint) -> ibverbs::Result<()> {
    /// let theirs = exchange(qp.endpoint(path)?); // sends ours, receives theirs
    /// qp.init(path)?;
    /// qp.connect(path, &theirs)?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_query_gid")]
    pub fn endpoint(&self, path: &RcPath) -> Result<Endpoint> {
        self.handle().endpoint(path)
    }

    /// Moves the queue pair from RESET to INIT. Receives can be posted from then on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the queue pair is in another
    /// state or the port does not exist.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&mut self, path: &RcPath) -> Result<()> {
        self.handle().init(path)
    }

    /// Connects the queue pair to `remote`: moves it from INIT through RTR to RTS.
    ///
    /// Both sides must connect before either sends. iWARP cannot connect this way; use the crate
    /// `rdmacm`.
    ///
    /// # Errors
    /// Fails if the peer cannot be reached, the GID index does not exist or the MTU exceeds that of
    /// the port. The message names the state that could not be reached.
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html), IBA 10.3.1
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(&mut self, path: &RcPath, remote: &Endpoint) -> Result<()> {
        self.handle().connect(path, remote)
    }
}

impl QpHandle<'_> {
    pub(crate) fn endpoint(self, path: &RcPath) -> Result<Endpoint> {
        let gid = match path.sgid_index {
            Some(index) => self.context.gid(path.port_num, index)?.gid,
            None => Gid::default(),
        };
        Ok(Endpoint {
            qpn: self.qp_num(),
            psn: path.psn,
            lid: self.context.query_port(path.port_num)?.lid,
            gid,
        })
    }

    pub(crate) fn init(self, path: &RcPath) -> Result<()> {
        let mut attr = ibv_qp_attr {
            qp_state: QpState::INIT.0,
            pkey_index: path.pkey_index,
            port_num: path.port_num,
            qp_access_flags: path.access.bits(),
            ..Default::default()
        };
        self.modify_raw(
            "INIT",
            &mut attr,
            required_mask(self.transport, QpState::RESET, QpState::INIT),
        )
    }

    pub(crate) fn connect(self, path: &RcPath, remote: &Endpoint) -> Result<()> {
        self.to_rtr(path, remote)?;
        self.to_rts(path)
    }

    /// Moves a queue pair of the dynamically connected transport from RESET to its last state: RTS
    /// for an initiator, RTR for a target.
    #[cfg(feature = "mlx5")]
    pub(crate) fn start_dc(self, path: &RcPath) -> Result<()> {
        self.init(path)?;
        // The address that the verb takes is that of this port.
        self.to_rtr(path, &self.endpoint(path)?)?;
        if self.transport == Transport::DcInitiator {
            self.to_rts(path)?;
        }
        Ok(())
    }

    fn to_rtr(self, path: &RcPath, remote: &Endpoint) -> Result<()> {
        let mut rtr = ibv_qp_attr {
            qp_state: QpState::RTR.0,
            path_mtu: path.mtu.0,
            dest_qp_num: remote.qpn.0,
            rq_psn: remote.psn.0,
            max_dest_rd_atomic: path.max_dest_rd_atomic,
            min_rnr_timer: path.min_rnr_timer,
            ah_attr: address(path, remote).to_raw(),
            ..Default::default()
        };
        self.modify_raw(
            "RTR",
            &mut rtr,
            required_mask(self.transport, QpState::INIT, QpState::RTR),
        )
    }

    fn to_rts(self, path: &RcPath) -> Result<()> {
        let mut rts = ibv_qp_attr {
            qp_state: QpState::RTS.0,
            timeout: path.timeout,
            retry_cnt: path.retry_cnt,
            rnr_retry: path.rnr_retry,
            sq_psn: path.psn.0,
            max_rd_atomic: path.max_rd_atomic,
            ..Default::default()
        };
        self.modify_raw(
            "RTS",
            &mut rts,
            required_mask(self.transport, QpState::RTR, QpState::RTS),
        )
    }
}

fn address(path: &RcPath, remote: &Endpoint) -> AhAttr {
    let grh = path.sgid_index.map(|sgid_index| GlobalRoute {
        dgid: remote.gid,
        sgid_index,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        flow_label: path.flow_label,
    });
    AhAttr {
        sl: path.sl,
        src_path_bits: path.src_path_bits,
        static_rate: path.static_rate,
        grh,
        ..AhAttr::for_lid(path.port_num, remote.lid)
    }
}
