//! How a queue pair of datagrams is started, and where there are none.

use ibverbs::{Error, ErrorKind, Psn, Qkey, QpState, QueuePair, Result, Ud};

use crate::id::Id;
use crate::path::Path;

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

/// Refuses iWARP, which has no datagrams.
pub(crate) fn check(verb: &'static str, path: &Path) -> Result<()> {
    if !path.is_iwarp() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        verb,
        format!("{path}: iWARP has no datagrams"),
    )
    .with_hint("use connections there"))
}
