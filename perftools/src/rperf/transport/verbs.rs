//! RDMA as a [`Backend`].

use super::client::RdmaClient;
use super::server::RdmaServer;
use super::wire::VerbsWire;
use super::{Backend, ClientInfo, ControlAddrs, Offer};
use crate::common::error::Result;
use crate::rperf::spec::Spec;

/// The RDMA devices of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct VerbsBackend;

impl Backend for VerbsBackend {
    type Wire = VerbsWire;
    type Client = RdmaClient;
    type Server = RdmaServer;

    fn client(&self, spec: &Spec, hosts: ControlAddrs) -> Result<(RdmaClient, ClientInfo)> {
        RdmaClient::new(spec, hosts)
    }

    fn server(
        &self,
        spec: &Spec,
        client: &ClientInfo,
        hosts: ControlAddrs,
    ) -> Result<(RdmaServer, Offer)> {
        RdmaServer::new(spec, client, hosts)
    }
}
