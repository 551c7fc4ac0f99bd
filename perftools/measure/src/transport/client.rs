//! The client of an RDMA test during the setup.

use std::time::Duration;

use base::error::{Error, Result};

use super::address::PortAddress;
use super::data_path::{AnyQp, VerbsDataPath};
use super::device;
use super::endpoint::{PreparedQp, RdmaEndpoint};
use super::host_memory::check_available_memory;
use super::path_checks::uses_cm;
use super::{
    ClientEndpoints, ClientInfo, ClientSetup, ConnectMethod, ConnectedEndpoint, ControlAddrs,
    Offer, cm, cm_datagrams,
};
use crate::engine::payload::Payload;
use crate::spec::Spec;
use crate::spec::plan::Service;

/// The client of an RDMA test, until it is connected.
#[derive(Debug)]
pub struct RdmaClient {
    end: RdmaEndpoint,
    spec: Spec,
    prepared: Vec<PreparedQp>,
}

impl RdmaClient {
    pub(super) fn new(spec: &Spec, addrs: ControlAddrs) -> Result<(Self, ClientInfo)> {
        let opened =
            device::open(spec.client.id.as_ref(), addrs)?.with_gid_index(spec.client.gid_index)?;
        uses_cm(
            opened.link,
            spec.use_cm,
            spec.sets_packet_attributes(),
            opened.context.device_name(),
        )?;
        let fit = spec.fit(&opened.bounds)?;
        let shape = spec.shape_for_depth(fit.depth, fit.plan, &opened.bounds)?;
        // If both ends are on one host, it needs the memory of both.
        let server = addrs.local == addrs.peer && spec.server.gpu.is_none();
        let ends = u64::from(spec.client.gpu.is_none()) + u64::from(server);
        check_available_memory(&shape, ends)?;
        let end = RdmaEndpoint::new(opened, shape, &spec.client, Payload::new(spec))?;
        let addresses = end.opened.addresses.clone();
        let info = ClientInfo {
            link: end.opened.link,
            addresses,
            mtu: end.mtu(),
            depth: shape.depth,
            plan: shape.plan,
        };
        Ok((
            Self {
                end,
                spec: spec.clone(),
                prepared: Vec::new(),
            },
            info,
        ))
    }

    /// Returns the address of this end that the server selected.
    fn address(&self, offer: &Offer) -> Result<PortAddress> {
        let found = self.end.opened.addresses.get(offer.client_address);
        found.copied().ok_or_else(|| {
            Error::protocol("the server chose an address that this end does not have")
        })
    }
}

impl ClientSetup for RdmaClient {
    type DataPath = VerbsDataPath;

    fn accept_offer(&mut self, offer: &Offer) -> Result<ClientEndpoints> {
        if offer.depth > self.end.shape.depth {
            return Err(Error::protocol(
                "the server offers a larger depth than the client requested",
            ));
        }
        self.end.datagrams = offer.datagrams;
        // A server of an earlier version ignores the option.
        if self.spec.server.gpu.is_some() && offer.via.memory.is_none() {
            return Err(
                Error::limit("--gpu: the server's rperf does not support memory of a GPU")
                    .with_help(
                        "install the same version of rperf on the server, or use memory of a GPU at this end only: --gpu local=GPU",
                    ),
            );
        }
        self.end.shape =
            self.spec
                .shape_for_depth(offer.depth, self.end.shape.plan, &self.end.opened.bounds)?;
        match &offer.method {
            ConnectMethod::Cm { .. } => Ok(ClientEndpoints { ends: Vec::new() }),
            ConnectMethod::Direct(_) => {
                if let Some(group) = offer.group {
                    self.end.join_group(group, self.spec.client.timeout)?;
                }
                self.prepared = self.end.prepare(self.address(offer)?, offer.mtu)?;
                Ok(ClientEndpoints {
                    ends: self.prepared.iter().map(|qp| qp.local.clone()).collect(),
                })
            }
        }
    }

    fn connect(
        mut self,
        offer: &Offer,
        timeout: Duration,
    ) -> Result<ConnectedEndpoint<VerbsDataPath>> {
        let address = self.address(offer)?;
        match &offer.method {
            ConnectMethod::Direct(server) => {
                let prepared = std::mem::take(&mut self.prepared);
                let qps = match offer.group {
                    Some(_) => self.end.connect_to_group(prepared, server, false)?,
                    None => self.end.connect_all(prepared, server)?,
                };
                let via = self.end.connection_info(address, false, Some(offer.mtu));
                self.end.into_connected(qps, via)
            }
            ConnectMethod::Cm {
                address: server,
                port,
                key,
            } => {
                let source = address
                    .ip
                    .ok_or_else(|| Error::device("rdma_cm needs an IP address on this end"))?;
                let shape = self.end.shape;
                let target = cm::CmTarget {
                    source: self.end.opened.socket_addr(source, 0),
                    server: self.end.opened.socket_addr(*server, *port),
                    key: *key,
                    qkey: offer.datagrams.qkey(),
                    settings: self.end.cm_settings(),
                };
                let count = self.end.qp_count();
                let connect = |index| {
                    let (access, device) = (shape.remote_access(), self.end.device_name());
                    if shape.plan.service == Service::Ud {
                        let qp = self.end.create_qp(index)?;
                        return cm_datagrams::connect(
                            qp,
                            device,
                            &target,
                            index,
                            self.end.local_address(address),
                            timeout,
                        );
                    }
                    let create_qp = || self.end.create_qp(index);
                    cm::connect(create_qp, device, &target, index, access, timeout).map(AnyQp::Cm)
                };
                let qps = (0..count).map(|index| {
                    connect(index).map_err(|error| cm::of_several(error, index, count as usize))
                });
                let qps = qps.collect::<Result<Vec<_>>>()?;
                let via = self.end.connection_info(address, true, None);
                self.end.into_connected(qps, via)
            }
        }
    }
}
