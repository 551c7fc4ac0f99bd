//! What both ends of an RDMA test have: an opened device with the queues of one test.

use std::hash::{BuildHasher, RandomState};

use ibverbs::{
    CompletionChannel, CompletionQueue, CqOptions, Endpoint, Gid, GidIndex, Lid, Mtu, ProtectionDomain, Psn, QpOptions,
    Qpn, QueuePair, Rc, RcPath,
};

use super::address::Candidate;
use super::device::{Opened, device_error};
use super::wire::{Line, MAX_BATCH, VerbsWire};
use super::{Connected, Link, PlainEnd};
use crate::args::options::{Cm, Wait};
use crate::config::{Shape, Side};
use crate::error::{Error, Result};
use crate::report::record::Via;

/// Bytes up to which a message goes inline, where the device agrees.
const INLINE: u32 = 64;

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
        let depth = shape.sends() + shape.receives();
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

    pub(super) fn queue_pair(&self) -> Result<QueuePair<Rc>> {
        let options = QpOptions {
            max_send_wr: self.shape.sends(),
            max_recv_wr: self.shape.receives(),
            max_inline_data: if self.shape.msg_size <= INLINE { self.shape.msg_size } else { 0 },
            max_batch: MAX_BATCH,
            ..QpOptions::default()
        };
        let create = |options| self.pd.create_qp(&self.cq, &self.cq, options);
        match create(options) {
            // A device with less room for inline data still sends the message, from memory.
            Err(_) if options.max_inline_data > 0 => create(QpOptions { max_inline_data: 0, ..options }),
            made => made,
        }
        .map_err(device_error)
    }

    /// Puts a queue pair into INIT on the path from `address`, and says what the peer has to know.
    pub(super) fn prepare(&self, qp: &mut QueuePair<Rc>, address: Candidate, mtu: u32) -> Result<(RcPath, PlainEnd)> {
        let mtu = Mtu::from_bytes(mtu).ok_or_else(|| Error::protocol(format!("the peer wants an MTU of {mtu}")))?;
        let index = address.gid_index.map(u8::try_from).transpose();
        let index = index.map_err(|_| Error::device("the GID's index is above 255"))?;
        #[allow(clippy::cast_possible_truncation)] // 24 bits of many.
        let psn = Psn(random() as u32 & 0x00ff_ffff);
        let path = RcPath { psn, ..RcPath::new(self.opened.port_num, index.map(GidIndex), mtu) };
        qp.init(&path).map_err(device_error)?;
        let gid = address.ip.map_or(Gid([0; 16]), Gid::from);
        let end = PlainEnd { qpn: qp.qp_num().0, psn: psn.0, lid: self.opened.port.lid.0, gid: gid.to_string() };
        Ok((path, end))
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
            wait: self.wait,
        }
    }

    /// Joins the queues with a connected queue pair.
    pub(super) fn connected(self, line: Line, via: Via) -> Result<Connected<VerbsWire>> {
        let shape = self.shape;
        let wire = VerbsWire::new(line, &self.pd, self.cq, self.channel, &shape)?;
        Ok(Connected { wire, via, shape })
    }
}

/// A number that nobody foresees, for sequence numbers and tokens.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// The peer's end, as the library wants it.
pub(super) fn endpoint(end: &PlainEnd) -> Result<Endpoint> {
    let gid = end.gid.parse().map_err(|_| Error::protocol(format!("the peer's GID `{}` is none", end.gid)))?;
    Ok(Endpoint { qpn: Qpn(end.qpn), psn: Psn(end.psn), lid: Lid(end.lid), gid })
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
