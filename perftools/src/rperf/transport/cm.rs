//! Reliable connections with rdma_cm.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ibverbs::{AccessFlags, QueuePair, Rc};
use rdmacm::{CmEventType, ConnectParams, Listener, Resolver};

use crate::common::error::{Error, Kind, Result};

/// Interval at which a waiting server checks that its client is still connected.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// An rdma_cm connection with its queue pair.
#[derive(Debug)]
pub struct Connection(rdmacm::Connection);

impl Connection {
    /// Returns the queue pair.
    #[inline]
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        self.0.qp_mut()
    }

    /// Checks that the connection is established.
    ///
    /// # Errors
    /// Returns an error if the peer has disconnected or the device was removed.
    pub fn check(&mut self) -> Result<()> {
        match self.0.check_event()?.map(|event| event.event_type) {
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
    token: u64,
    rd_atomic: u8,
}

impl CmListener {
    /// Listens on an address of a device for connections with `token`. At most `rd_atomic` RDMA
    /// reads and atomics will be in flight.
    ///
    /// # Errors
    /// Returns an error if the address belongs to no RDMA device or rdma_cm is not available.
    pub fn new(address: IpAddr, token: u64, rd_atomic: u8) -> Result<Self> {
        let listener = Listener::bind(SocketAddr::new(address, 0), 8)?;
        Ok(Self {
            listener,
            token,
            rd_atomic,
        })
    }

    /// Returns the port, which the system chose.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().port()
    }

    /// Waits for the client's connections and accepts them with `qps`, which belong to `device`.
    /// Other connections are rejected.
    ///
    /// # Errors
    /// Returns an error if the client does not connect within `timeout`, or if `is_gone` returns
    /// `true` before that.
    pub fn accept(
        self,
        qps: Vec<QueuePair<Rc>>,
        device: &str,
        access: AccessFlags,
        timeout: Duration,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Vec<Connection>> {
        let deadline = Instant::now() + timeout;
        let mut connections = Vec::new();
        for (index, qp) in (0_u32..).zip(qps) {
            connections.push(self.accept_one(
                qp,
                &request_id(self.token, index),
                device,
                access,
                deadline,
                is_gone,
            )?);
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
    ) -> Result<Connection> {
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
            let Some(request) = self.listener.accept(Some(CHECK_INTERVAL))? else {
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
            let accepted = pending.accept(&params(self.rd_atomic, &[]), remaining);
            return accepted.map(Connection).map_err(Error::from);
        }
    }
}

/// Returns the connection parameters of both ends.
fn params(rd_atomic: u8, private_data: &[u8]) -> ConnectParams<'_> {
    ConnectParams::new()
        .private_data(private_data)
        .initiator_depth(rd_atomic)
        .responder_resources(rd_atomic)
}

/// Returns the error of a server to which the client did not connect.
pub(super) fn connect_timeout(address: SocketAddr) -> Error {
    Error::device(format!(
        "the client did not connect to {address} by rdma_cm in time"
    ))
    .with_help("check that the client can reach this address, or set --timeout (-to) higher")
}

/// Parameters of a client's connections.
#[derive(Clone, Copy, Debug)]
pub struct CmTarget {
    /// Address of the client.
    pub source: IpAddr,
    /// Address of the server.
    pub server: SocketAddr,
    /// Token that the server expects.
    pub token: u64,
    /// Maximum number of RDMA reads and atomics in flight.
    pub rd_atomic: u8,
}

/// Returns the start of the private data of the client's request for queue pair `index`. The server
/// accepts the requests in this order.
pub(super) fn request_id(token: u64, index: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&token.to_be_bytes());
    bytes[8..].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// Connects `qp`, which belongs to `device`, as connection number `index` to the server.
///
/// # Errors
/// Returns an error if there is no route to the server, it does not listen, or it rejects the
/// connection.
pub fn connect(
    qp: QueuePair<Rc>,
    device: &str,
    target: &CmTarget,
    index: u32,
    access: AccessFlags,
    timeout: Duration,
) -> Result<Connection> {
    let CmTarget {
        source,
        server,
        token,
        rd_atomic,
    } = *target;
    let route = Resolver::new(server)
        .source(source)
        .timeout(timeout)
        .resolve()?;
    if route.device_name() != device {
        return Err(wrong_device(target, route.device_name(), device));
    }
    let private_data = request_id(token, index);
    let ready = route.access(access).with_qp(qp)?;
    ready
        .connect(&params(rd_atomic, &private_data), timeout)
        .map(Connection)
        .map_err(Error::from)
}

/// Returns the error of a client whose route to the server uses the device `found` instead of
/// `expected`.
pub(super) fn wrong_device(target: &CmTarget, found: &str, expected: &str) -> Error {
    Error::device(format!(
        "rdma_cm reaches {} from {} over {found}, not over {expected}",
        target.server, target.source
    ))
    .with_help(format!("select the device with --id (-i) {found}"))
}
