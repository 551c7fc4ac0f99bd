//! Datagrams: services found by their address (service ID resolution) and multicast groups. Built
//! on the active and the passive side of connections.

pub mod multicast;
mod querying;
mod route;
mod service;
#[cfg(feature = "tokio")]
mod tokio;

use ibverbs::{DatagramAttr, Qkey, QpState, QueuePair, Result, Ud};

pub use self::querying::{Querying, Service};
pub use self::route::DatagramRoute;
pub use self::service::{ServiceListener, ServiceRequest};
pub use crate::address::UdAddress;
use crate::id::{Id, Path};

/// Moves a queue pair from RESET to RTS with the port and the partition of the identifier, and with
/// `qkey` or else the identifier's Q_Key.
pub(crate) fn start_qp(
    id: &Id,
    path: &Path,
    qp: &mut QueuePair<Ud>,
    qkey: Option<Qkey>,
) -> Result<()> {
    path.check("rdma_init_qp_attr", qp)?;
    let (attr, _mask) = id.init_qp_attr(QpState::INIT.0, path)?;
    let qkey = qkey.unwrap_or(Qkey(attr.qkey));
    qp.start(&DatagramAttr::new(attr.port_num, qkey).pkey_index(attr.pkey_index))
}
