//! Reliable connections with rdma_cm.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::ports;
use ibverbs::{AccessFlags, Qkey, QueuePair, Rc};
use rdmacm::{CmEventType, ConnectParams, ListenOptions, Listener, Resolver};

use host::tcp::TcpConnection;

use crate::data_key::DataKey;

/// Interval at which a waiting server checks that its client is still connected.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of source ports that a connection tries.
const MAX_PORTS: u32 = 16;

/// An rdma_cm connection with its queue pair.
#[derive(Debug)]
pub struct CmConnection(rdmacm::Connection);

impl CmConnection {
    /// Returns the queue pair.
    #[inline]
    pub(crate) fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        self.0.qp_mut()
    }

    /// Returns the ends of the TCP connection below, on iWARP.
    pub(crate) fn tcp_connection(&self) -> TcpConnection {
        TcpConnection {
            local: self.0.local_addr(),
            peer: self.0.peer_addr(),
        }
    }

    /// Checks that the connection is established.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.0.try_event()?.map(|event| event.event_type) {
            Some(CmEventType::DISCONNECTED) => {
                Err(Error::device("the peer disconnected during the test"))
            }
            Some(CmEventType::DEVICE_REMOVAL) => {
                Err(Error::device("the device was removed during the test"))
            }
            _ => Ok(()),
        }
    }
}

/// A listener for the connections of one client.
#[derive(Debug)]
pub struct CmListener {
    listener: Listener,
    key: DataKey,
    settings: CmSettings,
}

impl CmListener {
    /// Listens on an address of a device for connections with `key`.
    pub(crate) fn new(address: SocketAddr, key: DataKey, settings: CmSettings) -> Result<Self> {
        let mut options = ListenOptions::new().backlog(8);
        if settings.type_of_service != 0 {
            options = options.type_of_service(settings.type_of_service);
        }
        if let Some(timeout) = settings.ack_timeout {
            options = options.ack_timeout(timeout);
        }
        let listener = options.bind(address)?;
        Ok(Self {
            listener,
            key,
            settings,
        })
    }

    /// Returns the port, which the system chose.
    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().port()
    }

    /// Waits for the client's connections and accepts them with `qps`, which belong to `device`.
    /// Each is created when its connection is expected. Other connections are rejected.
    pub(crate) fn accept(
        self,
        qps: impl ExactSizeIterator<Item = Result<QueuePair<Rc>>>,
        device: &str,
        access: AccessFlags,
        timeout: Duration,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Vec<CmConnection>> {
        let count = qps.len();
        let mut connections = Vec::new();
        for (index, qp) in (0_u32..).zip(qps) {
            let accepted = qp.and_then(|qp| {
                let deadline = Instant::now() + timeout;
                let id = request_id(self.key, index);
                self.accept_one(qp, &id, device, access, deadline, is_gone)
            });
            connections.push(accepted.map_err(|error| of_several(error, index, count))?);
        }
        Ok(connections)
    }

    fn accept_one(
        &self,
        qp: QueuePair<Rc>,
        request_id: &[u8],
        device: &str,
        access: AccessFlags,
        deadline: Instant,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<CmConnection> {
        loop {
            if is_gone() {
                return Err(Error::new(
                    Kind::Gone,
                    "the client disconnected before it connected by rdma_cm",
                ));
            }
            if Instant::now() >= deadline {
                return Err(connect_timeout(self.listener.local_addr()));
            }
            let Some(request) = self.listener.next_request(Some(CHECK_INTERVAL))? else {
                continue;
            };
            // RoCE pads the private data with zeros. Dropping a request rejects it.
            if !request.private_data().starts_with(request_id) || request.device_name() != device {
                continue;
            }
            let pending = request.access(access).with_qp(qp)?;
            let remaining = deadline
                .saturating_duration_since(Instant::now())
                .max(CHECK_INTERVAL);
            let reply = self.key.server_bytes();
            let accepted = pending.accept(&params(self.settings, &reply), remaining);
            return accepted.map(CmConnection).map_err(Error::from);
        }
    }
}

/// Returns the connection parameters of both ends.
fn params(settings: CmSettings, private_data: &[u8]) -> ConnectParams<'_> {
    let params = ConnectParams::new()
        .private_data(private_data)
        .initiator_depth(settings.rd_atomic)
        .responder_resources(settings.rd_atomic);
    match settings.retry_count {
        Some(count) => params.retry_count(count),
        None => params,
    }
}

/// Adds the number of the connection that failed, if there are several.
pub(super) fn of_several(error: Error, index: u32, count: usize) -> Error {
    if count < 2 || error.kind() == Kind::Gone {
        return error;
    }
    error.context(format!("connection {} of {count}", index + 1))
}

/// Returns the error of a server to which the client did not connect.
pub(super) fn connect_timeout(address: SocketAddr) -> Error {
    Error::device(format!(
        "the client did not connect to {address} by rdma_cm in time"
    ))
    .with_help("check that the client can reach this address, or set --timeout (-to) higher")
}

/// Settings of the connections that rdma_cm lets the program choose.
#[derive(Clone, Copy, Debug)]
pub struct CmSettings {
    /// Maximum number of RDMA reads and atomics in flight.
    pub rd_atomic: u8,
    /// Type of service; 0 if none is set.
    pub type_of_service: u8,
    /// Acknowledgement timeout of the queue pairs; none: the choice of the kernel.
    pub ack_timeout: Option<u8>,
    /// Number of retries without an acknowledgement; none: the default.
    pub retry_count: Option<u8>,
}

impl CmSettings {
    /// Returns the resolver with these settings.
    pub(super) fn apply(self, mut resolver: Resolver) -> Resolver {
        if self.type_of_service != 0 {
            resolver = resolver.type_of_service(self.type_of_service);
        }
        match self.ack_timeout {
            Some(timeout) => resolver.ack_timeout(timeout),
            None => resolver,
        }
    }
}

/// Parameters of a client's connections.
#[derive(Clone, Copy, Debug)]
pub struct CmTarget {
    /// Address of the client, with port 0.
    pub source: SocketAddr,
    /// Address of the server.
    pub server: SocketAddr,
    /// Key of the connections.
    pub key: DataKey,
    /// Q_Key of datagrams.
    pub qkey: Qkey,
    /// Settings of the connections.
    pub settings: CmSettings,
}

/// Returns the start of the private data of the client's request for queue pair `index`. The server
/// accepts the requests in this order.
pub(super) fn request_id(key: DataKey, index: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&key.client_bytes());
    bytes[8..].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// Connects a queue pair of `device` from `create_qp` as connection number `index` to the server.
///
/// On Soft-iWARP, rdma_cm selects a source port without a look at the TCP sockets of this host. If
/// one of them has the port, the queue pair is lost, and another one gets another port.
pub(crate) fn connect(
    create_qp: impl Fn() -> Result<QueuePair<Rc>>,
    device: &str,
    target: &CmTarget,
    index: u32,
    access: AccessFlags,
    timeout: Duration,
) -> Result<CmConnection> {
    let CmTarget {
        source,
        server,
        key,
        settings,
        ..
    } = *target;
    let private_data = request_id(key, index);
    let mut ports_left = MAX_PORTS;
    loop {
        let resolver = Resolver::new(server).source_addr(source).timeout(timeout);
        let route = settings.apply(resolver).resolve()?;
        if route.device_name() != device {
            return Err(wrong_device(target, route.device_name(), device));
        }
        let ready = route.access(access).with_qp(create_qp()?)?;
        ports_left -= 1;
        match ready.connect(&params(settings, &private_data), timeout) {
            Ok(connection) => {
                key.check_server(connection.private_data())?;
                return Ok(CmConnection(connection));
            }
            Err(error) if ports_left > 0 && ports::is_taken(error.error()) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the error of a client whose route to the server uses the device `found` instead of
/// `expected`.
pub(super) fn wrong_device(target: &CmTarget, found: &str, expected: &str) -> Error {
    Error::device(format!(
        "rdma_cm reaches {} from {} over {found}, not over {expected}",
        target.server,
        target.source.ip()
    ))
    .with_help(format!("select the device with --id (-i) {found}"))
}
