//! What the connection manager says of datagrams: how a queue pair is started, and where a service is.

#![allow(unsafe_code)]

use ibverbs::{
    AhAttr, Destination, Error, ErrorKind, Gid, GidIndex, GlobalRoute, Lid, Psn, Qkey, QpState, Qpn, QueuePair, Result,
    Ud,
};
use rdma_sys::{ibv_ah_attr, rdma_ud_param};

use crate::id::Id;
use crate::path::Path;

/// Where datagrams go: what a service or a group is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// The way to the port.
    pub ah_attr: AhAttr,
    /// The queue pair there; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// The key that it must be told.
    pub qkey: Qkey,
}

impl Target {
    pub(crate) fn of(param: &rdma_ud_param) -> Self {
        Self { ah_attr: ah_attr(&param.ah_attr), qpn: Qpn(param.qp_num), qkey: Qkey(param.qkey) }
    }

    /// Makes an address handle, has the queue pair hold it, and gives what [`wr::send_to`](ibverbs::wr::send_to) takes.
    ///
    /// # Errors
    /// As [`create_ah`](ibverbs::ProtectionDomain::create_ah).
    pub fn destination(&self, qp: &mut QueuePair<Ud>) -> Result<Destination> {
        let address = qp.pd().create_ah(&self.ah_attr)?;
        Ok(Destination { address: qp.hold_address(&address)?, qpn: self.qpn, qkey: self.qkey })
    }
}

fn ah_attr(raw: &ibv_ah_attr) -> AhAttr {
    let grh = (raw.is_global != 0).then_some(GlobalRoute {
        // SAFETY: the bytes of a GID, whichever member was written.
        dgid: Gid(unsafe { raw.grh.dgid.raw }),
        sgid_index: GidIndex(raw.grh.sgid_index),
        hop_limit: raw.grh.hop_limit,
        traffic_class: raw.grh.traffic_class,
        flow_label: raw.grh.flow_label,
    });
    AhAttr {
        port_num: raw.port_num,
        dlid: Lid(raw.dlid),
        sl: raw.sl,
        src_path_bits: raw.src_path_bits,
        static_rate: raw.static_rate,
        grh,
    }
}

/// RESET to RTS, with the partition, the port and the key of the identifier (or another key).
pub(crate) fn start(id: &Id, path: &Path, qp: &mut QueuePair<Ud>, qkey: Option<Qkey>) -> Result<()> {
    path.check("rdma_init_qp_attr", qp)?;
    let (attr, _mask) = id.init_qp_attr(QpState::INIT.0, path)?;
    qp.start(attr.port_num, attr.pkey_index, qkey.unwrap_or(Qkey(attr.qkey)), Psn(0))
}

/// Refuses iWARP, which has no datagrams.
pub(crate) fn check(verb: &'static str, path: &Path) -> Result<()> {
    if !path.is_iwarp() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, verb, format!("{path}: iWARP has no datagrams"))
        .with_hint("use connections there"))
}
