//! What both ends of an RDMA test have: an opened device with the queues of one test.

use std::hash::{BuildHasher, RandomState};

use ibverbs::{
    AhAttr, CompletionChannel, CompletionQueue, CqOptions, Destination, Endpoint, Gid, GidIndex, Lid, Mtu,
    ProtectionDomain, Psn, Qkey, QpOptions, Qpn, QueuePair, Rc, RcPath, Transport, Uc, Ud,
};

use super::access::access;
use super::address::Candidate;
use super::device::{Opened, device_error};
use super::wire::{Line, VerbsWire};
use super::{Connected, Link, PlainEnd};
use crate::args::options::{Cm, Wait};
use crate::config::{Shape, Side};
use crate::error::{Error, Result};
use crate::plan::Service;
use crate::report::via::Via;
use crate::tuning::MAX_POST_LIST;

/// Bytes up to which a message goes inline, where the device agrees.
const INLINE: u32 = 64;

/// The key that datagrams carry, as qperf's.
const QKEY: Qkey = Qkey(0x1111_1111);

/// A queue pair that its peer may be told of.
#[derive(Debug)]
pub(super) struct Prepared {
    qp: Made,
    path: RcPath,
    pub(super) plain: PlainEnd,
}

#[derive(Debug)]
enum Made {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    Ud(QueuePair<Ud>),
}

impl Made {
    fn qp_num(&self) -> Qpn {
        match self {
            Made::Rc(qp) => qp.qp_num(),
            Made::Uc(qp) => qp.qp_num(),
            Made::Ud(qp) => qp.qp_num(),
        }
    }
}

/// The queue pair, ready for receives.
fn started<T: ibverbs::Connected>(mut qp: QueuePair<T>, path: &RcPath) -> Result<QueuePair<T>> {
    qp.init(path).map_err(device_error)?;
    Ok(qp)
}

/// An opened device with the queues of one test.
#[derive(Debug)]
pub(super) struct End {
    pub(super) opened: Opened,
    pub(super) shape: Shape,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    wait: Wait,
}

impl End {
    pub(super) fn new(opened: Opened, shape: Shape, side: &Side) -> Result<Self> {
        let pd = opened.context.alloc_pd().map_err(device_error)?;
        let channel = opened.context.create_comp_channel().map_err(device_error)?;
        let depth = (shape.sends() + shape.receives()) * shape.qps;
        let options = CqOptions { depth, channel: Some(&channel), ..CqOptions::default() };
        let cq = opened.context.create_cq(options).map_err(device_error)?;
        Ok(Self { opened, shape, pd, cq, channel, wait: side.wait })
    }

    pub(super) fn device(&self) -> &str {
        self.opened.context.device_name()
    }

    pub(super) fn mtu(&self) -> u32 {
        self.opened.port.active_mtu.bytes().unwrap_or(1024)
    }

    /// A queue pair that rdma_cm will connect.
    pub(super) fn queue_pair<T: Transport>(&self) -> Result<QueuePair<T>> {
        let inline = self.shape.tuning.inline.unwrap_or(INLINE);
        let options = QpOptions {
            max_send_wr: self.shape.sends(),
            max_recv_wr: self.shape.receives().max(1),
            max_inline_data: if self.shape.msg_size <= inline { self.shape.msg_size } else { 0 },
            max_batch: MAX_POST_LIST,
            ..QpOptions::default()
        };
        let create = |options| self.pd.create_qp(&self.cq, &self.cq, options);
        match create(options) {
            // A device with less room for inline data still sends the message, from memory.
            Err(_) if options.max_inline_data > 0 && self.shape.tuning.inline.is_none() => {
                create(QpOptions { max_inline_data: 0, ..options })
            }
            made => made,
        }
        .map_err(device_error)
    }

    /// Queue pairs that this end connects itself, from `address`.
    pub(super) fn prepare(&self, address: Candidate, mtu: u32) -> Result<Vec<Prepared>> {
        (0..self.shape.qps).map(|_| self.prepare_one(address, mtu)).collect()
    }

    fn prepare_one(&self, address: Candidate, mtu: u32) -> Result<Prepared> {
        let mtu = Mtu::from_bytes(mtu).ok_or_else(|| Error::protocol(format!("the peer wants an MTU of {mtu}")))?;
        let index = address.gid_index.map(u8::try_from).transpose();
        let index = index.map_err(|_| Error::device("the GID's index is above 255"))?;
        #[allow(clippy::cast_possible_truncation)] // 24 bits of many.
        let psn = Psn(random() as u32 & 0x00ff_ffff);
        let tuning = &self.shape.tuning;
        let path = RcPath {
            psn,
            access: access(self.shape.plan.verb),
            max_dest_rd_atomic: self.opened.rd_atomic.1,
            pkey_index: tuning.pkey_index,
            sl: tuning.service_level,
            traffic_class: tuning.traffic_class,
            ..RcPath::new(self.opened.port_num, index.map(GidIndex), mtu)
        };
        let qp = match self.shape.plan.service {
            Service::Uc => Made::Uc(self.queue_pair().and_then(|qp| started(qp, &path))?),
            Service::Ud => {
                let mut qp: QueuePair<Ud> = self.queue_pair()?;
                qp.start(path.port_num, path.pkey_index, QKEY, psn).map_err(device_error)?;
                Made::Ud(qp)
            }
            _ => Made::Rc(self.queue_pair().and_then(|qp| started(qp, &path))?),
        };
        let gid = address.ip.map_or(Gid([0; 16]), Gid::from);
        let plain = PlainEnd {
            qpn: qp.qp_num().0,
            psn: psn.0,
            lid: self.opened.port.lid.0,
            gid: gid.to_string(),
            rd_atomic: path.max_dest_rd_atomic,
        };
        Ok(Prepared { qp, path, plain })
    }

    /// Connects prepared queue pairs to the peer's.
    pub(super) fn join(&self, prepared: Vec<Prepared>, peers: &[PlainEnd]) -> Result<Vec<Line>> {
        if prepared.len() != peers.len() {
            return Err(Error::protocol(format!("the peer has {} queue pairs, not {}", peers.len(), prepared.len())));
        }
        prepared.into_iter().zip(peers).map(|(one, peer)| self.join_one(one, peer)).collect()
    }

    fn join_one(&self, Prepared { qp, mut path, .. }: Prepared, peer: &PlainEnd) -> Result<Line> {
        let gid = peer.gid.parse().map_err(|_| Error::protocol(format!("the peer's GID `{}` is none", peer.gid)))?;
        let remote = Endpoint { qpn: Qpn(peer.qpn), psn: Psn(peer.psn), lid: Lid(peer.lid), gid };
        let asked = self.shape.tuning.rd_atomic.unwrap_or(u8::MAX);
        path.max_rd_atomic = self.opened.rd_atomic.0.min(peer.rd_atomic).min(asked);
        match qp {
            Made::Rc(mut qp) => qp.connect(&path, &remote).map(|()| Line::Rc(qp)),
            Made::Uc(mut qp) => qp.connect(&path, &remote).map(|()| Line::Uc(qp)),
            Made::Ud(mut qp) => {
                let mut to = match path.sgid_index {
                    Some(index) => AhAttr::to_gid(path.port_num, index, gid),
                    None => AhAttr::to_lid(path.port_num, remote.lid),
                };
                to.sl = path.sl;
                to.grh = to.grh.map(|grh| ibverbs::GlobalRoute { traffic_class: path.traffic_class, ..grh });
                let address = self.pd.create_ah(&to).and_then(|handle| qp.hold_address(&handle));
                address.map(|address| Line::Ud(qp, Destination { address, qpn: remote.qpn, qkey: QKEY }))
            }
        }
        .map_err(device_error)
    }

    pub(super) fn via(&self, address: Candidate, cm: bool, mtu: Option<u32>) -> Via {
        let shown = match address.ip {
            Some(ip) if address.gid_index.is_some() => Gid::from(ip).to_string(),
            Some(ip) => ip.to_string(),
            None => format!("lid {}", self.opened.port.lid),
        };
        Via {
            device: self.device().to_owned(),
            port: self.opened.port_num,
            link: self.opened.link_name.clone(),
            gid_index: address.gid_index,
            address: shown,
            cm,
            mtu,
            port_mtu: Some(self.opened.bounds.mtu),
            wait: self.wait,
        }
    }

    /// Joins the queues with connected queue pairs.
    pub(super) fn connected(self, lines: Vec<Line>, via: Via) -> Result<Connected<VerbsWire>> {
        let shape = self.shape;
        let wire = VerbsWire::new(lines, &self.pd, self.cq, self.channel, &shape)?;
        Ok(Connected { wire, via, shape })
    }
}

/// A number that nobody foresees, for sequence numbers and tokens.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Whether rdma_cm connects a port of this link.
pub(super) fn by_cm(link: Link, asked: Cm, device: &str) -> Result<bool> {
    match (link, asked) {
        (Link::Iwarp, Cm::Off) => {
            Err(Error::limit(format!("{device} is iWARP, which only rdma_cm connects: leave --use-cm off (-cm0) away")))
        }
        (Link::Iwarp, _) | (_, Cm::On) => Ok(true),
        _ => Ok(false),
    }
}
