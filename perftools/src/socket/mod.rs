//! Tests over sockets: TCP, UDP, SCTP and RDS, with the same figures as over RDMA.
//!
//! [`open`] makes the sockets of a [`Kind`], [`mod@line`] carries messages over them, [`run`] is
//! the loop that is timed, [`ends`] puts them together for a [`Spec`](crate::config::Spec).
//! Messages of TCP have no borders, so a message is as many bytes as the specification says; UDP
//! loses messages, which the figures show.

pub mod ends;
pub mod kind;
pub mod line;
mod nodelay;
pub mod open;
pub mod run;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::config::Limit;

pub use kind::{Kind, MAX_DATAGRAM, MAX_RDS};

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
    /// Each byte is read on arrival.
    pub access: bool,
    /// When to give a silent peer up.
    pub timeout: Duration,
    /// How the end is known.
    pub ending: Ending,
}
