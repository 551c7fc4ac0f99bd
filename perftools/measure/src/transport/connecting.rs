//! Connects prepared queue pairs to those of the peer or to a multicast group.

use std::net::IpAddr;
use std::time::Duration;

use base::error::{Error, Result};
use ibverbs::{
    AhAttr, DatagramTransport, Endpoint, Gid, HeldAddress, Lid, Psn, Qpn, QueuePair, RcPath,
    wr::Destination,
};

use super::QpEndpoint;
use super::data_path::AnyQp;
use super::endpoint::{PreparedQp, RdmaEndpoint, UnconnectedQp};
use super::multicast;

impl RdmaEndpoint {
    /// Connects prepared queue pairs to those of the peer.
    pub(super) fn connect_all(
        &self,
        prepared: Vec<PreparedQp>,
        peers: &[QpEndpoint],
    ) -> Result<Vec<AnyQp>> {
        if prepared.len() != peers.len() {
            return Err(Error::protocol(format!(
                "the peer has {} queue pairs: expected {}",
                peers.len(),
                prepared.len()
            )));
        }
        prepared
            .into_iter()
            .zip(peers)
            .map(|(qp, peer)| self.connect_one(qp, peer))
            .collect()
    }

    fn connect_one(
        &self,
        PreparedQp { qp, mut path, .. }: PreparedQp,
        peer: &QpEndpoint,
    ) -> Result<AnyQp> {
        let gid = parse_gid(&peer.gid)?;
        let remote = Endpoint {
            qpn: Qpn(peer.qpn),
            psn: Psn(peer.psn),
            lid: Lid(peer.lid),
            gid,
        };
        path.max_rd_atomic = self
            .opened
            .rd_atomic
            .0
            .min(peer.rd_atomic)
            .min(self.rd_atomic());
        match qp {
            UnconnectedQp::Rc(mut qp) => qp.connect(&path, &remote).map(|()| AnyQp::Rc(qp)),
            UnconnectedQp::Xrc(mut connection) => {
                return connection
                    .connect(&path, &remote, peer.xrc)
                    .map(|()| AnyQp::Xrc(connection));
            }
            UnconnectedQp::Uc(mut qp) => qp.connect(&path, &remote).map(|()| AnyQp::Uc(qp)),
            UnconnectedQp::Dc(connection) => {
                return connection
                    .connect(&path, &peer.dc, |qp| self.hold_address(qp, &path, &remote))
                    .map(AnyQp::Dc);
            }
            UnconnectedQp::Ud(mut qp) => {
                let to = self.hold_address(&mut qp, &path, &remote);
                to.map(|address| AnyQp::Ud(qp, self.destination(address, remote.qpn)))
            }
            UnconnectedQp::Srd(mut qp) => {
                let to = self.hold_address(&mut qp, &path, &remote);
                to.map(|address| AnyQp::Srd(qp, self.destination(address, remote.qpn)))
            }
        }
        .map_err(Error::from)
    }

    /// Creates the address handle of the peer, which the queue pair holds.
    fn hold_address<T: DatagramTransport>(
        &self,
        qp: &mut QueuePair<T>,
        path: &RcPath,
        remote: &Endpoint,
    ) -> ibverbs::Result<HeldAddress> {
        let mut to = match path.sgid_index {
            Some(index) => AhAttr::for_gid(path.port_num, index, remote.gid),
            None => AhAttr::for_lid(path.port_num, remote.lid),
        };
        (to.sl, to.static_rate) = (path.sl, path.static_rate);
        to.grh = to.grh.map(|grh| {
            grh.traffic_class(path.traffic_class)
                .flow_label(path.flow_label)
        });
        let handle = self.pd.create_ah(&to)?;
        qp.hold_address(&handle)
    }

    /// Joins the multicast group. Queue pairs prepared after this call belong to it.
    pub(super) fn join_group(&mut self, group: IpAddr, timeout: Duration) -> Result<()> {
        self.group = Some(multicast::join(group, self.device_name(), timeout)?);
        Ok(())
    }

    /// Connects prepared queue pairs to the multicast group. With `receives` they receive its
    /// messages and send to the first queue pair of the peer. Otherwise they send to the group.
    pub(super) fn connect_to_group(
        &self,
        prepared: Vec<PreparedQp>,
        peers: &[QpEndpoint],
        receives: bool,
    ) -> Result<Vec<AnyQp>> {
        let group = self
            .group
            .as_ref()
            .ok_or_else(|| Error::protocol("the test has no multicast group"))?;
        let peer = peers
            .first()
            .ok_or_else(|| Error::protocol("the peer has no queue pair"))?;
        let gid = parse_gid(&peer.gid)?;
        let qps = prepared.into_iter().map(|PreparedQp { qp, path, .. }| {
            let UnconnectedQp::Ud(mut qp) = qp else {
                return Err(Error::protocol("a multicast group needs UD queue pairs"));
            };
            if !receives {
                let to = group.destination(&mut qp)?;
                return Ok(AnyQp::Ud(qp, self.destination(to.address, to.qpn)));
            }
            group.attach(&mut qp)?;
            let to = match path.sgid_index {
                Some(index) => AhAttr::for_gid(path.port_num, index, gid),
                None => AhAttr::for_lid(path.port_num, Lid(peer.lid)),
            };
            let address = self
                .pd
                .create_ah(&to)
                .and_then(|address| qp.hold_address(&address))?;
            Ok(AnyQp::Ud(qp, self.destination(address, Qpn(peer.qpn))))
        });
        qps.collect()
    }

    /// Returns the destination of the datagrams to a queue pair.
    fn destination(&self, address: HeldAddress, qpn: Qpn) -> Destination {
        Destination {
            address,
            qpn,
            qkey: self.datagrams.qkey(),
        }
    }
}

pub(super) fn parse_gid(gid: &str) -> Result<Gid> {
    gid.parse()
        .map_err(|_| Error::protocol(format!("the peer sent an invalid GID `{gid}`")))
}
