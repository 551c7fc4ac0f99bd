//! Datagrams: services found by their address (service ID resolution) and multicast groups.

pub mod multicast;
mod querying;
mod route;
mod service;
#[cfg(feature = "tokio")]
mod tokio;

use ibverbs::{Psn, Qkey, QpState, QueuePair, Result, Ud};

pub use self::querying::{Querying, Service};
pub use self::route::DatagramRoute;
pub use self::service::{ServiceListener, ServiceRequest};
pub use crate::address::UdAddress;
use crate::id::{Id, Path};

/// RESET to RTS, with the partition, the port and the key of the identifier (or another key).
pub(crate) fn start(
    id: &Id,
    path: &Path,
    qp: &mut QueuePair<Ud>,
    qkey: Option<Qkey>,
) -> Result<()> {
    path.check("rdma_init_qp_attr", qp)?;
    let (attr, _mask) = id.init_qp_attr(QpState::INIT.0, path)?;
    qp.start(
        attr.port_num,
        attr.pkey_index,
        qkey.unwrap_or(Qkey(attr.qkey)),
        Psn(0),
    )
}
