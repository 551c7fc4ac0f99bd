//! What carries the messages of a test over sockets.

use serde::{Deserialize, Serialize};

use super::plan::MAX_MESSAGE;

/// The largest message of UDP: 65,535 bytes less the headers of IPv4.
pub const MAX_DATAGRAM: u64 = 65_507;
/// The largest message of RDS.
pub const MAX_RDS: u64 = 1 << 20;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketKind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, one association a socket.
    Sctp,
    /// RDS: datagrams that arrive, once and in order.
    Rds,
}

impl SocketKind {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            SocketKind::Tcp => "TCP",
            SocketKind::Udp => "UDP",
            SocketKind::Sctp => "SCTP",
            SocketKind::Rds => "RDS",
        }
    }

    /// True where a message is one call, and has borders of its own.
    pub fn is_datagram(self) -> bool {
        matches!(self, SocketKind::Udp | SocketKind::Rds)
    }

    /// The largest message.
    pub fn max_message(self) -> u64 {
        match self {
            SocketKind::Udp => MAX_DATAGRAM,
            SocketKind::Rds => MAX_RDS,
            SocketKind::Tcp | SocketKind::Sctp => MAX_MESSAGE,
        }
    }
}
