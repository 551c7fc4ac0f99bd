//! The server of an RDMA test during the setup.

use std::time::Duration;

use super::address::{PortAddress, choose};
use super::cm::CmListener;
use super::cm_datagrams::{LocalAddress, UdListener};
use super::device::{self, OpenedDevice};
use super::endpoint::{PreparedQp, RdmaEndpoint};
use super::host_memory::check_available_memory;
use super::multicast::random_group;
use super::path_checks::uses_cm;
use super::wire::{AnyQp, VerbsWire};
use super::{
    ClientEndpoints, ClientInfo, ConnectMethod, ConnectedEndpoint, ControlAddrs, Offer, ServerSetup,
};
use crate::common::error::{Error, Result};
use crate::common::system::random;
use crate::rperf::spec::Spec;
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::plan::Service;

/// The server of an RDMA test, until it is connected.
#[derive(Debug)]
pub struct RdmaServer {
    end: RdmaEndpoint,
    pending: PendingConnection,
    via: ConnectionInfo,
    has_group: bool,
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
            .with_help(
                "choose devices of the same type with --id (-i), --local-id (-li) and --remote-id (-ri)",
            ));
        }
        let (server_address, client_address) = choose(&opened.addresses, &client.addresses, addrs)
            .ok_or_else(|| no_path(&opened, client))?;
        let uses_cm = uses_cm(
            opened.link,
            spec.use_cm,
            spec.sets_packet_attributes(),
            opened.context.device_name(),
        )?;
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
        check_available_memory(&shape, 1)?;
        let mut end = RdmaEndpoint::new(opened, shape, &spec.server)?;
        let group = spec
            .multicast
            .map(|multicast| multicast.group.unwrap_or_else(random_group));
        if let Some(group) = group {
            end.join_group(group, spec.server.timeout)?;
        }
        let mtu = path_mtu(spec, end.mtu(), client.mtu)?;
        let address = end.opened.addresses[server_address];
        let (pending, method) = if uses_cm {
            let ip = address
                .ip
                .ok_or_else(|| Error::device("rdma_cm needs an IP address on the server"))?;
            let token = random();
            let (pending, port) = if shape.plan.service == Service::Ud {
                let listener = UdListener::new(ip, token)?;
                let port = listener.port();
                let local = end.local_address(address);
                (PendingConnection::CmDatagrams(listener, local), port)
            } else {
                let listener = CmListener::new(ip, token, end.rd_atomic())?;
                let port = listener.port();
                (PendingConnection::Cm(listener), port)
            };
            (
                pending,
                ConnectMethod::Cm {
                    address: ip,
                    port,
                    token,
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
            group,
            via: via.clone(),
        };
        Ok((
            Self {
                end,
                pending,
                via,
                has_group: group.is_some(),
            },
            offer,
        ))
    }
}

impl ServerSetup for RdmaServer {
    type Wire = VerbsWire;

    fn accept(
        self,
        client: &ClientEndpoints,
        timeout: Duration,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<ConnectedEndpoint<VerbsWire>> {
        let Self {
            end,
            pending,
            via,
            has_group,
        } = self;
        let qps = match pending {
            PendingConnection::Cm(listener) => {
                let qps = (0..end.qp_count())
                    .map(|index| end.create_qp(index))
                    .collect::<Result<Vec<_>>>()?;
                let connections = listener.accept(
                    qps,
                    end.device_name(),
                    end.shape.plan.verb,
                    timeout,
                    is_gone,
                )?;
                connections.into_iter().map(AnyQp::Cm).collect()
            }
            PendingConnection::CmDatagrams(listener, local) => {
                let qps = (0..end.qp_count())
                    .map(|index| end.create_qp(index))
                    .collect::<Result<Vec<_>>>()?;
                listener.accept(qps, local, end.device_name(), timeout, is_gone)?
            }
            PendingConnection::Direct(prepared) if has_group => {
                end.connect_to_group(prepared, &client.ends, true)?
            }
            PendingConnection::Direct(prepared) => end.connect_all(prepared, &client.ends)?,
        };
        end.into_connected(qps, via)
    }
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
    Error::device(format!(
        "no address of the server's device {} ({}) can reach an address of the client's device ({})",
        opened.context.device_name(),
        list(&opened.addresses),
        list(&client.addresses)
    ))
    .with_help("assign addresses of the same family and subnet to both interfaces")
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
