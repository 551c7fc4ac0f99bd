//! Datagrams with rdma_cm. The client resolves the server's queue pairs by service ID, and sends
//! its own address in the private data of the request.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use ibverbs::{
    AhAttr, Gid, GidIndex, Lid, Qkey, Qpn, QueuePair, Ud, qp::QpChange, wr::Destination,
};
use rdmacm::datagram::ServiceListener;
use rdmacm::{ListenOptions, Resolver};

use super::cm::{CHECK_INTERVAL, CmTarget, connect_timeout, of_several, request_id, wrong_device};
use super::data_path::AnyQp;
use crate::data_key::DataKey;

/// The address of a datagram endpoint.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress {
    /// GID of the port.
    pub gid: Gid,
    /// Index of the GID; `None` if the port has no GID.
    pub gid_index: Option<GidIndex>,
    /// LID of the port.
    pub lid: Lid,
    /// Port number.
    pub port_num: u8,
}

/// The client whose requests are accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct CmPeer<'a> {
    /// Device of this end that receives the requests.
    pub(super) device: &'a str,
    /// GID of the client.
    pub(super) gid: Gid,
}

/// Returns the private data of the client's request number `index`: the request_id, then the queue
/// pair number, LID and GID of the client.
pub fn private_data(key: DataKey, index: u32, qpn: Qpn, local: LocalAddress) -> Vec<u8> {
    let mut bytes = request_id(key, index).to_vec();
    bytes.extend(qpn.0.to_be_bytes());
    bytes.extend(local.lid.0.to_be_bytes());
    bytes.extend(local.gid.0);
    bytes
}

/// Reads the client's address from the private data after the request_id. Returns the address
/// vector from `local` to the client, and the client's queue pair number.
pub fn client_address(bytes: &[u8], local: LocalAddress) -> Option<(AhAttr, Qpn)> {
    let (qpn, bytes) = bytes.split_first_chunk()?;
    let (lid, bytes) = bytes.split_first_chunk()?;
    let (gid, _) = bytes.split_first_chunk()?;
    let to = match local.gid_index {
        Some(index) => AhAttr::for_gid(local.port_num, index, Gid(*gid)),
        None => AhAttr::for_lid(local.port_num, Lid(u16::from_be_bytes(*lid))),
    };
    Some((to, Qpn(u32::from_be_bytes(*qpn))))
}

/// A listener for the requests of one client.
#[derive(Debug)]
pub(super) struct UdListener {
    listener: ServiceListener,
    key: DataKey,
    /// Q_Key of both ends. That of rdma_cm is the same for all programs.
    qkey: Qkey,
}

impl UdListener {
    /// Listens on an address of a device for requests with `key`.
    pub(super) fn new(address: SocketAddr, key: DataKey, qkey: Qkey) -> Result<Self> {
        let listener = ListenOptions::new().backlog(8).bind_datagram(address)?;
        Ok(Self {
            listener,
            key,
            qkey,
        })
    }

    /// Returns the port, which the system chose.
    pub(super) fn port(&self) -> u16 {
        self.listener.local_addr().port()
    }

    /// Waits until `peer` has requested each of `qps`, which belong to its device. Other requests
    /// are rejected.
    pub(super) fn accept(
        self,
        qps: Vec<QueuePair<Ud>>,
        local: LocalAddress,
        peer: CmPeer<'_>,
        timeout: Duration,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Vec<AnyQp>> {
        let count = qps.len();
        let accepted = (0..).zip(qps).map(|(index, qp)| {
            let deadline = Instant::now() + timeout;
            let accepted = self.accept_one(qp, index, local, peer, deadline, is_gone);
            accepted.map_err(|error| of_several(error, index, count))
        });
        accepted.collect()
    }

    fn accept_one(
        &self,
        mut qp: QueuePair<Ud>,
        index: u32,
        local: LocalAddress,
        peer: CmPeer<'_>,
        deadline: Instant,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<AnyQp> {
        let request_id = request_id(self.key, index);
        loop {
            if is_gone() {
                return Err(Error::new(
                    Kind::Gone,
                    "the client disconnected before it requested the queue pairs",
                ));
            }
            if Instant::now() >= deadline {
                return Err(connect_timeout(self.listener.local_addr()));
            }
            let Some(request) = self.listener.next_request(Some(CHECK_INTERVAL))? else {
                continue;
            };
            let address = request
                .private_data()
                .strip_prefix(&request_id)
                .and_then(|bytes| client_address(bytes, local));
            // Dropping a request rejects it.
            let is_expected = |to: &AhAttr| {
                request.device_name() == peer.device
                    && to.grh.is_none_or(|grh| grh.dgid == peer.gid)
            };
            let Some((to, qpn)) = address.filter(|(to, _)| is_expected(to)) else {
                continue;
            };
            request.start_qp(&mut qp)?;
            qp.modify(&QpChange::new().qkey(self.qkey))?;
            let address = qp
                .pd()
                .create_ah(&to)
                .and_then(|address| qp.hold_address(&address))?;
            request.accept(&qp, &self.key.server_bytes())?;
            return Ok(AnyQp::Ud(
                qp,
                Destination {
                    address,
                    qpn,
                    qkey: self.qkey,
                },
            ));
        }
    }
}

/// Requests the address of the server's queue pair number `index`, for messages from `qp`, which
/// belongs to `device`.
pub(super) fn connect(
    mut qp: QueuePair<Ud>,
    device: &str,
    target: &CmTarget,
    index: u32,
    local: LocalAddress,
    timeout: Duration,
) -> Result<AnyQp> {
    let CmTarget {
        source,
        server,
        key,
        qkey,
        ..
    } = *target;
    let route = Resolver::new(server)
        .source_addr(source)
        .timeout(timeout)
        .resolve_datagram()?;
    if route.device_name() != device {
        return Err(wrong_device(target, route.device_name(), device));
    }
    route.start_qp(&mut qp)?;
    qp.modify(&QpChange::new().qkey(qkey))?;
    let service = route.query(&private_data(key, index, qp.qp_num(), local), timeout)?;
    key.check_server(&service.private_data)?;
    let to = service.address.destination(&mut qp)?;
    Ok(AnyQp::Ud(qp, Destination { qkey, ..to }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: DataKey = DataKey {
        client: 5,
        server: 6,
    };

    #[test]
    fn client_address_is_restored_from_private_data() {
        let local = LocalAddress {
            gid: Gid([7; 16]),
            gid_index: Some(GidIndex(3)),
            lid: Lid(9),
            port_num: 1,
        };
        let data = private_data(KEY, 2, Qpn(0x1234), local);
        let rest = data.strip_prefix(&request_id(KEY, 2)).unwrap();
        let (to, qpn) = client_address(rest, local).unwrap();
        assert_eq!((to.grh.unwrap().dgid, qpn), (local.gid, Qpn(0x1234)));
        let lid_only = LocalAddress {
            gid_index: None,
            ..local
        };
        assert_eq!(client_address(rest, lid_only).unwrap().0.dlid, Lid(9));
        assert!(client_address(&rest[..20], local).is_none());
    }
}
