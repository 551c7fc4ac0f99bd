//! Connecting by rdma_cm.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ibverbs::{QueuePair, Rc};
use rdmacm::{CmEventType, ConnectParams, Listener, Resolver};

use crate::common::error::{Error, Kind, Result};
use crate::rperf::spec::plan::Verb;

/// How often a server that waits for its client looks whether the client is still there.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A connection of rdma_cm with its queue pair.
#[derive(Debug)]
pub struct Connection(rdmacm::Connection);

impl Connection {
    /// Its queue pair.
    #[inline]
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        self.0.qp_mut()
    }

    /// Whether it still stands.
    ///
    /// # Errors
    /// The peer has disconnected, or the device is gone.
    pub fn check(&mut self) -> Result<()> {
        match self.0.check_event()?.map(|event| event.event_type) {
            Some(CmEventType::DISCONNECTED) => Err(Error::device(
                "the peer disconnected in the middle of the test",
            )),
            Some(CmEventType::DEVICE_REMOVAL) => Err(Error::device(
                "the device was removed in the middle of the test",
            )),
            _ => Ok(()),
        }
    }
}

/// A place where one client is awaited.
#[derive(Debug)]
pub struct CmListener {
    listener: Listener,
    token: u64,
    rd_atomic: u8,
}

impl CmListener {
    /// Listens on an address of a device; the client has to say `token`. So many RDMA reads and
    /// atomics are in flight at most.
    ///
    /// # Errors
    /// The address belongs to no RDMA device, or rdma_cm is not there.
    pub fn new(address: IpAddr, token: u64, rd_atomic: u8) -> Result<Self> {
        let listener = Listener::bind(SocketAddr::new(address, 0), 8)?;
        Ok(Self {
            listener,
            token,
            rd_atomic,
        })
    }

    /// The port that the system chose.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().port()
    }

    /// Waits for the client's connections and takes them with `qps`, which are of `device`. Anyone
    /// else is turned away.
    ///
    /// # Errors
    /// The client does not come in time, or is `gone`.
    pub fn accept(
        self,
        qps: Vec<QueuePair<Rc>>,
        device: &str,
        verb: Verb,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Vec<Connection>> {
        let deadline = Instant::now() + timeout;
        let mut connections = Vec::new();
        for (index, qp) in (0_u32..).zip(qps) {
            connections.push(self.accept_one(
                qp,
                &hello(self.token, index),
                device,
                verb,
                deadline,
                gone,
            )?);
        }
        Ok(connections)
    }

    fn accept_one(
        &self,
        qp: QueuePair<Rc>,
        hello: &[u8],
        device: &str,
        verb: Verb,
        deadline: Instant,
        gone: &dyn Fn() -> bool,
    ) -> Result<Connection> {
        loop {
            if gone() {
                return Err(Error::new(
                    Kind::Gone,
                    "the client went away before it connected",
                ));
            }
            if Instant::now() >= deadline {
                return Err(not_in_time(self.listener.local_addr()));
            }
            let Some(request) = self.listener.accept(Some(LOOK_EVERY))? else {
                continue;
            };
            // RoCE pads what the client said with zeros. Dropping a request rejects it.
            if !request.private_data().starts_with(hello) || request.device_name() != device {
                continue;
            }
            let pending = request.access(verb.remote_access()).with_qp(qp)?;
            let left = deadline
                .saturating_duration_since(Instant::now())
                .max(LOOK_EVERY);
            let accepted = pending.accept(&params(self.rd_atomic, &[]), left);
            return accepted.map(Connection).map_err(Error::from);
        }
    }
}

/// How both ends connect.
fn params(rd_atomic: u8, private_data: &[u8]) -> ConnectParams<'_> {
    ConnectParams {
        private_data,
        initiator_depth: rd_atomic,
        responder_resources: rd_atomic,
        ..ConnectParams::default()
    }
}

/// The error of a server whose client does not come to this address.
pub(super) fn not_in_time(address: SocketAddr) -> Error {
    Error::device(format!(
        "the client did not connect by rdma_cm in time: can it reach {address}? --timeout (-to) sets how long to wait"
    ))
}

/// Where a client connects to.
#[derive(Clone, Copy, Debug)]
pub struct CmTarget {
    /// The client's own address.
    pub source: IpAddr,
    /// The server's.
    pub server: SocketAddr,
    /// What the server waits for.
    pub token: u64,
    /// RDMA reads and atomics in flight at most.
    pub rd_atomic: u8,
}

/// What the client says with its connection number `index`: they are taken in this order.
pub(super) fn hello(token: u64, index: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&token.to_be_bytes());
    bytes[8..].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// Connects `qp`, which is of `device`, as number `index` of those that the server waits for.
///
/// # Errors
/// No route, nobody there, or the server turned it away.
pub fn connect(
    qp: QueuePair<Rc>,
    device: &str,
    target: &CmTarget,
    index: u32,
    verb: Verb,
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
        return Err(Error::device(format!(
            "rdma_cm reaches {server} from {source} over {}, not over {device}: give --id (-i) {}",
            route.device_name(),
            route.device_name()
        )));
    }
    let private_data = hello(token, index);
    let ready = route.access(verb.remote_access()).with_qp(qp)?;
    ready
        .connect(&params(rd_atomic, &private_data), timeout)
        .map(Connection)
        .map_err(Error::from)
}
