//! One end of the RDMA connection, with its memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::units::show_time;
use host::hardware::Hardware;
use ibverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, CqOptions, Held, LinkLayer,
    ProtectionDomain, QpOptions, QueuePair, Rc, RemoteMemory, SharedRegion, device::TransportType,
};
use measure::engine::Peer;
use measure::spec::connection::ConnectionInfo;
use measure::spec::plan::Plan;
use measure::spec::{Side, Spec};
use rdmacm::{CmEventType, ConnectParams, Connection, Listener, Resolver};

use super::{BANDWIDTH_DEPTH, PING_PONG_DEPTH, QperfLoop, ipv4};
use crate::qperf::control_conn::ControlConn;
use crate::qperf::node::{self, Node};

/// Interval at which a wait checks that the peer is still connected.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Size in bytes of the memory for the results of verified atomics, as in qperf.
const VERIFY_MEMORY: u64 = 64 << 10;
/// Interval between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Time to wait for the peer to disconnect.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A connected end with its memory. As in qperf, one region is used for all messages.
#[derive(Debug)]
pub(in crate::qperf) struct QperfEndpoint {
    pub(super) loop_kind: QperfLoop,
    pub(super) connection: Connection,
    pub(super) cq: CompletionQueue,
    pub(super) channel: CompletionChannel,
    pub(super) region: SharedRegion,
    pub(super) held: Held<SharedRegion>,
    pub(super) remote: RemoteMemory,
    pub(super) depth: u32,
    link: String,
}

/// Objects of an end that is not connected yet.
struct EndpointParts {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    depth: u32,
}

/// Returns the error for a server that rdma_cm cannot reach. With qperf, rdma_cm connects to the
/// address of the control connection.
#[cold]
fn unreachable_error(server: SocketAddr, error: &ibverbs::Error) -> Error {
    Error::device(error.message()).with_help(format!(
        "specify the host by the address of its RDMA interface; qperf uses {} for both connections",
        server.ip().to_canonical()
    ))
}

impl EndpointParts {
    fn new(context: &Context, loop_kind: QperfLoop) -> Result<(Self, QueuePair<Rc>)> {
        let one_in_flight = matches!(
            loop_kind,
            QperfLoop::Ping(_) | QperfLoop::Pong(_) | QperfLoop::Source { one: true, .. }
        );
        let device = context.query_device()?;
        let depth = if one_in_flight {
            PING_PONG_DEPTH
        } else {
            BANDWIDTH_DEPTH
        }
        .min(device.max_qp_wr)
        .min(device.max_cqe / 2);
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let options = CqOptions::new().depth(depth * 2).channel(&channel);
        let cq = context.create_cq(options)?;
        let options = QpOptions::new().max_send_wr(depth).max_recv_wr(depth);
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

    /// Registers the memory and exchanges its address and key with the peer.
    fn into_endpoint(
        self,
        mut connection: Connection,
        loop_kind: QperfLoop,
        spec: &Spec,
        conn: &ControlConn,
    ) -> Result<QperfEndpoint> {
        let Self {
            pd,
            cq,
            channel,
            depth,
        } = self;
        let size = if matches!(loop_kind, QperfLoop::Verify(_)) {
            VERIFY_MEMORY
        } else {
            spec.msg_size
        };
        let size = usize::try_from(size)
            .map_err(|_| Error::limit("the message size exceeds the address space"))?;
        let region = pd.shared(size.next_multiple_of(8), access_flags())?;
        let held = connection.qp_mut().hold(&region)?;
        let local = region.remote();
        conn.send(
            &Node {
                vaddr: local.addr,
                rkey: local.rkey,
                rd_atomic: 1,
                ..Node::default()
            }
            .encode(),
        )?;
        let mut bytes = [0; node::LEN];
        conn.receive(&mut bytes, "the address of its memory")?;
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
            loop_kind,
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

/// Returns the access of the peer to the memory. As in qperf, it is the same for all tests.
fn access_flags() -> AccessFlags {
    AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC
}

/// Returns the connection parameters, which are those of qperf.
fn connect_params() -> ConnectParams<'static> {
    ConnectParams::new()
        .responder_resources(1)
        .initiator_depth(1)
        .retry_count(7)
}

impl QperfEndpoint {
    /// Accepts a client: sends it the port of a listener and waits for its connection.
    pub(in crate::qperf) fn accept(
        conn: &ControlConn,
        spec: &Spec,
        plan: Plan,
        timeout: Duration,
    ) -> Result<Self> {
        let loop_kind = super::loop_kind(spec.test, plan, spec.flip);
        let any_address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let listener = Listener::bind(any_address, 1)?;
        conn.send(&u32::from(listener.local_addr().port()).to_le_bytes())?;
        let deadline = Instant::now() + timeout;
        let request = loop {
            if let Some(failure) = conn.failure() {
                return Err(failure);
            }
            if Instant::now() >= deadline {
                return Err(Error::device(format!(
                    "the client did not connect with rdma_cm within {}",
                    show_time(timeout)
                )));
            }
            if let Some(request) = listener.next_request(Some(CHECK_INTERVAL))? {
                break request;
            }
        };
        let context = request.context()?;
        let (parts, qp) = EndpointParts::new(&context, loop_kind)?;
        let pending = request.access(access_flags()).with_qp(qp)?;
        let connection = pending.accept(&connect_params(), timeout)?;
        parts.into_endpoint(connection, loop_kind, spec, conn)
    }

    /// Connects to a server: receives the port of its listener and connects to it.
    pub(in crate::qperf) fn connect(
        conn: &ControlConn,
        spec: &Spec,
        plan: Plan,
        server: SocketAddr,
    ) -> Result<Self> {
        let loop_kind = super::loop_kind(spec.test, plan, true);
        let port = u16::try_from(conn.receive_u32("the port for rdma_cm")?)
            .map_err(|_| Error::protocol("the server sent an invalid port number"))?;
        let deadline = Instant::now() + spec.client.timeout;
        loop {
            match Self::connect_to(conn, spec, loop_kind, server, port)? {
                Ok(endpoint) => return Ok(endpoint),
                // A qperf server sends its port before it listens on it.
                Err(rejected) => {
                    if let Some(failure) = conn.failure() {
                        return Err(failure);
                    }
                    if Instant::now() >= deadline {
                        return Err(rejected);
                    }
                    std::thread::sleep(RETRY_INTERVAL);
                }
            }
        }
    }

    /// Connects to a port of the server. The inner error is a rejection.
    fn connect_to(
        conn: &ControlConn,
        spec: &Spec,
        loop_kind: QperfLoop,
        server: SocketAddr,
        port: u16,
    ) -> Result<Result<Self>> {
        let timeout = spec.client.timeout;
        let resolver = Resolver::new(ipv4(server, port)?).timeout(timeout);
        let route = resolver
            .resolve()
            .map_err(|error| unreachable_error(server, &error))?;
        if let Some(id) = spec
            .client
            .id
            .as_ref()
            .filter(|id| id.name != route.device_name())
        {
            let (found, requested) = (route.device_name(), &id.name);
            return Err(Error::device(format!(
                "rdma_cm reaches {server} over {found}, not over {requested}"
            ))
            .with_help("omit --id (-i)"));
        }
        let context = route.context()?;
        let (parts, qp) = EndpointParts::new(&context, loop_kind)?;
        let ready = route.access(access_flags()).with_qp(qp)?;
        match ready.connect(&connect_params(), timeout) {
            Ok(connection) => parts
                .into_endpoint(connection, loop_kind, spec, conn)
                .map(Ok),
            Err(error) if error.rejection().is_some() => Ok(Err(error.into())),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the descriptions of this end and of the peer for the record.
    pub(in crate::qperf) fn connection_infos(
        &self,
        side: &Side,
    ) -> (ConnectionInfo, ConnectionInfo) {
        let info = |address: SocketAddr| ConnectionInfo {
            device: self.connection.device_name().to_owned(),
            port: self.connection.port_num(),
            link: self.link.clone(),
            gid_index: None,
            address: address.ip().to_string(),
            cm: true,
            mtu: None,
            port_mtu: None,
            memory: None,
            hardware: Hardware::default(),
            wait: side.wait,
        };
        let local = info(self.connection.local_addr());
        (
            local,
            ConnectionInfo {
                device: "qperf".into(),
                ..info(self.connection.peer_addr())
            },
        )
    }

    /// Waits until the connection is closed. The client disconnects first.
    pub(in crate::qperf) fn wait_disconnected(mut self, client: bool) {
        if client {
            let _ = self.connection.disconnect();
        }
        let deadline = Instant::now() + DISCONNECT_TIMEOUT;
        while Instant::now() < deadline {
            match self.connection.wait_event(Some(CHECK_INTERVAL)) {
                Ok(Some(event)) if event.event_type == CmEventType::DISCONNECTED => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// Checks that the peer has not disconnected and the device has not been removed.
    pub(super) fn check_connected(&mut self) -> Result<()> {
        match self.connection.try_event()?.map(|event| event.event_type) {
            Some(CmEventType::DISCONNECTED | CmEventType::DEVICE_REMOVAL) => Err(Error::new(
                Kind::Device,
                "the peer disconnected in the middle of the test",
            )),
            _ => Ok(()),
        }
    }
}
