//! Addresses of datagram destinations.

#![allow(unsafe_code)]

use ibverbs::{
    AhAttr, Gid, GidIndex, GlobalRoute, Lid, Qkey, Qpn, QueuePair, Result, Ud, wr::Destination,
};
use rdma_sys::{ibv_ah_attr, rdma_ud_param};

/// Address of a datagram service or a multicast group.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Ud, wr};
/// use rdmacm::datagram::multicast::Membership;
/// # fn f(group: &Membership, qp: &mut QueuePair<Ud>) -> ibverbs::Result<()> {
/// let address = group.ud_address();
/// println!("Q_Key {:#x}", address.qkey.0);
/// let destination = address.destination(qp)?;
/// qp.post_send(wr::send(wr::Inline(b"hello, all")).to(destination))?;
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_join_multicast")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdAddress {
    /// Address handle attributes of the path to the port.
    pub ah_attr: AhAttr,
    /// Number of the destination queue pair; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// Q_Key that the destination queue pair expects.
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

    /// Creates an address handle, which the queue pair then holds, and returns the destination for
    /// [`to`](ibverbs::wr::SendRequest::to).
    ///
    /// # Errors
    /// Same as [`create_ah`](ibverbs::ProtectionDomain::create_ah).
    #[doc(alias = "ibv_create_ah")]
    pub fn destination(&self, qp: &mut QueuePair<Ud>) -> Result<Destination> {
        qp.destination(&self.ah_attr, self.qpn, self.qkey)
    }
}

/// Converts address handle attributes of C.
pub(crate) fn ah_attr(raw: &ibv_ah_attr) -> AhAttr {
    let attr = AhAttr::for_lid(raw.port_num, Lid(raw.dlid))
        .sl(raw.sl)
        .src_path_bits(raw.src_path_bits)
        .static_rate(raw.static_rate);
    if raw.is_global == 0 {
        return attr;
    }
    // SAFETY: every bit pattern is a valid GID, and librdmacm initializes all of its bytes.
    let dgid = Gid(unsafe { raw.grh.dgid.raw });
    attr.grh(
        GlobalRoute::new(dgid, GidIndex(raw.grh.sgid_index))
            .hop_limit(raw.grh.hop_limit)
            .traffic_class(raw.grh.traffic_class)
            .flow_label(raw.grh.flow_label),
    )
}
