//! The server of an RDMA test during the setup.

use std::time::Duration;

use base::error::{Error, Result};
use ibverbs::{Gid, Lid};

use super::address::{PortAddress, choose};
use super::cm::CmListener;
use super::cm_datagrams::{CmPeer, LocalAddress, UdListener};
use super::connecting::parse_gid;
use super::data_path::{AnyQp, VerbsDataPath};
use super::device::{self, OpenedDevice};
use super::endpoint::{PreparedQp, RdmaEndpoint};
use super::host_memory::check_available_memory;
use super::multicast::random_group;
use super::path_checks::uses_cm;
use super::{
    ClientEndpoints, ClientInfo, ConnectMethod, ConnectedEndpoint, ControlAddrs, Offer, QpEndpoint,
    ServerSetup,
};
use crate::data_key::DataKey;
use crate::engine::payload::Payload;
use crate::spec::Spec;
use crate::spec::connection::ConnectionInfo;
use crate::spec::plan::Service;

/// The server of an RDMA test, until it is connected.
#[derive(Debug)]
pub struct RdmaServer {
    end: RdmaEndpoint,
    pending: PendingConnection,
    via: ConnectionInfo,
    has_group: bool,
    /// GID of the client's address that both ends agreed on.
    client_gid: Gid,
}

/// The state of the connection method between offer and connection.
#[derive(Debug)]
enum PendingConnection {
    Direct(Vec<PreparedQp>),
    Cm(CmListener),
    CmDatagrams(UdListener, LocalAddress),
}

impl RdmaServer {
    pub(super) fn new(
        spec: &Spec,
        client: &ClientInfo,
        addrs: ControlAddrs,
    ) -> Result<(Self, Offer)> {
        let opened =
            device::open(spec.server.id.as_ref(), addrs)?.with_gid_index(spec.server.gid_index)?;
        if opened.link != client.link {
            return Err(Error::limit(format!(
                "the server's device {} is {}, but the client's device is {}",
                opened.context.device_name(),
                opened.link,
                client.link
            ))
            .with_help("choose devices of the same type: --id local=DEV,remote=DEV (-li, -ri)"));
        }
        let uses_cm = uses_cm(
            opened.link,
            spec.use_cm,
            spec.sets_packet_attributes(),
            opened.context.device_name(),
        )?;
        let own = opened.addresses_with(uses_cm);
        let (server_address, client_address) =
            choose(own, &client.addresses, addrs).ok_or_else(|| no_path(&opened, client))?;
        let fit = spec.fit(&opened.bounds)?;
        if fit.plan != client.plan {
            return Err(Error::limit(format!(
                "{}: only one of the client's device and the server's device {} supports writes with immediate data",
                spec.test.name(),
                opened.context.device_name()
            ))
            .with_help("set --immediate off"));
        }
        let mut shape =
            spec.shape_for_depth(fit.depth.min(client.depth), fit.plan, &opened.bounds)?;
        shape.qps = shape.qps.max(shape.receivers);
        check_available_memory(&shape, u64::from(spec.server.gpu.is_none()))?;
        let mut end = RdmaEndpoint::new(opened, shape, &spec.server, Payload::new(spec))?;
        let group = spec
            .multicast
            .map(|multicast| multicast.group.unwrap_or_else(random_group));
        if let Some(group) = group {
            end.join_group(group, spec.server.timeout)?;
        }
        if let (true, Some(mtu)) = (uses_cm, spec.mtu) {
            return Err(Error::limit(format!(
                "MTU of {mtu} bytes: rdma_cm selects the MTU of its connections"
            ))
            .with_help("remove --mtu (-mt), or connect without rdma_cm: --use-cm off (-cm0)"));
        }
        let mtu = path_mtu(spec, end.mtu(), client.mtu)?;
        let address = end.opened.addresses[server_address];
        let (pending, method) = if uses_cm {
            let ip = address
                .ip
                .ok_or_else(|| Error::device("rdma_cm needs an IP address on the server"))?;
            let (at, key) = (end.opened.socket_addr(ip, 0), DataKey::random());
            let (pending, port) = if shape.plan.service == Service::Ud {
                let listener = UdListener::new(at, key, end.datagrams.qkey())?;
                let port = listener.port();
                let local = end.local_address(address);
                (PendingConnection::CmDatagrams(listener, local), port)
            } else {
                let listener = CmListener::new(at, key, end.cm_settings())?;
                let port = listener.port();
                (PendingConnection::Cm(listener), port)
            };
            (
                pending,
                ConnectMethod::Cm {
                    address: ip,
                    port,
                    key,
                },
            )
        } else {
            let prepared = end.prepare(address, mtu)?;
            let local = prepared.iter().map(|qp| qp.local.clone()).collect();
            (
                PendingConnection::Direct(prepared),
                ConnectMethod::Direct(local),
            )
        };
        let via = end.connection_info(address, uses_cm, (!uses_cm).then_some(mtu));
        let offer = Offer {
            depth: shape.depth,
            mtu,
            client_address,
            method,
            datagrams: end.datagrams,
            group,
            via: via.clone(),
        };
        Ok((
            Self {
                end,
                pending,
                via,
                has_group: group.is_some(),
                client_gid: gid_of(client.addresses[client_address]),
            },
            offer,
        ))
    }
}

impl ServerSetup for RdmaServer {
    type DataPath = VerbsDataPath;

    fn accept(
        self,
        client: &ClientEndpoints,
        timeout: Duration,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<ConnectedEndpoint<VerbsDataPath>> {
        let Self {
            end,
            pending,
            via,
            has_group,
            client_gid,
        } = self;
        check_addresses(&client.ends, client_gid)?;
        let qps = match pending {
            PendingConnection::Cm(listener) => {
                let connections = listener.accept(
                    (0..end.qp_count()).map(|index| end.create_qp(index)),
                    end.device_name(),
                    end.shape.remote_access(),
                    timeout,
                    is_gone,
                )?;
                connections.into_iter().map(AnyQp::Cm).collect()
            }
            PendingConnection::CmDatagrams(listener, local) => {
                let qps = (0..end.qp_count())
                    .map(|index| end.create_qp(index))
                    .collect::<Result<Vec<_>>>()?;
                let expected = CmPeer {
                    device: end.device_name(),
                    gid: client_gid,
                };
                listener.accept(qps, local, expected, timeout, is_gone)?
            }
            PendingConnection::Direct(prepared) if has_group => {
                end.connect_to_group(prepared, &client.ends, true)?
            }
            PendingConnection::Direct(prepared) => end.connect_all(prepared, &client.ends)?,
        };
        end.into_connected(qps, via)
    }
}

/// Returns the GID of an address; zero if the port has none.
fn gid_of(address: PortAddress) -> Gid {
    address.ip.map_or(Gid([0; 16]), Gid::from)
}

/// Checks that the client's queue pairs have the address that both ends agreed on, and one LID.
/// Otherwise a client could make this host send to any other one.
fn check_addresses(ends: &[QpEndpoint], agreed: Gid) -> Result<()> {
    for end in ends {
        let is_valid = end.lid == 0 || Lid(end.lid).is_unicast();
        if end.lid != ends[0].lid || !is_valid {
            return Err(Error::protocol(format!(
                "the client's queue pairs have the LIDs {} and {}: expected one unicast LID",
                ends[0].lid, end.lid
            )));
        }
        let gid = parse_gid(&end.gid)?;
        if gid != agreed {
            return Err(Error::protocol(format!(
                "the client's queue pair has the GID {gid}: agreed was {agreed}"
            )));
        }
    }
    Ok(())
}

fn no_path(opened: &OpenedDevice, client: &ClientInfo) -> Error {
    let list = |all: &[PortAddress]| {
        let ips: Vec<String> = all
            .iter()
            .filter_map(|c| c.ip)
            .map(|ip| ip.to_string())
            .collect();
        if ips.is_empty() {
            "none".to_owned()
        } else {
            ips.join(", ")
        }
    };
    let mut help = "assign addresses of the same family and subnet to both interfaces".to_owned();
    let indices = client.addresses.first().and_then(|client| {
        let indices = opened.indices_of_family(client.ip?);
        Some((client.gid_index?, indices)).filter(|(_, indices)| !indices.is_empty())
    });
    if let Some((local, remote)) = indices {
        let remote: Vec<String> = remote.iter().map(u32::to_string).collect();
        help = format!(
            "use GIDs of one family: --gid-index local={local},remote={} (`ribinfo gids` lists them)",
            remote.join(" or ")
        );
    }
    Error::device(format!(
        "no address of the server's device {} ({}) can reach an address of the client's device ({})",
        opened.context.device_name(),
        list(&opened.addresses),
        list(&client.addresses)
    ))
    .with_help(help)
}

/// Returns the requested MTU if both ports support it, or the smaller of the active MTUs.
fn path_mtu(spec: &Spec, server: u32, client: u32) -> Result<u32> {
    let active = server.min(client);
    match spec.mtu {
        Some(mtu) if mtu > active => Err(Error::limit(format!(
            "MTU of {mtu} bytes: the active MTU is {server} bytes at the server's port and {client} bytes at the client's"
        ))
        .with_help(format!("set --mtu (-mt) to at most {active}"))),
        Some(mtu) => Ok(mtu),
        None => Ok(active),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(gid: &str) -> QpEndpoint {
        QpEndpoint {
            qpn: 1,
            psn: 0,
            lid: 0,
            gid: gid.into(),
            rd_atomic: 1,
            xrc: None,
            dc: Vec::new(),
        }
    }

    #[test]
    fn only_the_agreed_address_of_the_client_is_accepted() {
        let address = PortAddress {
            ip: Some("10.99.0.1".parse().unwrap()),
            prefix: 24,
            gid_index: Some(1),
        };
        let agreed = gid_of(address);
        check_addresses(&[end("::ffff:10.99.0.1"), end("::ffff:10.99.0.1")], agreed).unwrap();
        for wrong in ["::ffff:10.99.0.2", "::", "fe80::1"] {
            let ends = [end("::ffff:10.99.0.1"), end(wrong)];
            let text = check_addresses(&ends, agreed).unwrap_err().to_string();
            assert!(text.contains("agreed was ::ffff:10.99.0.1"), "{text}");
        }
        for lids in [[1, 2], [0xc001, 0xc001]] {
            let ends = lids.map(|lid| QpEndpoint { lid, ..end("::") });
            let text = check_addresses(&ends, Gid([0; 16]))
                .unwrap_err()
                .to_string();
            assert!(text.contains("expected one unicast LID"), "{text}");
        }
        let none = PortAddress {
            ip: None,
            prefix: 0,
            gid_index: None,
        };
        check_addresses(&[end("::")], gid_of(none)).unwrap();
    }
}
