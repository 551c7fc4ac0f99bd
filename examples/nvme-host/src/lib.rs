//! An NVMe over Fabrics host (initiator) for the RDMA transport, without `unsafe` code.
//!
//! | module | contents |
//! |---|---|
//! | [`wire`] | capsules, data structures and private data as bytes |
//! | [`queue`] | a queue: a connection, its commands in flight and their memory |
//! | [`controller`] | a controller: its admin queue, its I/O queues, keep-alive and shutdown |
//! | [`session`] | transfers that continue after a lost connection |
//! | [`bench`](mod@bench) | IOPS and latency |
//!
//! The formats are those of the NVM Express Base Specification 2.0, the NVM Command Set
//! Specification 1.0 and the RDMA Transport Specification 1.0. The comments name their fields.

#![forbid(unsafe_code)]

pub mod bench;
pub mod controller;
pub mod queue;
pub mod session;
pub mod wire;
#[cfg(test)]
mod wire_tests;

/// A result with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection of a queue has ended. Its commands may or may not have been executed.
    #[error("the connection to the target was lost: {0}")]
    Lost(String),
    /// The target rejected a queue, failed a command, or violated the protocol.
    #[error("{0}")]
    Target(String),
    /// A verb failed.
    #[error(transparent)]
    Verbs(#[from] ibverbs::Error),
}

impl Error {
    /// Returns `true` if a new connection may succeed.
    pub fn is_lost(&self) -> bool {
        use ibverbs::ErrorKind::{Disconnected, TimedOut};
        match self {
            Self::Lost(_) => true,
            Self::Verbs(error) => [Disconnected, TimedOut].contains(&error.kind()),
            Self::Target(_) => false,
        }
    }
}
