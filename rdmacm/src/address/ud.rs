//! Where datagrams go: a service or a group, as the connection manager says it.

#![allow(unsafe_code)]

use ibverbs::{
    AhAttr, Gid, GidIndex, GlobalRoute, Lid, Qkey, Qpn, QueuePair, Result, Ud, wr::Destination,
};
use rdma_sys::{ibv_ah_attr, rdma_ud_param};

/// Where datagrams go: what a service or a group is reached by.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Ud, wr};
/// use rdmacm::datagram::multicast::Membership;
/// # fn f(group: &Membership, qp: &mut QueuePair<Ud>) -> ibverbs::Result<()> {
/// let target = group.ud_address();
/// println!("key {:#x}", target.qkey.0);
/// let to_all = target.destination(qp)?;
/// qp.post_send(wr::send_to(wr::Inline(b"hello, all"), to_all))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`rdma_join_multicast(3)`](https://man7.org/linux/man-pages/man3/rdma_join_multicast.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdAddress {
    /// The way to the port.
    pub ah_attr: AhAttr,
    /// The queue pair there; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// The key that it must be told.
    pub qkey: Qkey,
}

impl UdAddress {
    pub(crate) fn new(param: &rdma_ud_param) -> Self {
        Self {
            ah_attr: ah_attr(&param.ah_attr),
            qpn: Qpn(param.qp_num),
            qkey: Qkey(param.qkey),
        }
    }

    /// Makes an address handle, has the queue pair hold it, and gives what
    /// [`wr::send_to`](ibverbs::wr::send_to) takes.
    ///
    /// # Errors
    /// As [`create_ah`](ibverbs::ProtectionDomain::create_ah).
    ///
    /// # References
    /// [`ibv_create_ah(3)`](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)
    pub fn destination(&self, qp: &mut QueuePair<Ud>) -> Result<Destination> {
        let address = qp.pd().create_ah(&self.ah_attr)?;
        Ok(Destination {
            address: qp.hold_address(&address)?,
            qpn: self.qpn,
            qkey: self.qkey,
        })
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
