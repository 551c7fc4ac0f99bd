//! The protocols of tests over sockets.

use serde::{Deserialize, Serialize};

use super::plan::MAX_MESSAGE;

/// Maximum message size of UDP: 65,535 bytes minus the IPv4 and UDP headers.
pub const MAX_DATAGRAM: u64 = 65_507;
/// Maximum message size of RDS.
pub(crate) const MAX_RDS: u64 = 1 << 20;

/// The protocol of a test over sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketKind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, with one association per socket.
    Sctp,
    /// RDS: reliable datagrams in order.
    Rds,
}

impl SocketKind {
    /// Returns the name for output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SocketKind::Tcp => "TCP",
            SocketKind::Udp => "UDP",
            SocketKind::Sctp => "SCTP",
            SocketKind::Rds => "RDS",
        }
    }

    /// Returns `true` if the protocol keeps message boundaries, with one system call per message.
    pub fn is_datagram(self) -> bool {
        matches!(self, SocketKind::Udp | SocketKind::Rds)
    }

    /// Returns the maximum message size in bytes.
    pub(crate) fn max_message(self) -> u64 {
        match self {
            SocketKind::Udp => MAX_DATAGRAM,
            SocketKind::Rds => MAX_RDS,
            SocketKind::Tcp | SocketKind::Sctp => MAX_MESSAGE,
        }
    }
}
