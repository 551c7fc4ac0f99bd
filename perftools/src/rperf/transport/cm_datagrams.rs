//! Datagrams by rdma_cm: a server's queue pairs are found by who asks for them, and learn whom to
//! answer.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ibverbs::{AhAttr, Gid, GidIndex, Lid, Qkey, Qpn, QueuePair, Ud, wr::Destination};
use rdmacm::datagram::ServiceListener;
use rdmacm::{ListenOptions, Resolver};

use super::cm::{CmTarget, LOOK_EVERY, hello, not_in_time};
use super::wire::AnyQp;
use crate::common::error::{Error, Kind, Result};

/// The key of datagrams in rdma_cm's port space for them (`RDMA_UDP_QKEY`).
const QKEY: Qkey = Qkey(0x0123_4567);

/// An end that others answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalAddress {
    /// Its port's GID.
    pub(super) gid: Gid,
    /// Where that stands; none where there is no GID.
    pub(super) gid_index: Option<GidIndex>,
    /// Its port's LID.
    pub(super) lid: Lid,
    /// Its port.
    pub(super) port_num: u8,
}

/// What the client says with its queue pair number `index`: the connections' words, then where it
/// can be answered.
fn words(token: u64, index: u32, qpn: Qpn, own: LocalAddress) -> Vec<u8> {
    let mut words = hello(token, index).to_vec();
    words.extend(qpn.0.to_be_bytes());
    words.extend(own.lid.0.to_be_bytes());
    words.extend(own.gid.0);
    words
}

/// Where who said these words, which come after its hello, can be answered from `own`.
fn answer_to(words: &[u8], own: LocalAddress) -> Option<(AhAttr, Qpn)> {
    let (qpn, words) = words.split_first_chunk()?;
    let (lid, words) = words.split_first_chunk()?;
    let (gid, _) = words.split_first_chunk()?;
    let to = match own.gid_index {
        Some(index) => AhAttr::for_gid(own.port_num, index, Gid(*gid)),
        None => AhAttr::for_lid(own.port_num, Lid(u16::from_be_bytes(*lid))),
    };
    Some((to, Qpn(u32::from_be_bytes(*qpn))))
}

/// A place where one client asks for the queue pairs.
#[derive(Debug)]
pub(super) struct UdListener {
    listener: ServiceListener,
    token: u64,
}

impl UdListener {
    /// Listens on an address of a device; the client has to say `token`.
    pub(super) fn new(address: IpAddr, token: u64) -> Result<Self> {
        let address = SocketAddr::new(address, 0);
        let listener = ListenOptions::new().backlog(8).bind_datagram(address)?;
        Ok(Self { listener, token })
    }

    /// The port that the system chose.
    pub(super) fn port(&self) -> u16 {
        self.listener.local_addr().port()
    }

    /// Waits until the client has asked for each of `qps`, which are of `device`. Anyone else is
    /// refused.
    pub(super) fn accept(
        self,
        qps: Vec<QueuePair<Ud>>,
        own: LocalAddress,
        device: &str,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Vec<AnyQp>> {
        let deadline = Instant::now() + timeout;
        let accepted = (0..)
            .zip(qps)
            .map(|(index, qp)| self.accept_one(qp, index, own, device, deadline, gone));
        accepted.collect()
    }

    fn accept_one(
        &self,
        mut qp: QueuePair<Ud>,
        index: u32,
        own: LocalAddress,
        device: &str,
        deadline: Instant,
        gone: &dyn Fn() -> bool,
    ) -> Result<AnyQp> {
        let hello = hello(self.token, index);
        loop {
            if gone() {
                return Err(Error::new(
                    Kind::Gone,
                    "the client went away before it asked for the queue pairs",
                ));
            }
            if Instant::now() >= deadline {
                return Err(not_in_time(self.listener.local_addr()));
            }
            let Some(request) = self.listener.accept(Some(LOOK_EVERY))? else {
                continue;
            };
            let said = request
                .private_data()
                .strip_prefix(&hello)
                .and_then(|words| answer_to(words, own));
            // Dropping a request refuses it.
            let Some((to, qpn)) = said.filter(|_| request.device_name() == device) else {
                continue;
            };
            request.start_qp(&mut qp)?;
            let address = qp
                .pd()
                .create_ah(&to)
                .and_then(|address| qp.hold_address(&address))?;
            request.accept(&qp, &[])?;
            return Ok(AnyQp::Ud(
                qp,
                Destination {
                    address,
                    qpn,
                    qkey: QKEY,
                },
            ));
        }
    }
}

/// Asks the server for its queue pair number `index`, to talk with `qp`, which is of `device`.
pub(super) fn find(
    mut qp: QueuePair<Ud>,
    device: &str,
    target: &CmTarget,
    index: u32,
    own: LocalAddress,
    timeout: Duration,
) -> Result<AnyQp> {
    let CmTarget {
        source,
        server,
        token,
        ..
    } = *target;
    let route = Resolver::new(server)
        .source(source)
        .timeout(timeout)
        .resolve_datagram()?;
    if route.device_name() != device {
        let found = route.device_name();
        return Err(Error::device(format!(
            "rdma_cm reaches {server} from {source} over {found}, not over {device}: give --id (-i) {found}"
        )));
    }
    route.start_qp(&mut qp)?;
    let service = route.query(&words(token, index, qp.qp_num(), own), timeout)?;
    let to = service.address.destination(&mut qp)?;
    Ok(AnyQp::Ud(qp, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_answer_reads_back() {
        let own = LocalAddress {
            gid: Gid([7; 16]),
            gid_index: Some(GidIndex(3)),
            lid: Lid(9),
            port_num: 1,
        };
        let said = words(5, 2, Qpn(0x1234), own);
        let rest = said.strip_prefix(&hello(5, 2)).unwrap();
        let (to, qpn) = answer_to(rest, own).unwrap();
        assert_eq!((to.grh.unwrap().dgid, qpn), (own.gid, Qpn(0x1234)));
        let lid_only = LocalAddress {
            gid_index: None,
            ..own
        };
        assert_eq!(answer_to(rest, lid_only).unwrap().0.dlid, Lid(9));
        assert!(answer_to(&rest[..20], own).is_none());
    }
}
