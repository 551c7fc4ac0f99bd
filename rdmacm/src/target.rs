//! Where datagrams go: a service or a group, as the connection manager says it.

#![allow(unsafe_code)]

use ibverbs::{AhAttr, Destination, Gid, GidIndex, GlobalRoute, Lid, Qkey, Qpn, QueuePair, Result, Ud};
use rdma_sys::{ibv_ah_attr, rdma_ud_param};

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

/// The way to a port, as C has it.
pub(crate) fn ah_attr(raw: &ibv_ah_attr) -> AhAttr {
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
