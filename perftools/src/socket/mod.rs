//! Tests over sockets: TCP, UDP, SCTP and RDS, with the same figures as over RDMA.
//!
//! [`open`] makes the sockets of a [`Kind`], [`mod@line`] carries messages over them, [`run`] is the loop that is timed,
//! [`ends`] puts them together for a [`Spec`](crate::config::Spec). Messages of TCP have no borders, so a message is as
//! many bytes as the specification says; UDP loses messages, which the figures show.

pub mod ends;
pub mod line;
pub mod open;
pub mod run;

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Limit;

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
            Kind::Tcp | Kind::Sctp => crate::config::MAX_MESSAGE,
        }
    }
}

/// How both ends know that the test is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// They tell each other; whatever is under way arrives first.
    Told,
    /// Each by its own clock, as qperf does.
    Clock,
}

/// The numbers that a loop runs by.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes a message.
    pub size: usize,
    /// When the clock stops.
    pub limit: Limit,
    /// Every message differs, and each byte is checked on arrival.
    pub verify: bool,
    /// When to give a silent peer up.
    pub timeout: Duration,
    /// How the end is known.
    pub ending: Ending,
}
