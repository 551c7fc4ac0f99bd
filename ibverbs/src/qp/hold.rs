//! Memory that a queue pair keeps alive for any number of requests.

use super::pair::QueuePair;
use crate::error::Result;
use crate::mr::{Held, HeldList, Hold};
use crate::transport::SendTransport;

impl<T: SendTransport> QueuePair<T> {
    /// Keeps memory alive until the queue pair is destroyed. Any number of requests can use the
    /// returned token, and posting it costs no reference count.
    ///
    /// Holding the same memory again returns an equal token.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the memory belongs to another
    /// protection domain. The message names both devices.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc, wr};
    /// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// let mut page = qp.pd().buf(4096)?;
    /// page.fill(7);
    /// let page = qp.hold(&page.freeze())?;
    /// qp.post_send(wr::send(page))?;
    /// qp.post_send(wr::send(page))?; // both can be in flight
    /// # Ok(()) }
    /// ```
    pub fn hold<K: Hold>(&mut self, memory: &K) -> Result<Held<K>> {
        self.tables.owner.hold(memory)
    }

    /// Keeps a scatter/gather list of held memory until the queue pair is destroyed. Any number of
    /// requests can use it as one message.
    ///
    /// A list with the same blocks in the same order is kept once: holding it again returns an
    /// equal token.
    ///
    /// # Errors
    /// - [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if a token belongs to another queue
    ///   pair.
    /// - [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the queue pair holds 65,536
    ///   different lists already. Use a [`BufList`](crate::BufList) for messages whose blocks
    ///   differ each time.
    pub fn hold_list<K: Hold>(&mut self, pieces: &[Held<K>]) -> Result<HeldList<K>> {
        self.tables.owner.hold_list(pieces)
    }
}
