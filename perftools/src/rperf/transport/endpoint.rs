//! What both ends of an RDMA test have: an opened device with the queues of one test.

use ibverbs::{
    CompletionChannel, CompletionQueue, CqOptions, DuplexTransport, Gid, GidIndex, Mtu,
    ProtectionDomain, Psn, Qkey, QpOptions, Qpn, QueuePair, Rc, RcPath, SendTransport, SrqOptions,
    Uc, Ud, caps::OdpGeneralCaps,
};

use rdmacm::datagram::multicast::Membership;

use super::address::PortAddress;
use super::cm_datagrams::LocalAddress;
use super::device::OpenedDevice;
use super::path_checks::check_path;
use super::wire::{AnyQp, VerbsWire};
use super::xrc::{SharedRecvQueue, XrcConnection};
use super::{ConnectedEndpoint, LinkType, QpEndpoint};
use crate::common::error::{Error, Result};
use crate::common::system::random;
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::modes::Wait;
use crate::rperf::spec::path::{PathSettings, StaticRate};
use crate::rperf::spec::plan::Service;
use crate::rperf::spec::tuning::MAX_POST_LIST;
use crate::rperf::spec::{Shape, Side};

/// Bytes up to which a message goes inline, where the device agrees.
const INLINE: u32 = 64;

/// The key that datagrams carry, as qperf's.
pub(super) const QKEY: Qkey = Qkey(0x1111_1111);

/// A queue pair that its peer may be told of.
#[derive(Debug)]
pub(super) struct PreparedQp {
    pub(super) qp: UnconnectedQp,
    pub(super) path: RcPath,
    pub(super) plain: QpEndpoint,
}

#[derive(Debug)]
pub(super) enum UnconnectedQp {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    Ud(QueuePair<Ud>),
    Xrc(XrcConnection),
}

impl UnconnectedQp {
    fn qp_num(&self) -> Qpn {
        match self {
            UnconnectedQp::Rc(qp) => qp.qp_num(),
            UnconnectedQp::Uc(qp) => qp.qp_num(),
            UnconnectedQp::Ud(qp) => qp.qp_num(),
            UnconnectedQp::Xrc(connection) => connection.sender.qp_num(),
        }
    }
}

/// The queue pair, ready for receives.
fn started<T: ibverbs::ConnectedDuplexTransport>(
    mut qp: QueuePair<T>,
    path: &RcPath,
) -> Result<QueuePair<T>> {
    qp.init(path)?;
    Ok(qp)
}

/// An opened device with the queues of one test.
#[derive(Debug)]
pub(super) struct RdmaEndpoint {
    pub(super) opened: OpenedDevice,
    pub(super) shape: Shape,
    pub(super) pd: ProtectionDomain,
    /// Those of each thread.
    queues: Vec<ThreadQueues>,
    wait: Wait,
    /// What this end says of its own about packets and requests.
    own: PathSettings,
    /// The group of receivers.
    pub(super) group: Option<Membership>,
}

/// What the queue pairs of one thread complete on.
#[derive(Debug)]
struct ThreadQueues {
    cq: CompletionQueue,
    channel: CompletionChannel,
    /// What they receive from, where they share that.
    srq: Option<SharedRecvQueue>,
}

impl ThreadQueues {
    fn new(opened: &OpenedDevice, pd: &ProtectionDomain, shape: &Shape) -> Result<Self> {
        let channel = opened.context.create_comp_channel()?;
        let depth = shape.sends() * shape.qps + shape.receives() * shape.receive_queues();
        let options = CqOptions {
            depth,
            channel: Some(&channel),
            ..CqOptions::default()
        };
        let cq = opened.context.create_cq(options)?;
        let options = SrqOptions {
            max_wr: shape.receives(),
            max_batch: MAX_POST_LIST,
            ..SrqOptions::default()
        };
        let srq = match shape.plan.service {
            Service::Xrc => Some(SharedRecvQueue::xrc(&opened.context, pd, &cq, options)?),
            _ if shape.tuning.srq && shape.receives() > 0 => {
                Some(SharedRecvQueue::Basic(pd.create_srq(options)?))
            }
            _ => None,
        };
        Ok(Self { cq, channel, srq })
    }
}

/// Whether the device can do without pinned memory, where it shall.
fn check_pages(opened: &OpenedDevice, shape: &Shape) -> Result<()> {
    let context = &opened.context;
    if !shape.tuning.on_demand
        || context
            .query_device_ex()?
            .odp
            .general
            .contains(OdpGeneralCaps::SUPPORT)
    {
        return Ok(());
    }
    Err(Error::limit(format!(
        "needs on-demand paging, which {} lacks: leave --on-demand away",
        context.device_name()
    )))
}

impl RdmaEndpoint {
    pub(super) fn new(opened: OpenedDevice, shape: Shape, side: &Side) -> Result<Self> {
        let pd = opened.context.alloc_pd()?;
        let queues = (0..shape.threads)
            .map(|_| ThreadQueues::new(&opened, &pd, &shape))
            .collect::<Result<_>>()?;
        let own = side.path;
        check_path(&opened, own, shape.tuning.pkey_index)?;
        check_pages(&opened, &shape)?;
        Ok(Self {
            opened,
            shape,
            pd,
            queues,
            wait: side.wait,
            own,
            group: None,
        })
    }

    pub(super) fn device(&self) -> &str {
        self.opened.context.device_name()
    }

    /// RDMA reads and atomics in flight that this end was asked for at most.
    pub(super) fn rd_atomic(&self) -> u8 {
        self.own
            .rd_atomic
            .or(self.shape.tuning.rd_atomic)
            .unwrap_or(u8::MAX)
    }

    pub(super) fn mtu(&self) -> u32 {
        self.opened.port.active_mtu.bytes().unwrap_or(1024)
    }

    /// How many queue pairs its threads have together; those of one follow those of the one before.
    pub(super) fn qp_count(&self) -> u32 {
        self.shape.threads * self.shape.qps
    }

    /// The queue pair at this place, which rdma_cm will connect.
    pub(super) fn queue_pair<T: DuplexTransport>(&self, index: u32) -> Result<QueuePair<T>> {
        let ThreadQueues { cq, srq, .. } = self.queues_of(index)?;
        self.created(|options| match srq {
            Some(SharedRecvQueue::Basic(srq)) => self.pd.create_qp_with_srq(cq, cq, srq, options),
            _ => self.pd.create_qp(cq, cq, options),
        })
    }

    /// What the queue pair at this place completes on.
    fn queues_of(&self, index: u32) -> Result<&ThreadQueues> {
        self.queues
            .get((index / self.shape.qps) as usize)
            .ok_or_else(too_many)
    }

    /// A queue pair of the test's capacities.
    fn created<T: SendTransport>(
        &self,
        create: impl Fn(QpOptions) -> ibverbs::Result<QueuePair<T>>,
    ) -> Result<QueuePair<T>> {
        let inline = self.shape.tuning.inline.unwrap_or(INLINE);
        let options = QpOptions {
            max_send_wr: self.shape.sends(),
            max_recv_wr: self.shape.receives().max(1),
            max_inline_data: if self.shape.msg_size <= inline {
                self.shape.msg_size
            } else {
                0
            },
            max_batch: MAX_POST_LIST,
            ..QpOptions::default()
        };
        match create(options) {
            // A device with less room for inline data still sends the message, from memory.
            Err(_) if options.max_inline_data > 0 && self.shape.tuning.inline.is_none() => {
                create(QpOptions {
                    max_inline_data: 0,
                    ..options
                })
            }
            made => made,
        }
        .map_err(Error::from)
    }

    /// Queue pairs that this end connects itself, from `address`.
    pub(super) fn prepare(&self, address: PortAddress, mtu: u32) -> Result<Vec<PreparedQp>> {
        (0..self.qp_count())
            .map(|index| self.prepare_one(index, address, mtu))
            .collect()
    }

    fn prepare_one(&self, index: u32, address: PortAddress, mtu: u32) -> Result<PreparedQp> {
        let mtu = Mtu::from_bytes(mtu)
            .ok_or_else(|| Error::protocol(format!("the peer wants an MTU of {mtu}")))?;
        let gid_index = address.gid_index.map(u8::try_from).transpose();
        let gid_index = gid_index.map_err(|_| Error::device("the GID's index is above 255"))?;
        #[allow(clippy::cast_possible_truncation)] // 24 bits of many.
        let psn = Psn(random() as u32 & 0x00ff_ffff);
        let tuning = &self.shape.tuning;
        let path = RcPath {
            psn,
            access: self.shape.plan.verb.remote_access(),
            max_dest_rd_atomic: self.opened.rd_atomic.1.min(self.rd_atomic()),
            pkey_index: tuning.pkey_index,
            sl: self.own.service_level.unwrap_or(tuning.service_level),
            src_path_bits: self.own.src_path_bits.unwrap_or(0),
            static_rate: self.own.static_rate.map_or(0, StaticRate::code),
            traffic_class: tuning.traffic_class,
            ..RcPath::new(self.opened.port_num, gid_index.map(GidIndex), mtu)
        };
        let qp = match self.shape.plan.service {
            Service::Uc => {
                UnconnectedQp::Uc(self.queue_pair(index).and_then(|qp| started(qp, &path))?)
            }
            Service::Ud => {
                let mut qp: QueuePair<Ud> = self.queue_pair(index)?;
                match &self.group {
                    Some(group) => group.start_qp(&mut qp),
                    None => qp.start(path.port_num, path.pkey_index, QKEY, psn),
                }?;
                UnconnectedQp::Ud(qp)
            }
            Service::Xrc => {
                let ThreadQueues { cq, srq, .. } = self.queues_of(index)?;
                let sender = self.created(|options| self.pd.create_xrc_send_qp(cq, options))?;
                UnconnectedQp::Xrc(XrcConnection::new(sender, srq.as_ref(), &path)?)
            }
            Service::Rc => {
                UnconnectedQp::Rc(self.queue_pair(index).and_then(|qp| started(qp, &path))?)
            }
        };
        let gid = address.ip.map_or(Gid([0; 16]), Gid::from);
        let plain = QpEndpoint {
            qpn: qp.qp_num().0,
            psn: psn.0,
            lid: self.opened.port.lid.0 | u16::from(path.src_path_bits),
            gid: gid.to_string(),
            rd_atomic: path.max_dest_rd_atomic,
            xrc: if let UnconnectedQp::Xrc(connection) = &qp {
                Some(connection.receiver())
            } else {
                None
            },
        };
        Ok(PreparedQp { qp, path, plain })
    }

    /// How this end is answered, from `address`.
    pub(super) fn own(&self, address: PortAddress) -> LocalAddress {
        LocalAddress {
            gid: address.ip.map_or(Gid([0; 16]), Gid::from),
            gid_index: address
                .gid_index
                .and_then(|index| u8::try_from(index).ok())
                .map(GidIndex),
            lid: self.opened.port.lid,
            port_num: self.opened.port_num,
        }
    }

    pub(super) fn via(&self, address: PortAddress, cm: bool, mtu: Option<u32>) -> ConnectionInfo {
        let shown = match address.ip {
            Some(ip) if address.gid_index.is_some() => Gid::from(ip).to_string(),
            Some(ip) => ip.to_string(),
            None => format!("lid {}", self.opened.port.lid),
        };
        ConnectionInfo {
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

    /// Joins the queues of each thread with its connected queue pairs.
    pub(super) fn connected(
        self,
        qps: Vec<AnyQp>,
        via: ConnectionInfo,
    ) -> Result<ConnectedEndpoint<VerbsWire>> {
        let shape = self.shape;
        let mut qps = qps.into_iter();
        let mut group = self.group;
        // Soft-iWARP tells of none.
        let solicited = self.opened.link != LinkType::Iwarp;
        let wires = self
            .queues
            .into_iter()
            .map(|ThreadQueues { cq, channel, srq }| {
                let qps = qps.by_ref().take(shape.qps as usize).collect();
                let wire = VerbsWire::new(qps, &self.pd, cq, channel, srq, group.take(), &shape)?;
                Ok(wire.with_solicited_events(solicited))
            });
        Ok(ConnectedEndpoint {
            wires: wires.collect::<Result<_>>()?,
            via,
            shape,
        })
    }
}

#[cold]
fn too_many() -> Error {
    Error::protocol("more queue pairs than the test has")
}
