//! Memory that a queue pair keeps alive for any number of requests.

use super::pair::QueuePair;
use super::tables::Tables;
use crate::error::Result;
use crate::mr::{Grant, Held, HeldList, Hold};
use crate::transport::SendTransport;

impl<T: SendTransport> QueuePair<T> {
    /// Keeps memory alive until it is [released](Self::release) or the queue pair is destroyed. Any
    /// number of requests can use the returned token, and posting it costs no reference count.
    ///
    /// Holding the same memory again returns an equal token.
    ///
    /// # Errors
    /// - [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the memory belongs to another
    ///   protection domain. The message names both devices.
    /// - [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached) if the queue pair holds 2^20
    ///   pieces of memory and lists, or has held 2^32.
    /// - [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if this process does not have
    ///   the addresses of the memory, and the queue pair was created without
    ///   [`device_addresses`](crate::QpOptions::device_addresses).
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

    /// Keeps a scatter/gather list of held memory until it or a part of it is released, or the
    /// queue pair is destroyed. Any number of requests can use it as one message.
    ///
    /// A list with the same blocks in the same order is kept once: holding it again returns an
    /// equal token.
    ///
    /// # Errors
    /// - [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if a token belongs to another queue
    ///   pair, or its memory was released.
    /// - [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached) if the queue pair holds 65,536
    ///   different lists already. Use a [`BufList`](crate::BufList) for messages whose blocks
    ///   differ each time.
    pub fn hold_list<K: Hold>(&mut self, pieces: &[Held<K>]) -> Result<HeldList<K>> {
        self.tables.owner.hold_list(pieces)
    }

    /// Releases held memory. Its tokens, and the lists that contain it, cannot be posted anymore.
    ///
    /// Returns `true` if the queue pair does not keep the memory alive anymore. Returns `false` if
    /// requests are in flight that may use it: those that were posted before with a token, or
    /// without memory. The queue pair then keeps the memory until a later call, with this or
    /// another token, finds that they have completed. So a program can also ignore the value and
    /// release memory again and again.
    ///
    /// From the first release on, posting held memory costs this queue pair about ten instructions
    /// more. A release looks at every slot of both queues.
    ///
    /// On devices with [strict rules](crate::CompletionQueue#devices-with-strict-rules), nothing is
    /// released after a request with held memory has failed, until the queue pair is destroyed.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the token belongs to another queue
    /// pair.
    ///
    /// # Example
    /// A cache of registered memory removes an entry:
    /// ```no_run
    /// use ibverbs::{Held, QueuePair, Rc, SharedRegion, wr};
    /// # fn f(qp: &mut QueuePair<Rc>, entry: (SharedRegion, Held<SharedRegion>)) -> ibverbs::Result<()> {
    /// let (region, token) = entry;
    /// drop(region);
    /// if !qp.release(token)? {
    ///     println!("requests still use it; the next release frees it");
    /// }
    /// assert!(qp.post_send(wr::send(token)).is_err());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_dereg_mr")]
    pub fn release<K: Hold>(&mut self, memory: Held<K>) -> Result<bool> {
        self.release_token(memory.token())
    }

    /// Releases a list, and keeps the memory that it consists of. See [`release`](Self::release).
    ///
    /// # Errors
    /// Same as [`release`](Self::release).
    pub fn release_list<K: Hold>(&mut self, list: HeldList<K>) -> Result<bool> {
        self.release_token(list.token())
    }

    fn release_token(&mut self, token: Grant) -> Result<bool> {
        let Tables {
            sends,
            recvs,
            owner,
            ..
        } = &mut *self.tables;
        owner.release(token, &[&*sends, &recvs.table])
    }
}
