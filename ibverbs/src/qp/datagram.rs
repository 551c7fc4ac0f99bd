//! Datagram queue pairs: starting them, destination addresses and multicast groups.

#![allow(unsafe_code)]

use rdma_sys::{
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_SQ_PSN, IBV_QP_STATE, ibv_attach_mcast,
    ibv_detach_mcast, ibv_qp_attr,
};

use super::pair::QueuePair;
use super::state::QpState;
use crate::ah::AddressHandle;
use crate::convert::zero_or_errno;
use crate::error::{Error, ErrorKind, Result};
use crate::gid::{self, Gid};
use crate::numbers::{Psn, Qkey};
use crate::port::Lid;
use crate::transport::{DatagramTransport, DuplexTransport, SendTransport, Ud};
use crate::wr::{HeldAddress, OWN_DOMAIN};

impl<T: DatagramTransport + DuplexTransport> QueuePair<T> {
    /// Moves the queue pair from RESET through INIT and RTR to RTS. It can then send, and receive
    /// from every peer that uses `qkey`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the queue pair is in another state or the port does not
    /// exist.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Psn, Qkey, QueuePair, Ud, wr};
    /// # fn f(qp: &mut QueuePair<Ud>) -> ibverbs::Result<()> {
    /// qp.start(1, 0, Qkey(0x1111_1111), Psn(0))?;
    /// let buf = qp.pd().buf(ibverbs::GRH_LEN + 2048)?; // the first 40 bytes are for the global route header
    /// qp.post_recv(wr::recv(buf))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html), IBA table 91
    #[doc(alias = "ibv_modify_qp")]
    pub fn start(&mut self, port_num: u8, pkey_index: u16, qkey: Qkey, psn: Psn) -> Result<()> {
        let mut init = ibv_qp_attr {
            qp_state: QpState::INIT.0,
            pkey_index,
            port_num,
            qkey: qkey.0,
            ..Default::default()
        };
        self.handle().modify_raw(
            "INIT",
            &mut init,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
        )?;
        let mut rtr = ibv_qp_attr {
            qp_state: QpState::RTR.0,
            ..Default::default()
        };
        self.handle().modify_raw("RTR", &mut rtr, IBV_QP_STATE)?;
        let mut rts = ibv_qp_attr {
            qp_state: QpState::RTS.0,
            sq_psn: psn.0,
            ..Default::default()
        };
        self.handle()
            .modify_raw("RTS", &mut rts, IBV_QP_STATE | IBV_QP_SQ_PSN)
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
