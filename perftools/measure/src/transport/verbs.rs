//! The RDMA implementation of [`Backend`].

use base::error::Result;

use super::client::RdmaClient;
use super::data_path::VerbsDataPath;
use super::server::RdmaServer;
use super::{Backend, ClientInfo, ControlAddrs, Offer};
use crate::spec::Spec;

/// The backend that uses the RDMA devices of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct VerbsBackend;

impl Backend for VerbsBackend {
    type DataPath = VerbsDataPath;
    type Client = RdmaClient;
    type Server = RdmaServer;

    fn client(&self, spec: &Spec, addrs: ControlAddrs) -> Result<(RdmaClient, ClientInfo)> {
        RdmaClient::new(spec, addrs)
    }

    fn server(
        &self,
        spec: &Spec,
        client: &ClientInfo,
        addrs: ControlAddrs,
    ) -> Result<(RdmaServer, Offer)> {
        RdmaServer::new(spec, client, addrs)
    }
}
