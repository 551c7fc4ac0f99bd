//! Memory that a queue pair keeps, so that requests can name it by a token.

use super::pair::QueuePair;
use crate::error::Result;
use crate::mr::{Held, HeldList, Hold};
use crate::transport::SendTransport;

impl<T: SendTransport> QueuePair<T> {
    /// Keeps memory alive until the queue pair is destroyed, so that any number of requests can
    /// name it by the returned token at no cost.
    ///
    /// Holding the same memory again returns an equal token.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) when the memory is of another protection
    /// domain; the text names both devices.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc, wr};
    /// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// let mut page = qp.pd().buf(4096)?;
    /// page.fill(7);
    /// let page = qp.hold(&page.freeze())?;
    /// qp.post_send(wr::send(page))?;
    /// qp.post_send(wr::send(page))?; // both at once in flight
    ///
    /// # Ok(()) }
    /// ```
    pub fn hold<K: Hold>(&mut self, memory: &K) -> Result<Held<K>> {
        self.tables.owner.hold(memory)
    }

    /// Keeps a description of several pieces of held memory, so that any number of requests can
    /// name them as one message.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) when a token is of another queue pair.
    pub fn hold_list<K: Hold>(&mut self, pieces: &[Held<K>]) -> Result<HeldList<K>> {
        self.tables.owner.hold_list(pieces)
    }
}
