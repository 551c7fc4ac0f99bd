//! Datagram queue pairs: starting them, destination addresses and multicast groups.

#![allow(unsafe_code)]

use rdma_sys::{
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_SQ_PSN, IBV_QP_STATE, ibv_attach_mcast,
    ibv_detach_mcast, ibv_qp_attr,
};

use super::pair::QueuePair;
use super::state::QpState;
use crate::ah::{AddressHandle, AhAttr};
use crate::convert::zero_or_errno;
use crate::error::{Error, ErrorKind, Result};
use crate::gid::{self, Gid};
use crate::numbers::{Psn, Qkey, Qpn};
use crate::port::Lid;
use crate::transport::{DatagramTransport, DuplexTransport, SendTransport, Ud};
use crate::wr::{Destination, HeldAddress, OWN_DOMAIN};

/// Attributes with which a datagram queue pair is started.
///
/// # Example
/// ```
/// use ibverbs::{DatagramAttr, Qkey};
/// let attr = DatagramAttr::new(1, Qkey(0x1111_1111)).pkey_index(2);
/// assert_eq!(attr.port_num, 1);
/// ```
#[doc(alias = "ibv_modify_qp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramAttr {
    /// Local port, from 1.
    pub port_num: u8,
    /// Queue key: the queue pair receives datagrams that carry it.
    pub qkey: Qkey,
    /// Index of the partition key. Default: `0`.
    pub pkey_index: u16,
    /// Packet sequence number of the first datagram. Receivers ignore it. Default: `Psn(0)`.
    pub psn: Psn,
}

impl DatagramAttr {
    /// Returns attributes with the defaults.
    pub const fn new(port_num: u8, qkey: Qkey) -> Self {
        Self {
            port_num,
            qkey,
            pkey_index: 0,
            psn: Psn(0),
        }
    }

    /// Sets the index of the partition key.
    #[must_use]
    pub const fn pkey_index(mut self, index: u16) -> Self {
        self.pkey_index = index;
        self
    }

    /// Sets the packet sequence number of the first datagram.
    #[must_use]
    pub const fn psn(mut self, psn: Psn) -> Self {
        self.psn = psn;
        self
    }
}

impl<T: DatagramTransport + DuplexTransport> QueuePair<T> {
    /// Moves the queue pair from RESET through INIT and RTR to RTS. It can then send, and receive
    /// from every peer that uses its queue key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the queue pair is in another state or the port does not
    /// exist.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{DatagramAttr, Qkey, QueuePair, Ud, wr};
    /// # fn f(qp: &mut QueuePair<Ud>) -> ibverbs::Result<()> {
    /// qp.start(&DatagramAttr::new(1, Qkey(0x1111_1111)))?;
    /// let buf = qp.pd().buf(ibverbs::GRH_LEN + 2048)?; // the first 40 bytes are for the global route header
    /// qp.post_recv(wr::recv(buf))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html), IBA table 91
    #[doc(alias = "ibv_modify_qp")]
    pub fn start(&mut self, attr: &DatagramAttr) -> Result<()> {
        let mut raw = ibv_qp_attr {
            qp_state: QpState::INIT.0,
            pkey_index: attr.pkey_index,
            port_num: attr.port_num,
            qkey: attr.qkey.0,
            sq_psn: attr.psn.0,
            ..Default::default()
        };
        let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        self.handle().modify_raw("INIT", &mut raw, init)?;
        raw.qp_state = QpState::RTR.0;
        self.handle().modify_raw("RTR", &mut raw, IBV_QP_STATE)?;
        raw.qp_state = QpState::RTS.0;
        self.handle()
            .modify_raw("RTS", &mut raw, IBV_QP_STATE | IBV_QP_SQ_PSN)
    }

    /// Returns the destination of datagrams to a queue pair at an address. It creates an address
    /// handle, which this queue pair [holds](Self::hold_address).
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::create_ah`](crate::ProtectionDomain::create_ah).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{AhAttr, Endpoint, Qkey, QueuePair, Ud, gid::GidEntry, wr};
    /// # fn f(qp: &mut QueuePair<Ud>, own: GidEntry, peer: Endpoint) -> ibverbs::Result<()> {
    /// let address = AhAttr::for_gid(1, own.index, peer.gid);
    /// let destination = qp.destination(&address, peer.qpn, Qkey(0x1111_1111))?;
    /// qp.post_send(wr::send(wr::Inline(b"hello")).to(destination))?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_create_ah")]
    pub fn destination(&mut self, address: &AhAttr, qpn: Qpn, qkey: Qkey) -> Result<Destination> {
        let handle = self.pd().create_ah(address)?;
        let address = self.hold_address(&handle)?;
        Ok(Destination { address, qpn, qkey })
    }
}

impl<T: DatagramTransport> QueuePair<T> {
    /// Keeps an address handle alive until the queue pair is destroyed or the addresses are
    /// [released](Self::release_addresses). Any number of datagrams can use the returned token.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if the handle belongs to another protection domain.
    pub fn hold_address(&mut self, address: &AddressHandle) -> Result<HeldAddress> {
        let id = self.id();
        let own_pd = &self.tables.owner.pd;
        if !address.pd().is(own_pd) {
            let what = format!(
                "an address handle on {} and a queue pair of another protection domain on {}",
                address.pd().context().device_name(),
                own_pd.context().device_name()
            );
            return Err(Error::new(ErrorKind::Mismatch, "hold_address", what).with_help(OWN_DOMAIN));
        }
        let addresses = &mut self.tables.addresses;
        if !addresses.handles.iter().any(|held| held.same(address)) {
            addresses.handles.push(address.clone());
        }
        Ok(HeldAddress {
            ah: address.raw(),
            queue: id,
            epoch: addresses.epoch,
        })
    }

    /// Releases all address handles. Posting with their tokens fails from then on. Servers with
    /// changing peers call this to bound the number of handles.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while sends are in flight.
    pub fn release_addresses(&mut self) -> Result<()> {
        if !self.tables.sends.is_empty() {
            let what = "address handles are in use: sends are in flight";
            return Err(Error::new(ErrorKind::Busy, "release_addresses", what)
                .with_help("retire all sends first"));
        }
        self.tables.addresses.handles.clear();
        self.tables.addresses.epoch += 1;
        Ok(())
    }
}

impl QueuePair<Ud> {
    /// Attaches the queue pair to a multicast group, so that it receives the group's datagrams. On
    /// InfiniBand the port must also join the group at the subnet manager, with the crate `rdmacm`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the GID is not a multicast GID.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Lid, QueuePair, Ud};
    /// # fn f(qp: &mut QueuePair<Ud>) -> ibverbs::Result<()> {
    /// let group: std::net::IpAddr = "239.1.2.3".parse().expect("an address");
    /// qp.attach_mcast(group.into(), Lid(0))?; // RoCE has no LIDs
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_mcast(&mut self, gid: Gid, lid: Lid) -> Result<()> {
        let qp = self.live("ibv_attach_mcast")?.as_ptr();
        let raw = gid::to_raw(gid);
        // SAFETY: the queue pair is alive and the GID valid during the call.
        let returned = unsafe { ibv_attach_mcast(qp, &raw const raw, lid.0) };
        zero_or_errno(
            "ibv_attach_mcast",
            || format!("{} to {gid}", self.describe()),
            returned,
        )?;
        self.tables.addresses.groups.push((gid, lid));
        Ok(())
    }

    /// Detaches the queue pair from a multicast group. Destroying the queue pair detaches it from
    /// all groups.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the queue pair is not attached to the group.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_mcast(&mut self, gid: Gid, lid: Lid) -> Result<()> {
        let Some(index) = self
            .tables
            .addresses
            .groups
            .iter()
            .position(|group| *group == (gid, lid))
        else {
            let what = format!("{} is not attached to {gid}", self.describe());
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "ibv_detach_mcast",
                what,
            ));
        };
        self.tables.addresses.groups.swap_remove(index);
        self.detach(gid, lid)
    }
}

impl<T: SendTransport> QueuePair<T> {
    /// Detaches from all groups, because an attached queue pair cannot be destroyed.
    pub(crate) fn detach_all(&mut self) {
        for (gid, lid) in std::mem::take(&mut self.tables.addresses.groups) {
            // A group that stays attached makes the destroy fail, which is reported.
            let _ = self.detach(gid, lid);
        }
    }

    fn detach(&mut self, gid: Gid, lid: Lid) -> Result<()> {
        let qp = self.live("ibv_detach_mcast")?.as_ptr();
        let raw = gid::to_raw(gid);
        // SAFETY: the queue pair is alive and the GID valid during the call.
        let returned = unsafe { ibv_detach_mcast(qp, &raw const raw, lid.0) };
        zero_or_errno(
            "ibv_detach_mcast",
            || format!("{} from {gid}", self.describe()),
            returned,
        )
    }
}
