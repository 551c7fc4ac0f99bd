//! RDMA as a [`Backend`].

use super::client::Client;
use super::server::Server;
use super::wire::VerbsWire;
use super::{Ask, Backend, Hosts, Offer};
use crate::config::Spec;
use crate::error::Result;

/// The RDMA devices of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs;

impl Backend for Verbs {
    type Wire = VerbsWire;
    type Client = Client;
    type Server = Server;

    fn client(&self, spec: &Spec, hosts: Hosts) -> Result<(Client, Ask)> {
        Client::new(spec, hosts)
    }

    fn server(&self, spec: &Spec, ask: &Ask, hosts: Hosts) -> Result<(Server, Offer)> {
        Server::new(spec, ask, hosts)
    }
}
