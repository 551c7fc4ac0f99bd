//! The client's end of an RDMA test.

use std::net::SocketAddr;
use std::time::Duration;

use ibverbs::{QueuePair, Rc, RcPath};

use super::address::Candidate;
use super::device::{self, device_error};
use super::end::{End, by_cm, endpoint};
use super::wire::{Line, VerbsWire};
use super::{Answer, Ask, ClientSetup, Connected, Hosts, Method, Offer, cm};
use crate::config::Spec;
use crate::error::{Error, Result};

/// The client's end.
#[derive(Debug)]
pub struct Client {
    end: End,
    spec: Spec,
    qp: Option<(QueuePair<Rc>, RcPath)>,
}

impl Client {
    pub(super) fn new(spec: &Spec, hosts: Hosts) -> Result<(Self, Ask)> {
        let opened = device::open(spec.client.id.as_ref(), hosts)?;
        by_cm(opened.link, spec.use_cm, opened.context.device_name())?;
        let shape = spec.agreed(spec.fit(&opened.bounds)?.depth)?;
        let end = End::new(opened, shape, &spec.client)?;
        let addresses = end.opened.addresses.clone();
        let ask = Ask { link: end.opened.link, addresses, mtu: end.mtu(), depth: shape.depth };
        Ok((Self { end, spec: spec.clone(), qp: None }, ask))
    }

    fn address(&self, offer: &Offer) -> Result<Candidate> {
        let found = self.end.opened.addresses.get(offer.client_address);
        found.copied().ok_or_else(|| Error::protocol("the server chose an address that this end does not have"))
    }
}

impl ClientSetup for Client {
    type Wire = VerbsWire;

    fn answer(&mut self, offer: &Offer) -> Result<Answer> {
        if offer.depth > self.end.shape.depth {
            return Err(Error::protocol("the server offers a greater depth than it was asked for"));
        }
        self.end.shape = self.spec.agreed(offer.depth)?;
        match &offer.method {
            Method::Cm { .. } => Ok(Answer { end: None }),
            Method::Direct(_) => {
                let mut qp = self.end.queue_pair()?;
                let (path, plain) = self.end.prepare(&mut qp, self.address(offer)?, offer.mtu)?;
                self.qp = Some((qp, path));
                Ok(Answer { end: Some(plain) })
            }
        }
    }

    fn connect(mut self, offer: &Offer, timeout: Duration) -> Result<Connected<VerbsWire>> {
        let address = self.address(offer)?;
        match (&offer.method, self.qp.take()) {
            (Method::Direct(server), Some((mut qp, path))) => {
                qp.connect(&path, &endpoint(server)?).map_err(device_error)?;
                let via = self.end.via(address, false, Some(offer.mtu));
                self.end.connected(Line::Direct(qp), via)
            }
            (Method::Cm { address: server, port, token }, _) => {
                let source = address.ip.ok_or_else(|| Error::device("rdma_cm needs an IP address on this end"))?;
                let qp = self.end.queue_pair()?;
                let server = SocketAddr::new(*server, *port);
                let connection = cm::connect(qp, self.end.device(), source, server, *token, timeout)?;
                let via = self.end.via(address, true, None);
                self.end.connected(Line::Cm(connection), via)
            }
            (Method::Direct(_), None) => Err(Error::protocol("connected before the answer")),
        }
    }
}
