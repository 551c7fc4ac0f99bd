//! Tests over TCP, UDP, SCTP and RDS sockets, with the same results as over RDMA.
//!
//! [`open`] creates sockets, `message_socket` transfers messages over them, [`run`] has the timed
//! loops, and [`endpoint`] connects these for a [`Spec`](crate::spec::Spec). `control` and
//! `qperf` use it. TCP has no message boundaries, so a message is as long as the specification
//! says.

pub mod endpoint;
pub(crate) mod message_socket;
mod nodelay;
pub mod open;
pub mod run;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::engine::payload::Payload;
use crate::spec::Limit;

pub use crate::spec::socket_kind::{MAX_DATAGRAM, SocketKind};

/// The way in which both ends agree on the end of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndMode {
    /// The sender announces the end over the control connection. Messages in flight still arrive.
    Announced,
    /// Each end stops by its own clock, as qperf does.
    Clock,
}

/// Parameters of a timed loop.
#[derive(Clone, Debug)]
pub struct LoopParams {
    /// Message size in bytes.
    pub size: usize,
    /// Duration or number of messages.
    pub limit: Limit,
    /// Every message differs, and the receiver checks each byte.
    pub verify: bool,
    /// Bytes of the messages.
    pub payload: Payload,
    /// The receiver reads each byte.
    pub access: bool,
    /// Time without progress after which the test fails.
    pub timeout: Duration,
    /// Interval of the heartbeats of a receiver.
    pub heartbeat: Duration,
    /// The way in which the test ends.
    pub end_mode: EndMode,
    /// Time from one message to the next if the rate is limited.
    pub gap: Option<Duration>,
    /// Number of messages that are sent at a time if the rate is limited.
    pub burst: Option<u32>,
    /// Each latency is recorded.
    pub samples: bool,
}
