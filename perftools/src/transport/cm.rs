//! Connecting by rdma_cm: to come with the connection manager's crate.

use ibverbs::{QueuePair, Rc};

use crate::error::Result;

/// A connection of rdma_cm with its queue pair.
#[derive(Debug)]
pub enum Connection {}

impl Connection {
    /// Its queue pair.
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        match *self {}
    }

    /// Whether it still stands.
    ///
    /// # Errors
    /// The peer has disconnected.
    pub fn check(&mut self) -> Result<()> {
        match *self {}
    }
}
