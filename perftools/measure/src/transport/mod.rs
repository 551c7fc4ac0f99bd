//! RDMA connections: from a checked specification to connected queue pairs.
//!
//! The setup has four steps, which the crate `session` drives: the client sends its
//! addresses ([`ClientInfo`]), the server sends an [`Offer`], the client replies with its
//! [`ClientEndpoints`], and both connect. [`Backend`] is the trait for these steps; [`verbs`]
//! implements it with RDMA, and the tests of the sessions with a fake.

pub mod address;
pub mod client;
pub mod cm;
pub mod cm_datagrams;
mod connecting;
pub mod data_path;
pub mod dc;
pub mod device;
mod endpoint;
mod gpu;
mod host_memory;
mod multicast;
mod path_checks;
pub mod server;
pub mod verbs;
pub mod xrc;

use std::net::IpAddr;
use std::time::Duration;

use base::error::Result;
use serde::{Deserialize, Serialize};

use crate::data_key::{DataKey, DatagramKey};
use crate::engine::DataPath;
use crate::spec::connection::ConnectionInfo;
use crate::spec::plan::Plan;
use crate::spec::{Shape, Spec};
use address::PortAddress;

/// Link layer and protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkType {
    /// InfiniBand.
    InfiniBand,
    /// RDMA over Converged Ethernet.
    Roce,
    /// iWARP.
    Iwarp,
    /// Elastic Fabric Adapter of Amazon.
    Efa,
}

impl std::fmt::Display for LinkType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkType::InfiniBand => "InfiniBand",
            LinkType::Roce => "RoCE",
            LinkType::Iwarp => "iWARP",
            LinkType::Efa => "EFA",
        })
    }
}

/// IP addresses of the control connection.
#[derive(Clone, Copy, Debug)]
pub struct ControlAddrs {
    /// Address of this end.
    pub local: IpAddr,
    /// Address of the peer.
    pub peer: IpAddr,
}

/// The client's device and its view of the test, as sent to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// Link of the port.
    pub link: LinkType,
    /// Addresses of the port.
    pub addresses: Vec<PortAddress>,
    /// Active MTU of the port in bytes.
    pub mtu: u32,
    /// Depth that the device supports.
    pub depth: u32,
    /// The plan of the test on this device.
    pub plan: Plan,
}

/// One end of a connection, as sent over the control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpEndpoint {
    /// Queue pair number.
    pub qpn: u32,
    /// Initial packet sequence number.
    pub psn: u32,
    /// LID of the port.
    pub lid: u16,
    /// GID of the port, as an IPv6 address.
    pub gid: String,
    /// Maximum number of RDMA reads and atomics in flight that it responds to.
    pub rd_atomic: u8,
    /// Receiving half of an XRC connection. `qpn` is then the sending half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xrc: Option<xrc::XrcReceiver>,
    /// Targets of the dynamically connected transport. `qpn` is then the initiator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dc: Vec<dc::DcReceiver>,
}

/// The method of connecting, chosen by the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectMethod {
    /// Each end modifies its queue pairs with the data from the control connection.
    Direct(Vec<QpEndpoint>),
    /// rdma_cm connects the queue pairs.
    Cm {
        /// Address on which the server listens.
        address: IpAddr,
        /// Port on which the server listens.
        port: u16,
        /// Key of the connections. A connect request begins with the number of the client; the
        /// index of the queue pair follows. The reply begins with the number of the server.
        key: DataKey,
    },
}

/// The server's reply to a [`ClientInfo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Depth of both ends.
    pub depth: u32,
    /// Path MTU of both ends in bytes.
    pub mtu: u32,
    /// Index of the client's address that can reach the server.
    pub client_address: usize,
    /// Method of connecting.
    pub method: ConnectMethod,
    /// Numbers that the messages of the test carry.
    pub datagrams: DatagramKey,
    /// Multicast group that the client sends to, if the test has several receivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<IpAddr>,
    /// Path of the server, for the report.
    pub via: ConnectionInfo,
}

/// The client's reply to an [`Offer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientEndpoints {
    /// Queue pairs of the client; empty if rdma_cm connects them.
    pub ends: Vec<QpEndpoint>,
}

/// A connected end.
#[derive(Debug)]
pub struct ConnectedEndpoint<W> {
    /// The data path of each thread. No receives are posted yet.
    pub data_paths: Vec<W>,
    /// Path of this end, for the report.
    pub via: ConnectionInfo,
    /// Parameters of the test that both ends agreed on.
    pub shape: Shape,
}

/// A way to connect the two ends of a test.
pub trait Backend: Sync {
    /// The connected queue pairs of one thread.
    type DataPath: DataPath + Send;
    /// A client that is not connected yet.
    type Client: ClientSetup<DataPath = Self::DataPath>;
    /// A server that is not connected yet.
    type Server: ServerSetup<DataPath = Self::DataPath>;

    /// Opens the client's device and prepares its end.
    fn client(&self, spec: &Spec, addrs: ControlAddrs) -> Result<(Self::Client, ClientInfo)>;

    /// Opens the server's device and prepares its end for a client.
    fn server(
        &self,
        spec: &Spec,
        client: &ClientInfo,
        addrs: ControlAddrs,
    ) -> Result<(Self::Server, Offer)>;
}

/// A client that is not connected yet.
pub trait ClientSetup {
    /// The connected queue pairs of one thread.
    type DataPath: DataPath + Send;

    /// Creates the queue pairs for the server's offer.
    fn accept_offer(&mut self, offer: &Offer) -> Result<ClientEndpoints>;

    /// Connects to the server.
    fn connect(self, offer: &Offer, timeout: Duration)
    -> Result<ConnectedEndpoint<Self::DataPath>>;
}

/// A server that is not connected yet.
pub trait ServerSetup {
    /// The connected queue pairs of one thread.
    type DataPath: DataPath + Send;

    /// Connects to the client.
    fn accept(
        self,
        client: &ClientEndpoints,
        timeout: Duration,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<ConnectedEndpoint<Self::DataPath>>;
}
