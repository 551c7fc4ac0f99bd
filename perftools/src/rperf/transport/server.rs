//! The server's end of an RDMA test.

use std::time::Duration;

use super::address::{PortAddress, choose};
use super::cm::CmListener;
use super::cm_datagrams::{LocalAddress, UdListener};
use super::device::{self, OpenedDevice};
use super::endpoint::{PreparedQp, RdmaEndpoint};
use super::host_memory::has_memory_for;
use super::multicast::any_group;
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

/// The server's end.
#[derive(Debug)]
pub struct RdmaServer {
    end: RdmaEndpoint,
    pending: PendingConnection,
    via: ConnectionInfo,
    has_group: bool,
}

#[derive(Debug)]
enum PendingConnection {
    Direct(Vec<PreparedQp>),
    Cm(CmListener),
    Found(UdListener, LocalAddress),
}

impl RdmaServer {
    pub(super) fn new(spec: &Spec, ask: &ClientInfo, hosts: ControlAddrs) -> Result<(Self, Offer)> {
        let opened = device::open(spec.server.id.as_ref(), hosts)?.at_gid(spec.server.gid_index)?;
        if opened.link != ask.link {
            return Err(Error::limit(format!(
                "{} on the server is {}, the client's device is {}: they cannot talk to each other; choose with --id (-i), --local-id (-li), --remote-id (-ri)",
                opened.context.device_name(),
                opened.link,
                ask.link
            )));
        }
        let chosen = choose(&opened.addresses, &ask.addresses, hosts);
        let (mine, client_address) = chosen.ok_or_else(|| no_path(&opened, ask))?;
        let uses_cm = uses_cm(
            opened.link,
            spec.use_cm,
            spec.sets_packet_attributes(),
            opened.context.device_name(),
        )?;
        let fit = spec.fit(&opened.bounds)?;
        if fit.plan != ask.plan {
            return Err(Error::limit(format!(
                "{} comes to one thing on the client's device and to another on {}: give --immediate off",
                spec.test.name(),
                opened.context.device_name()
            )));
        }
        let mut shape = spec.shape_for_depth(fit.depth.min(ask.depth), fit.plan, &opened.bounds)?;
        shape.qps = shape.qps.max(shape.receivers);
        has_memory_for(&shape, 1)?;
        let mut end = RdmaEndpoint::new(opened, shape, &spec.server)?;
        let group = spec
            .multicast
            .map(|multicast| multicast.group.unwrap_or_else(any_group));
        if let Some(group) = group {
            end.join_group(group, spec.server.timeout)?;
        }
        let mtu = path_mtu(spec, end.mtu(), ask.mtu)?;
        let address = end.opened.addresses[mine];
        let (pending, method) = if uses_cm {
            let ip = address
                .ip
                .ok_or_else(|| Error::device("rdma_cm needs an IP address on the server"))?;
            let token = random();
            let (pending, port) = if shape.plan.service == Service::Ud {
                let place = UdListener::new(ip, token)?;
                let port = place.port();
                (PendingConnection::Found(place, end.own(address)), port)
            } else {
                let waiting = CmListener::new(ip, token, end.rd_atomic())?;
                let port = waiting.port();
                (PendingConnection::Cm(waiting), port)
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
            let plain = prepared.iter().map(|one| one.plain.clone()).collect();
            (
                PendingConnection::Direct(prepared),
                ConnectMethod::Direct(plain),
            )
        };
        let via = end.via(address, uses_cm, (!uses_cm).then_some(mtu));
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
        answer: &ClientEndpoints,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<ConnectedEndpoint<VerbsWire>> {
        let Self {
            end,
            pending,
            via,
            has_group,
        } = self;
        let qps = match pending {
            PendingConnection::Cm(waiting) => {
                let qps = (0..end.qp_count())
                    .map(|index| end.queue_pair(index))
                    .collect::<Result<Vec<_>>>()?;
                let connections =
                    waiting.accept(qps, end.device(), end.shape.plan.verb, timeout, gone)?;
                connections.into_iter().map(AnyQp::Cm).collect()
            }
            PendingConnection::Found(place, own) => {
                let qps = (0..end.qp_count())
                    .map(|index| end.queue_pair(index))
                    .collect::<Result<Vec<_>>>()?;
                place.accept(qps, own, end.device(), timeout, gone)?
            }
            PendingConnection::Direct(prepared) if has_group => {
                end.connect_to_group(prepared, &answer.ends, true)?
            }
            PendingConnection::Direct(prepared) => end.connect_all(prepared, &answer.ends)?,
        };
        end.connected(qps, via)
    }
}

fn no_path(opened: &OpenedDevice, ask: &ClientInfo) -> Error {
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
        "no address of {} on the server ({}) reaches one of the client's ({}): give both interfaces an address of one family and subnet",
        opened.context.device_name(),
        list(&opened.addresses),
        list(&ask.addresses)
    ))
}

/// The MTU asked for, if both ports have it; else the smaller active one.
fn path_mtu(spec: &Spec, mine: u32, theirs: u32) -> Result<u32> {
    let active = mine.min(theirs);
    match spec.mtu {
        Some(mtu) if mtu > active => Err(Error::limit(format!(
            "MTU of {mtu}: the active MTU is {mine} at the server's port and {theirs} at the client's; give --mtu (-mt) at most {active}"
        ))),
        Some(mtu) => Ok(mtu),
        None => Ok(active),
    }
}
