//! A connected end with its memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, CqOptions, Held, LinkLayer,
    ProtectionDomain, QpOptions, QueuePair, Rc, RemoteMemory, SharedRegion, device::TransportType,
};
use rdmacm::{CmEventType, ConnectParams, Connection, Listener, Resolver};

use super::{DEPTH, FEW, LoopKind, ipv4};
use crate::common::error::{Error, Kind, Result};
use crate::common::units::show_time;
use crate::rperf::engine::Peer;
use crate::rperf::qperf::control_conn::ControlConn;
use crate::rperf::qperf::node::{self, Node};
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::plan::Plan;
use crate::rperf::spec::{Side, Spec};

/// How often a wait looks whether the peer is still there.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The memory that results of checked atomics arrive in, as qperf's.
const VERIFIED: u64 = 64 << 10;
/// How long the peer's disconnection is waited for.
const PARTING: Duration = Duration::from_secs(3);

/// A connected end with its memory: one region for everything, as qperf has it.
#[derive(Debug)]
pub(in crate::rperf::qperf) struct QperfEndpoint {
    pub(super) part: LoopKind,
    pub(super) connection: Connection,
    pub(super) cq: CompletionQueue,
    pub(super) channel: CompletionChannel,
    pub(super) region: SharedRegion,
    pub(super) held: Held<SharedRegion>,
    pub(super) remote: RemoteMemory,
    pub(super) depth: u32,
    link: String,
}

/// The objects of an end that is not connected yet.
struct EndpointParts {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    depth: u32,
}

/// The error of a server that rdma_cm does not reach: a qperf is asked at the address by which it
/// was called.
#[cold]
fn no_way(server: SocketAddr, error: &ibverbs::Error) -> Error {
    Error::device(format!(
        "{error}; call the host by an address of its RDMA interface, as {} is what a qperf is reached by",
        server.ip().to_canonical()
    ))
}

impl EndpointParts {
    fn new(context: &Context, part: LoopKind) -> Result<(Self, QueuePair<Rc>)> {
        let few = matches!(
            part,
            LoopKind::Ping(_) | LoopKind::Pong(_) | LoopKind::Source { one: true, .. }
        );
        let most = context.query_device()?;
        let depth = if few { FEW } else { DEPTH }
            .min(most.max_qp_wr)
            .min(most.max_cqe / 2);
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let options = CqOptions {
            depth: depth * 2,
            channel: Some(&channel),
            ..CqOptions::default()
        };
        let cq = context.create_cq(options)?;
        let options = QpOptions {
            max_send_wr: depth,
            max_recv_wr: depth,
            ..QpOptions::default()
        };
        let qp = pd.create_qp(&cq, &cq, options)?;
        Ok((
            Self {
                pd,
                cq,
                channel,
                depth,
            },
            qp,
        ))
    }

    /// Registers the memory and tells the peer where it is.
    fn join(
        self,
        mut connection: Connection,
        part: LoopKind,
        spec: &Spec,
        conn: &ControlConn,
    ) -> Result<QperfEndpoint> {
        let Self {
            pd,
            cq,
            channel,
            depth,
        } = self;
        let size = if matches!(part, LoopKind::Verify(_)) {
            VERIFIED
        } else {
            spec.msg_size
        };
        let size = usize::try_from(size)
            .map_err(|_| Error::limit("the message is larger than the memory"))?;
        let region = pd.shared(size.next_multiple_of(8), all())?;
        let held = connection.qp_mut().hold(&region)?;
        let mine = region.remote();
        conn.send(
            &Node {
                vaddr: mine.addr,
                rkey: mine.rkey,
                rd_atomic: 1,
                ..Node::default()
            }
            .encode(),
        )?;
        let mut bytes = [0; node::LEN];
        conn.receive(&mut bytes, "where its memory is")?;
        let node = Node::decode(&bytes);
        let remote = RemoteMemory {
            addr: node.vaddr,
            len: spec.msg_size,
            rkey: node.rkey,
        };
        let port = connection
            .qp()
            .pd()
            .context()
            .query_port(connection.port_num())?;
        let link = match (connection.transport(), port.link_layer) {
            (TransportType::IWARP, _) => "iWARP".to_owned(),
            (_, LinkLayer::ETHERNET) => "RoCE".to_owned(),
            (transport, _) => transport.to_string(),
        };
        Ok(QperfEndpoint {
            part,
            connection,
            cq,
            channel,
            region,
            held,
            remote,
            depth,
            link,
        })
    }
}

/// What the peer may do: qperf opens its memory to everything, whatever the test.
fn all() -> AccessFlags {
    AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC
}

/// As qperf connects.
fn params() -> ConnectParams<'static> {
    ConnectParams {
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        ..ConnectParams::default()
    }
}

impl QperfEndpoint {
    /// The server: says a port and takes the client who connects there.
    pub(in crate::rperf::qperf) fn accept(
        conn: &ControlConn,
        spec: &Spec,
        plan: Plan,
        timeout: Duration,
    ) -> Result<Self> {
        let part = super::part(spec.test, plan, spec.flip);
        let everywhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let listener = Listener::bind(everywhere, 1)?;
        conn.send(&u32::from(listener.local_addr().port()).to_le_bytes())?;
        let deadline = Instant::now() + timeout;
        let request = loop {
            if let Some(failure) = conn.failure() {
                return Err(failure);
            }
            if Instant::now() >= deadline {
                return Err(Error::device(format!(
                    "the client did not connect by rdma_cm within {}",
                    show_time(timeout)
                )));
            }
            if let Some(request) = listener.accept(Some(LOOK_EVERY))? {
                break request;
            }
        };
        let context = request.context()?;
        let (parts, qp) = EndpointParts::new(&context, part)?;
        let pending = request.access(all()).with_qp(qp)?;
        let connection = pending.accept(&params(), timeout)?;
        parts.join(connection, part, spec, conn)
    }

    /// The client: connects to the port that the server says.
    pub(in crate::rperf::qperf) fn connect(
        conn: &ControlConn,
        spec: &Spec,
        plan: Plan,
        server: SocketAddr,
    ) -> Result<Self> {
        let part = super::part(spec.test, plan, true);
        let port = u16::try_from(conn.receive_u32("its port")?)
            .map_err(|_| Error::protocol("the server's port is none"))?;
        let timeout = spec.client.timeout;
        let resolver = Resolver::new(ipv4(server, port)?).timeout(timeout);
        let route = resolver.resolve().map_err(|error| no_way(server, &error))?;
        if let Some(id) = spec
            .client
            .id
            .as_ref()
            .filter(|id| id.name != route.device_name())
        {
            let (found, asked) = (route.device_name(), &id.name);
            return Err(Error::device(format!(
                "rdma_cm reaches {server} over {found}, not over {asked}: leave --id (-i) away"
            )));
        }
        let context = route.context()?;
        let (parts, qp) = EndpointParts::new(&context, part)?;
        let ready = route.access(all()).with_qp(qp)?;
        let connection = ready.connect(&params(), timeout)?;
        parts.join(connection, part, spec, conn)
    }

    /// How it is connected, and the peer, for the record.
    pub(in crate::rperf::qperf) fn via(&self, side: &Side) -> (ConnectionInfo, ConnectionInfo) {
        let end = |address: SocketAddr| ConnectionInfo {
            device: self.connection.device_name().to_owned(),
            port: self.connection.port_num(),
            link: self.link.clone(),
            gid_index: None,
            address: address.ip().to_string(),
            cm: true,
            mtu: None,
            port_mtu: None,
            wait: side.wait,
        };
        let here = end(self.connection.local_addr());
        (
            here,
            ConnectionInfo {
                device: "qperf".into(),
                ..end(self.connection.peer_addr())
            },
        )
    }

    /// The client disconnects; both wait until it is done.
    pub(in crate::rperf::qperf) fn wait_disconnected(mut self, client: bool) {
        if client {
            let _ = self.connection.disconnect();
        }
        let deadline = Instant::now() + PARTING;
        while Instant::now() < deadline {
            match self.connection.wait_event(Some(LOOK_EVERY)) {
                Ok(Some(event)) if event.event_type == CmEventType::DISCONNECTED => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// Whether the connection still stands.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.connection.check_event()?.map(|event| event.event_type) {
            Some(CmEventType::DISCONNECTED | CmEventType::DEVICE_REMOVAL) => Err(Error::new(
                Kind::Device,
                "the peer disconnected in the middle of the test",
            )),
            _ => Ok(()),
        }
    }
}
