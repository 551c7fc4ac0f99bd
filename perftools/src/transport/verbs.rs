//! The two ends of an RDMA test.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use ibverbs::{
    CompletionChannel, CompletionQueue, CqOptions, Endpoint, Gid, Lid, Mtu, ProtectionDomain, Psn, QpOptions, Qpn,
    QueuePair, Rc, RcPath,
};

use super::address::{Candidate, choose};
use super::device::{self, Opened, device_error};
use super::wire::{Line, MAX_BATCH, VerbsWire};
use super::{Answer, Ask, Backend, ClientSetup, Connected, Hosts, Link, Method, Offer, PlainEnd, ServerSetup};
use crate::args::options::{Cm, Wait};
use crate::config::{Shape, Side, Spec};
use crate::error::{Error, Result};
use crate::report::record::Via;

/// Bytes up to which a message goes inline, where the device agrees.
const INLINE: u32 = 64;

/// RDMA devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs;

/// An opened device with the queues of one test.
#[derive(Debug)]
struct End {
    opened: Opened,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    shape: Shape,
    wait: Wait,
}

impl End {
    fn new(opened: Opened, shape: Shape, side: &Side) -> Result<Self> {
        let pd = opened.context.alloc_pd().map_err(device_error)?;
        let channel = opened.context.create_comp_channel().map_err(device_error)?;
        let options =
            CqOptions { depth: shape.sends() + shape.receives(), channel: Some(&channel), ..CqOptions::default() };
        let cq = opened.context.create_cq(options).map_err(device_error)?;
        Ok(Self { opened, pd, cq, channel, shape, wait: side.wait })
    }

    fn queue_pair(&self) -> Result<QueuePair<Rc>> {
        let options = QpOptions {
            max_send_wr: self.shape.sends(),
            max_recv_wr: self.shape.receives(),
            max_inline_data: if self.shape.msg_size <= INLINE { self.shape.msg_size } else { 0 },
            max_batch: MAX_BATCH,
            ..QpOptions::default()
        };
        match self.pd.create_qp(&self.cq, &self.cq, options) {
            // A device with less room for inline data still sends the message, from memory.
            Err(_) if options.max_inline_data > 0 => {
                self.pd.create_qp(&self.cq, &self.cq, QpOptions { max_inline_data: 0, ..options })
            }
            made => made,
        }
        .map_err(device_error)
    }

    fn via(&self, address: Candidate, cm: bool, mtu: Option<u32>) -> Via {
        let link = match self.opened.link {
            Link::Roce => "RoCE v2".to_owned(),
            other => other.to_string(),
        };
        let shown = match address.ip {
            Some(ip) if address.gid_index.is_some() && ip.is_ipv4() => format!("::ffff:{ip}"),
            Some(ip) => ip.to_string(),
            None => format!("lid {}", self.opened.port.lid.0),
        };
        Via {
            device: self.opened.context.device_name().to_owned(),
            port: self.opened.port_num,
            link,
            gid_index: address.gid_index,
            address: shown,
            cm,
            mtu,
            wait: self.wait,
        }
    }

    /// Puts a queue pair into INIT on the path from `address`, and says what the peer has to know.
    fn prepare(&self, qp: &mut QueuePair<Rc>, address: Candidate, mtu: u32) -> Result<(RcPath, PlainEnd)> {
        let mtu = Mtu::from_bytes(mtu).ok_or_else(|| Error::protocol(format!("the peer wants an MTU of {mtu}")))?;
        let index = address
            .gid_index
            .map(u8::try_from)
            .transpose()
            .map_err(|_| Error::device("the GID's index is above 255"))?;
        let psn = Psn(random() as u32 & 0x00ff_ffff);
        let path = RcPath { psn, ..RcPath::new(self.opened.port_num, index, mtu) };
        qp.init(&path).map_err(device_error)?;
        let gid = address.ip.map_or(Gid([0; 16]), Gid::from);
        let end = PlainEnd { qpn: qp.qp_num().0, psn: psn.0, lid: self.opened.port.lid.0, gid: gid.to_string() };
        Ok((path, end))
    }

    fn wire(self, line: Line) -> Result<VerbsWire> {
        VerbsWire::new(line, &self.pd, self.cq, self.channel, &self.shape)
    }

    fn mtu(&self) -> u32 {
        self.opened.port.active_mtu.bytes().unwrap_or(1024)
    }
}

/// A number that nobody foresees, for sequence numbers and tokens.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

fn endpoint(end: &PlainEnd) -> Result<Endpoint> {
    let gid = end.gid.parse().map_err(|_| Error::protocol(format!("the peer's GID `{}` is none", end.gid)))?;
    Ok(Endpoint { qpn: Qpn(end.qpn), psn: Psn(end.psn), lid: Lid(end.lid), gid })
}

/// Whether rdma_cm connects a port of this link.
fn by_cm(link: Link, asked: Cm, device: &str) -> Result<bool> {
    match (link, asked) {
        (Link::Iwarp, Cm::Off) => {
            Err(Error::limit(format!("{device} is iWARP, which only rdma_cm connects: leave --use-cm (-cm0) away")))
        }
        (Link::Iwarp, _) | (_, Cm::On) => Ok(true),
        _ => Ok(false),
    }
}

/// The client's end.
#[derive(Debug)]
pub struct Client {
    end: End,
    spec: Spec,
    qp: Option<(QueuePair<Rc>, RcPath)>,
}

/// The server's end.
#[derive(Debug)]
pub struct Server {
    end: End,
    qp: QueuePair<Rc>,
    path: RcPath,
    via: Via,
}

impl Backend for Verbs {
    type Wire = VerbsWire;
    type Client = Client;
    type Server = Server;

    fn client(&self, spec: &Spec, hosts: Hosts) -> Result<(Client, Ask)> {
        let opened = device::open(spec.client.id.as_ref(), hosts)?;
        by_cm(opened.link, spec.use_cm, opened.context.device_name())?;
        let shape = spec.agreed(spec.fit(&opened.bounds)?.depth)?;
        let end = End::new(opened, shape, &spec.client)?;
        let ask =
            Ask { link: end.opened.link, addresses: end.opened.addresses.clone(), mtu: end.mtu(), depth: shape.depth };
        Ok((Client { end, spec: spec.clone(), qp: None }, ask))
    }

    fn server(&self, spec: &Spec, ask: &Ask, hosts: Hosts) -> Result<(Server, Offer)> {
        let opened = device::open(spec.server.id.as_ref(), hosts)?;
        let name = opened.context.device_name().to_owned();
        if opened.link != ask.link {
            return Err(Error::limit(format!(
                "{name} here is {}, the client's device is {}: they cannot talk to each other; choose with --id (-i), --local-id (-li), --remote-id (-ri)",
                opened.link, ask.link
            )));
        }
        let (mine, theirs) = choose(&opened.addresses, &ask.addresses, hosts).ok_or_else(|| no_path(&opened, ask))?;
        let cm = by_cm(opened.link, spec.use_cm, &name)?;
        let shape = spec.agreed(spec.fit(&opened.bounds)?.depth.min(ask.depth))?;
        let end = End::new(opened, shape, &spec.server)?;
        let mtu = path_mtu(spec, end.mtu(), ask.mtu)?;
        let address = end.opened.addresses[mine];
        if cm {
            return Err(Error::limit("rdma_cm is not there yet"));
        }
        let mut qp = end.queue_pair()?;
        let (path, plain) = end.prepare(&mut qp, address, mtu)?;
        let via = end.via(address, false, Some(mtu));
        let offer =
            Offer { depth: shape.depth, mtu, client_address: theirs, method: Method::Direct(plain), via: via.clone() };
        Ok((Server { end, qp, path, via }, offer))
    }
}

fn no_path(opened: &Opened, ask: &Ask) -> Error {
    let list = |all: &[Candidate]| {
        let ips: Vec<String> = all.iter().filter_map(|c| c.ip).map(|ip| ip.to_string()).collect();
        if ips.is_empty() { "none".to_owned() } else { ips.join(", ") }
    };
    Error::device(format!(
        "no address of {} here ({}) reaches one of the client's ({}): give both interfaces an address of one family and subnet",
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
            "MTU of {mtu}: the ports' active MTUs are {mine} and {theirs}; give --mtu (-mt) at most {active}"
        ))),
        Some(mtu) => Ok(mtu),
        None => Ok(active),
    }
}

impl ClientSetup for Client {
    type Wire = VerbsWire;

    fn answer(&mut self, offer: &Offer) -> Result<Answer> {
        self.end.shape = self.spec.agreed(offer.depth.min(self.end.shape.depth))?;
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

    fn connect(mut self, offer: &Offer, _timeout: Duration) -> Result<Connected<VerbsWire>> {
        let address = self.address(offer)?;
        match (&offer.method, self.qp.take()) {
            (Method::Direct(server), Some((mut qp, path))) => {
                qp.connect(&path, &endpoint(server)?).map_err(device_error)?;
                let (via, shape) = (self.end.via(address, false, Some(offer.mtu)), self.end.shape);
                Ok(Connected { wire: self.end.wire(Line::Direct(qp))?, via, shape })
            }
            _ => Err(Error::limit("rdma_cm is not there yet")),
        }
    }
}

impl Client {
    fn address(&self, offer: &Offer) -> Result<Candidate> {
        let found = self.end.opened.addresses.get(offer.client_address);
        found.copied().ok_or_else(|| Error::protocol("the server chose an address that this end does not have"))
    }
}

impl ServerSetup for Server {
    type Wire = VerbsWire;

    fn accept(mut self, answer: &Answer, _timeout: Duration, _gone: &dyn Fn() -> bool) -> Result<Connected<VerbsWire>> {
        let Some(client) = &answer.end else {
            return Err(Error::protocol("the client did not say which queue pair it has"));
        };
        self.qp.connect(&self.path, &endpoint(client)?).map_err(device_error)?;
        let shape = self.end.shape;
        Ok(Connected { wire: self.end.wire(Line::Direct(self.qp))?, via: self.via, shape })
    }
}
