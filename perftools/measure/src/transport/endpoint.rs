//! The RDMA resources of one end of a test: the device, the completion queues and the queue pairs.

use base::error::{Error, Result};
use base::system::random;
use host::hardware::Hardware;
use ibverbs::{
    CompletionChannel, CompletionQueue, CqOptions, DatagramAttr, DuplexTransport, ErrorKind, Gid,
    GidIndex, Mtu, ProtectionDomain, Psn, Qkey, QpOptions, Qpn, QueuePair, Rc, RcPath,
    SendTransport, SrqOptions, Uc, Ud, caps::OdpGeneralCaps, efa::Srd, qp::QpChange,
};

use rdmacm::datagram::multicast::Membership;

use super::address::PortAddress;
use super::cm::CmSettings;
use super::cm_datagrams::LocalAddress;
use super::data_path::{AnyQp, VerbsDataPath};
use super::dc::UnconnectedDc;
use super::device::OpenedDevice;
use super::gpu::TestGpu;
use super::path_checks::check_path;
use super::xrc::{SharedRecvQueue, XrcConnection};
use super::{ConnectedEndpoint, LinkType, QpEndpoint};
use crate::data_key::DatagramKey;
use crate::engine::payload::Payload;
use crate::spec::connection::ConnectionInfo;
use crate::spec::modes::Wait;
use crate::spec::path::{PathSettings, StaticRate};
use crate::spec::plan::Service;
use crate::spec::tuning::MAX_POST_LIST;
use crate::spec::{Shape, Side};

/// Largest message in bytes that is sent inline by default in bandwidth tests, if the device
/// supports it.
const DEFAULT_INLINE: u32 = 64;
/// Largest message in bytes that is sent inline by default in latency tests; the same as that of
/// ib_send_lat.
const DEFAULT_LATENCY_INLINE: u32 = 236;

/// A queue pair with the data that the peer needs to connect to it.
#[derive(Debug)]
pub(super) struct PreparedQp {
    pub(super) qp: UnconnectedQp,
    pub(super) path: RcPath,
    /// This end, as sent to the peer.
    pub(super) local: QpEndpoint,
}

#[derive(Debug)]
pub(super) enum UnconnectedQp {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    Ud(QueuePair<Ud>),
    Xrc(XrcConnection),
    Srd(QueuePair<Srd>),
    Dc(UnconnectedDc),
}

impl UnconnectedQp {
    fn qp_num(&self) -> Qpn {
        match self {
            UnconnectedQp::Rc(qp) => qp.qp_num(),
            UnconnectedQp::Uc(qp) => qp.qp_num(),
            UnconnectedQp::Ud(qp) => qp.qp_num(),
            UnconnectedQp::Xrc(connection) => connection.sender.qp_num(),
            UnconnectedQp::Srd(qp) => qp.qp_num(),
            UnconnectedQp::Dc(connection) => connection.initiator.qp_num(),
        }
    }
}

/// Moves a queue pair to the INIT state, so that receives can be posted.
fn init_qp<T: ibverbs::ConnectedDuplexTransport>(
    mut qp: QueuePair<T>,
    path: &RcPath,
) -> Result<QueuePair<T>> {
    qp.init(path)?;
    Ok(qp)
}

/// One end of a test before its queue pairs are connected.
#[derive(Debug)]
pub(super) struct RdmaEndpoint {
    pub(super) opened: OpenedDevice,
    pub(super) shape: Shape,
    pub(super) pd: ProtectionDomain,
    /// Queues of each thread.
    queues: Vec<ThreadQueues>,
    wait: Wait,
    /// Path settings of this end, which take precedence over those of the test.
    path_settings: PathSettings,
    /// Numbers that the messages of the test carry. The client gets them from the server.
    pub(super) datagrams: DatagramKey,
    /// Multicast group of the test, if this end has joined one.
    pub(super) group: Option<Membership>,
    /// GPU whose memory holds the messages; none: host memory.
    gpu: Option<TestGpu>,
    /// Bytes of the messages.
    payload: Payload,
}

/// The completion queue of one thread, and its shared receive queue.
#[derive(Debug)]
struct ThreadQueues {
    cq: CompletionQueue,
    channel: CompletionChannel,
    /// Receive queue that the queue pairs share.
    srq: Option<SharedRecvQueue>,
}

impl ThreadQueues {
    fn new(
        opened: &OpenedDevice,
        pd: &ProtectionDomain,
        shape: &Shape,
        on_gpu: bool,
    ) -> Result<Self> {
        let channel = opened.context.create_comp_channel()?;
        let vectors = opened.context.num_comp_vectors();
        let vector = shape.tuning.cq_vector;
        if vector >= vectors {
            return Err(Error::limit(format!(
                "completion vector {vector}: {} has {vectors}",
                opened.context.device_name()
            ))
            .with_help(format!("set --cq-vector below {vectors}")));
        }
        let options = CqOptions::new()
            .depth(shape.completions())
            .channel(&channel)
            .comp_vector(vector);
        let cq = opened.context.create_cq(options)?;
        let options = SrqOptions::new()
            .max_wr(shape.receives().max(1))
            .max_batch(MAX_POST_LIST)
            .device_addresses(on_gpu);
        let srq = match shape.plan.service {
            Service::Xrc => Some(SharedRecvQueue::xrc(&opened.context, pd, &cq, options)?),
            // A DC target has one, also if it receives no messages.
            Service::Dc => Some(SharedRecvQueue::Basic(pd.create_srq(options)?)),
            _ if shape.tuning.srq && shape.receives() > 0 => {
                Some(SharedRecvQueue::Basic(pd.create_srq(options)?))
            }
            _ => None,
        };
        Ok(Self { cq, channel, srq })
    }
}

/// Checks that the device supports on-demand paging, if the test uses it.
fn check_on_demand_paging(opened: &OpenedDevice, shape: &Shape) -> Result<()> {
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
        "{} does not support on-demand paging",
        context.device_name()
    ))
    .with_help("omit --on-demand"))
}

impl RdmaEndpoint {
    pub(super) fn new(
        opened: OpenedDevice,
        shape: Shape,
        side: &Side,
        payload: Payload,
    ) -> Result<Self> {
        let pd = opened.context.alloc_pd()?;
        let queues = (0..shape.threads)
            .map(|_| ThreadQueues::new(&opened, &pd, &shape, side.gpu.is_some()))
            .collect::<Result<_>>()?;
        check_path(&opened, side.path, shape.tuning.pkey_index)?;
        check_on_demand_paging(&opened, &shape)?;
        let gpu = side.gpu.map(|id| TestGpu::open(id, &pd, &shape));
        Ok(Self {
            gpu: gpu.transpose()?,
            payload,
            opened,
            shape,
            pd,
            queues,
            wait: side.wait,
            path_settings: side.path,
            datagrams: DatagramKey::random(),
            group: None,
        })
    }

    pub(super) fn device_name(&self) -> &str {
        self.opened.context.device_name()
    }

    /// Returns the requested limit of RDMA reads and atomics in flight, 255 by default.
    pub(super) fn rd_atomic(&self) -> u8 {
        self.path_settings
            .rd_atomic
            .or(self.shape.tuning.rd_atomic)
            .unwrap_or(u8::MAX)
    }

    /// Returns the settings of connections by rdma_cm.
    pub(super) fn cm_settings(&self) -> CmSettings {
        let tuning = &self.shape.tuning;
        CmSettings {
            rd_atomic: self.rd_atomic(),
            type_of_service: tuning.traffic_class,
            ack_timeout: tuning.qp_timeout,
            retry_count: tuning.retry_count,
        }
    }

    /// Returns the active MTU of the port in bytes.
    pub(super) fn mtu(&self) -> u32 {
        self.opened.port.active_mtu.bytes().unwrap_or(1024)
    }

    /// Returns the number of queue pairs of all threads. Those of one thread have consecutive
    /// indices.
    pub(super) fn qp_count(&self) -> u32 {
        self.shape.threads * self.shape.qps
    }

    /// Creates the queue pair with this index.
    pub(super) fn create_qp<T: DuplexTransport>(&self, index: u32) -> Result<QueuePair<T>> {
        let ThreadQueues { cq, srq, .. } = self.thread_queues(index)?;
        self.create_with_options(|options| match srq {
            Some(SharedRecvQueue::Basic(srq)) => self.pd.create_qp_with_srq(cq, cq, srq, options),
            _ => self.pd.create_qp(cq, cq, options),
        })
    }

    /// Returns the queues of the queue pair with this index.
    fn thread_queues(&self, index: u32) -> Result<&ThreadQueues> {
        self.queues
            .get((index / self.shape.qps) as usize)
            .ok_or_else(too_many_qps)
    }

    /// Creates a queue pair with the capacities of the test. If the device rejects the default size
    /// of inline data, creates it without inline data.
    fn create_with_options<T: SendTransport>(
        &self,
        create: impl Fn(QpOptions) -> ibverbs::Result<QueuePair<T>>,
    ) -> Result<QueuePair<T>> {
        let default = if self.shape.plan.is_latency() {
            DEFAULT_LATENCY_INLINE
        } else {
            DEFAULT_INLINE
        };
        let inline = match self.gpu {
            // The CPU copies inline data.
            Some(_) => 0,
            None => self.shape.tuning.inline.unwrap_or(default),
        };
        let options = QpOptions::new()
            .max_send_wr(self.shape.send_queue_len())
            .max_recv_wr(self.shape.receives().max(1))
            .max_inline_data(if self.shape.msg_size <= inline {
                self.shape.msg_size
            } else {
                0
            })
            .max_batch(MAX_POST_LIST)
            .device_addresses(self.gpu.is_some());
        match create(options) {
            Err(_) if options.max_inline_data > 0 && self.shape.tuning.inline.is_none() => {
                create(options.max_inline_data(0))
            }
            result => result,
        }
        .map_err(|error| {
            if error.kind() == ErrorKind::Unsupported && self.gpu.is_none() {
                let plan = self.shape.plan;
                return self.opened.bounds.unsupported(plan, &plan.service);
            }
            let text = error.to_string();
            Error::device(text.replace("QpOptions::max_inline_data", "--inline"))
        })
    }

    /// Creates queue pairs that this end connects itself, from `address`.
    pub(super) fn prepare(&self, address: PortAddress, mtu: u32) -> Result<Vec<PreparedQp>> {
        (0..self.qp_count())
            .map(|index| self.prepare_one(index, address, mtu))
            .collect()
    }

    fn prepare_one(&self, index: u32, address: PortAddress, mtu: u32) -> Result<PreparedQp> {
        let mtu = Mtu::from_bytes(mtu).ok_or_else(|| {
            Error::protocol(format!("the peer sent an invalid MTU of {mtu} bytes"))
        })?;
        let gid_index = address.gid_index.map(u8::try_from).transpose();
        let gid_index =
            gid_index.map_err(|_| Error::device("the index of the GID is above 255"))?;
        #[allow(clippy::cast_possible_truncation)] // A PSN has 24 bits.
        let psn = Psn(random() as u32 & 0x00ff_ffff);
        let tuning = &self.shape.tuning;
        let path = RcPath::new(self.opened.port_num, gid_index.map(GidIndex), mtu)
            .psn(psn)
            .access(self.shape.remote_access())
            .max_dest_rd_atomic(self.opened.rd_atomic.1.min(self.rd_atomic()))
            .pkey_index(tuning.pkey_index)
            .sl(self
                .path_settings
                .service_level
                .unwrap_or(tuning.service_level))
            .static_rate(self.path_settings.static_rate.map_or(0, StaticRate::code))
            .traffic_class(tuning.traffic_class)
            .flow_label(tuning.flow_label);
        let path = tuning
            .qp_timeout
            .map_or(path, |timeout| path.timeout(timeout));
        let path = tuning
            .retry_count
            .map_or(path, |count| path.retry_cnt(count));
        let qkey = self.datagrams.qkey();
        let qp = match self.shape.plan.service {
            Service::Uc => {
                UnconnectedQp::Uc(self.create_qp(index).and_then(|qp| init_qp(qp, &path))?)
            }
            Service::Ud => {
                let mut qp: QueuePair<Ud> = self.create_qp(index)?;
                match &self.group {
                    Some(group) => {
                        group.start_qp(&mut qp)?;
                        qp.modify(&QpChange::new().qkey(qkey))
                    }
                    None => qp.start(&datagram_attr(&path, qkey).psn(psn)),
                }?;
                UnconnectedQp::Ud(qp)
            }
            Service::Xrc => {
                let ThreadQueues { cq, srq, .. } = self.thread_queues(index)?;
                let sender =
                    self.create_with_options(|options| self.pd.create_xrc_send_qp(cq, options))?;
                UnconnectedQp::Xrc(XrcConnection::new(sender, srq.as_ref(), &path)?)
            }
            Service::Srd => {
                let mut qp: QueuePair<Srd> = self.create_qp(index)?;
                qp.start(&datagram_attr(&path, qkey).psn(psn))?;
                UnconnectedQp::Srd(qp)
            }
            Service::Dc => {
                let ThreadQueues { cq, srq, .. } = self.thread_queues(index)?;
                let initiator =
                    self.create_with_options(|options| self.pd.create_dc_qp(cq, options))?;
                let targets = self.shape.plan.service.targets(&self.shape.tuning);
                let (pd, srq) = (&self.pd, srq.as_ref());
                UnconnectedQp::Dc(UnconnectedDc::new(initiator, targets, pd, cq, srq, &path)?)
            }
            Service::Rc => {
                UnconnectedQp::Rc(self.create_qp(index).and_then(|qp| init_qp(qp, &path))?)
            }
        };
        let gid = address.ip.map_or(Gid([0; 16]), Gid::from);
        let local = QpEndpoint {
            qpn: qp.qp_num().0,
            psn: psn.0,
            lid: self.opened.port.lid.0 | u16::from(path.src_path_bits),
            gid: gid.to_string(),
            rd_atomic: path.max_dest_rd_atomic,
            xrc: match &qp {
                UnconnectedQp::Xrc(connection) => Some(connection.receiver()),
                _ => None,
            },
            dc: match &qp {
                UnconnectedQp::Dc(connection) => connection.receivers(),
                _ => Vec::new(),
            },
        };
        Ok(PreparedQp { qp, path, local })
    }

    /// Returns the address that the peer sends datagrams to.
    pub(super) fn local_address(&self, address: PortAddress) -> LocalAddress {
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

    /// Returns the description of the connection for the report.
    pub(super) fn connection_info(
        &self,
        address: PortAddress,
        cm: bool,
        mtu: Option<u32>,
    ) -> ConnectionInfo {
        let shown_address = match address.ip {
            Some(ip) if address.gid_index.is_some() => Gid::from(ip).to_string(),
            Some(ip) => ip.to_string(),
            None => format!("lid {}", self.opened.port.lid),
        };
        ConnectionInfo {
            device: self.device_name().to_owned(),
            port: self.opened.port_num,
            link: self.opened.link_name.clone(),
            gid_index: address.gid_index,
            address: shown_address,
            cm,
            mtu,
            port_mtu: Some(self.opened.bounds.mtu),
            memory: self.gpu.as_ref().map(TestGpu::description),
            hardware: Hardware::default(),
            wait: self.wait,
        }
    }

    /// Creates the data path of each thread from its queues and its connected queue pairs.
    pub(super) fn into_connected(
        self,
        qps: Vec<AnyQp>,
        via: ConnectionInfo,
    ) -> Result<ConnectedEndpoint<VerbsDataPath>> {
        let shape = self.shape;
        let mut qps = qps.into_iter();
        let mut group = self.group;
        let gpu = self.gpu;
        let is_iwarp = self.opened.link == LinkType::Iwarp;
        let data_paths = self
            .queues
            .into_iter()
            .map(|ThreadQueues { cq, channel, srq }| {
                let qps = qps.by_ref().take(shape.qps as usize).collect();
                let memory = (shape, self.payload.clone(), gpu.as_ref());
                let data_path = VerbsDataPath::new(qps, &self.pd, (cq, channel), srq, memory)?;
                let data_path = data_path
                    .with_first_imm(self.datagrams.first_imm)
                    .with_group(group.take())
                    .on_iwarp(is_iwarp);
                if shape.confirms_writes {
                    return data_path.confirming_placement(&self.pd);
                }
                Ok(data_path)
            });
        Ok(ConnectedEndpoint {
            data_paths: data_paths.collect::<Result<_>>()?,
            via,
            shape,
        })
    }
}

#[cold]
fn too_many_qps() -> Error {
    Error::protocol("the test has fewer queue pairs than requested")
}
/// Returns the attributes of a datagram queue pair on a path.
fn datagram_attr(path: &RcPath, qkey: Qkey) -> DatagramAttr {
    DatagramAttr::new(path.port_num, qkey).pkey_index(path.pkey_index)
}
