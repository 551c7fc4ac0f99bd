//! What carries the messages of a test over sockets.

use serde::{Deserialize, Serialize};

use crate::plan::MAX_MESSAGE;

/// The largest message of UDP: 65,535 bytes less the headers of IPv4.
pub const MAX_DATAGRAM: u64 = 65_507;
/// The largest message of RDS.
pub const MAX_RDS: u64 = 1 << 20;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, one association a socket.
    Sctp,
    /// RDS: datagrams that arrive, once and in order.
    Rds,
}

impl Kind {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tcp => "TCP",
            Kind::Udp => "UDP",
            Kind::Sctp => "SCTP",
            Kind::Rds => "RDS",
        }
    }

    /// True where a message is one call, and has borders of its own.
    pub fn is_datagram(self) -> bool {
        matches!(self, Kind::Udp | Kind::Rds)
    }

    /// The largest message.
    pub fn max_message(self) -> u64 {
        match self {
            Kind::Udp => MAX_DATAGRAM,
            Kind::Rds => MAX_RDS,
            Kind::Tcp | Kind::Sctp => MAX_MESSAGE,
        }
    }
}
