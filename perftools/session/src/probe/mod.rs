//! Probes of a path, and the reflectors that answer them.
//!
//! Six timestamps separate the time in the network from the time in the hosts, as in R-Pingmesh
//! (SIGCOMM 2024):
//!
//! ```text
//! prober                                        reflector
//!   1  posts the probe
//!   2  the probe is sent      ─────────────▶    3  the probe arrives
//!   5  the answer arrives     ◀─────────────    4  the answer is sent
//!   6  handles the answer     ◀─────────────       timing: 4 - 3
//! ```
//! The network takes (5 - 2) - (4 - 3), the prober's host (6 - 1) - (5 - 2), and the reflector's
//! host 4 - 3. Only differences of times of one clock are used. The device takes the times 2 to 5
//! if it can, otherwise the kernel (for UDP) or the thread that polls.
//!
//! Probes are datagrams of RDMA. Where these do not exist, which is the case for iWARP and for
//! hosts without RDMA, they are datagrams of UDP from and to the network interface. [`reflector`]
//! is the part of the server, [`datagram_qp`] and [`udp`] send and receive.

pub mod datagram_qp;
pub mod packet;
mod qp_reflector;
pub mod reflector;
pub mod udp;

use std::net::SocketAddr;

use measure::transport::LinkType;
use measure::transport::address::PortAddress;
use serde::{Deserialize, Serialize};

/// A reflector, as described to a prober.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReflectorInfo {
    /// Name of the device and its port, such as `mlx5_0/1`; `host` without RDMA.
    pub name: String,
    /// Number that probes must contain.
    pub key: u64,
    /// Address of the reflector.
    pub address: ReflectorAddress,
}

/// The address of a reflector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReflectorAddress {
    /// A datagram queue pair.
    QueuePair {
        /// Link of the port.
        link: LinkType,
        /// Addresses of the port.
        addresses: Vec<PortAddress>,
        /// LID of the port.
        lid: u16,
        /// Number of the queue pair.
        qpn: u32,
        /// Queue key.
        qkey: u32,
    },
    /// A UDP socket.
    Udp(SocketAddr),
}
