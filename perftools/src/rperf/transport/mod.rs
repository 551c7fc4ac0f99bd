//! RDMA connections: from a checked specification to connected queue pairs.
//!
//! The setup has four steps, in step with [`control`](crate::rperf::control): the client sends its
//! addresses ([`ClientInfo`]), the server sends an [`Offer`], the client replies with its
//! [`ClientEndpoints`], and both connect. [`Backend`] is the trait for that; [`verbs`] implements
//! it with RDMA, the tests of `control` with a fake.

pub mod address;
pub mod client;
pub mod cm;
mod cm_datagrams;
mod connecting;
pub mod device;
mod endpoint;
mod host_memory;
mod multicast;
mod path_checks;
pub mod server;
pub mod verbs;
pub mod wire;
pub mod xrc;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::common::error::Result;
use crate::rperf::engine::Wire;
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::plan::Plan;
use crate::rperf::spec::{Shape, Spec};
use address::PortAddress;

/// What carries the packets of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkType {
    /// InfiniBand.
    InfiniBand,
    /// RDMA over Converged Ethernet.
    Roce,
    /// iWARP.
    Iwarp,
}

impl std::fmt::Display for LinkType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkType::InfiniBand => "InfiniBand",
            LinkType::Roce => "RoCE",
            LinkType::Iwarp => "iWARP",
        })
    }
}

/// The addresses of the control connection, as an end sees them.
#[derive(Clone, Copy, Debug)]
pub struct ControlAddrs {
    /// This end's.
    pub local: IpAddr,
    /// The peer's.
    pub peer: IpAddr,
}

/// What the client has to offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// Its port's link.
    pub link: LinkType,
    /// Its port's addresses.
    pub addresses: Vec<PortAddress>,
    /// Its port's active MTU.
    pub mtu: u32,
    /// The depth that fits its device.
    pub depth: u32,
    /// What the test comes to on its device.
    pub plan: Plan,
}

/// A queue pair's end, in the form that crosses the control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpEndpoint {
    /// Queue pair number.
    pub qpn: u32,
    /// First packet sequence number.
    pub psn: u32,
    /// LID of the port.
    pub lid: u16,
    /// GID of the port, as an IPv6 address.
    pub gid: String,
    /// RDMA reads and atomics that it serves at once.
    pub rd_atomic: u8,
    /// Of an extended reliable connection, where the number above is that of its sending half: the
    /// rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xrc: Option<xrc::XrcReceiver>,
}

/// How the server wants to be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectMethod {
    /// By modifying the queue pairs, with what the control connection carries.
    Direct(Vec<QpEndpoint>),
    /// By rdma_cm.
    Cm {
        /// Where the server listens.
        address: IpAddr,
        /// The port there.
        port: u16,
        /// What the connect request has to carry, before the number of the queue pair.
        token: u64,
    },
}

/// What the server makes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The depth for both ends.
    pub depth: u32,
    /// The path MTU for both ends.
    pub mtu: u32,
    /// Which of the client's addresses reaches the server's.
    pub client_address: usize,
    /// How to connect.
    pub method: ConnectMethod,
    /// The group that the client sends to, where it has several receivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<IpAddr>,
    /// The server's path, for the report.
    pub via: ConnectionInfo,
}

/// The client's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientEndpoints {
    /// The client's queue pairs, unless rdma_cm carries that.
    pub ends: Vec<QpEndpoint>,
}

/// A connected end.
#[derive(Debug)]
pub struct ConnectedEndpoint<W> {
    /// The wire of each thread; no receives are posted yet.
    pub wires: Vec<W>,
    /// Its path.
    pub via: ConnectionInfo,
    /// What both ends agreed on.
    pub shape: Shape,
}

/// A way to move data between two ends.
pub trait Backend: Sync {
    /// A connected end.
    type Wire: Wire + Send;
    /// A client that is setting up.
    type Client: ClientSetup<Wire = Self::Wire>;
    /// A server that has offered.
    type Server: ServerSetup<Wire = Self::Wire>;

    /// Prepares the client's end.
    ///
    /// # Errors
    /// No such device, its port is down, the test does not fit it.
    fn client(&self, spec: &Spec, hosts: ControlAddrs) -> Result<(Self::Client, ClientInfo)>;

    /// Prepares the server's end for what a client asks.
    ///
    /// # Errors
    /// As for the client; or the two ends cannot reach each other.
    fn server(
        &self,
        spec: &Spec,
        ask: &ClientInfo,
        hosts: ControlAddrs,
    ) -> Result<(Self::Server, Offer)>;
}

/// A client that is setting up.
pub trait ClientSetup {
    /// What comes out.
    type Wire: Wire + Send;

    /// Takes the offer up.
    ///
    /// # Errors
    /// The offer does not fit, or the device refuses.
    fn answer(&mut self, offer: &Offer) -> Result<ClientEndpoints>;

    /// Connects.
    ///
    /// # Errors
    /// The server cannot be reached.
    fn connect(self, offer: &Offer, timeout: Duration) -> Result<ConnectedEndpoint<Self::Wire>>;
}

/// A server that has offered.
pub trait ServerSetup {
    /// What comes out.
    type Wire: Wire + Send;

    /// Connects to the client that answered; gives up after `timeout`, or when `gone` says that the
    /// client is.
    ///
    /// # Errors
    /// The client does not come.
    fn accept(
        self,
        answer: &ClientEndpoints,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<ConnectedEndpoint<Self::Wire>>;
}
