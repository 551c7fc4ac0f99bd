//! Tests over TCP, UDP, SCTP and RDS sockets, with the same figures as over RDMA.
//!
//! [`open`] creates sockets, [`message_socket`] transfers messages over them, [`run`] has the timed
//! loops, and [`endpoint`] connects these for a [`Spec`](crate::rperf::spec::Spec). `control` and
//! `qperf` use it. TCP has no message boundaries, so a message is as long as the specification
//! says.

pub mod endpoint;
pub mod message_socket;
mod nodelay;
pub mod open;
pub mod run;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::rperf::spec::Limit;

pub use crate::rperf::spec::socket_kind::{MAX_DATAGRAM, MAX_RDS, SocketKind};

/// How both ends know that the test is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndMode {
    /// They tell each other; whatever is under way arrives first.
    Announced,
    /// Each by its own clock, as qperf does.
    Clock,
}

/// The numbers that a loop runs by.
#[derive(Clone, Copy, Debug)]
pub struct LoopParams {
    /// Bytes a message.
    pub size: usize,
    /// When the clock stops.
    pub limit: Limit,
    /// Every message differs, and each byte is checked on arrival.
    pub verify: bool,
    /// Each byte is read on arrival.
    pub access: bool,
    /// When to give a silent peer up.
    pub timeout: Duration,
    /// How the end is known.
    pub end_mode: EndMode,
}
