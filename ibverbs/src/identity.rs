//! Identities of queues, and the two queues of a queue pair.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// The identity of a queue pair or shared receive queue of this process. It is never reused, so a
/// completion of a destroyed queue pair matches no other one.
///
/// # Example
/// Several queue pairs share a completion queue:
/// ```no_run
/// use ibverbs::{CompletionQueue, QueueMap, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, clients: &mut QueueMap<QueuePair<Rc>>) -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     if let Some(client) = clients.get_mut(&completion.queue()) {
///         client.retire(completion)?.check()?;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(u32);

impl QueueId {
    /// Largest identity: a `wr_id` has 30 bits for it.
    pub(crate) const MAX: u32 = u32::MAX >> 2;

    /// The identity of no queue.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// Returns a new identity.
    ///
    /// # Errors
    /// [`ErrorKind::LimitReached`] if the process has used all of them.
    pub(crate) fn next() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let next = Self::next_of(&NEXT);
        next.ok_or_else(|| {
            let what = "this process has created 2^30-1 queues";
            Error::new(ErrorKind::LimitReached, "ibv_create_qp", what)
        })
    }

    /// Returns the identity of a counter, and increases the counter, which stops after the largest
    /// identity.
    fn next_of(counter: &AtomicU32) -> Option<Self> {
        let increase = |id| (id <= Self::MAX).then_some(id + 1);
        let next = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increase);
        next.ok().map(Self)
    }

    pub(crate) const fn from_raw(id: u32) -> Self {
        Self(id)
    }

    /// Returns the identity as the context of a C object, which asynchronous events report. It is
    /// never dereferenced.
    pub(crate) fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0 as usize)
    }

    /// Returns the identity in the context of a C object.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "`as_context` made it of 32 bits"
    )]
    pub(crate) fn from_context(context: *mut c_void) -> Self {
        Self(context.addr() as u32)
    }

    /// Returns the identity as a number. Numbers are small and assigned in order, so they can index
    /// a table.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Values by the identity of their queue, for example the queue pairs that share a completion
/// queue. Finding one takes a fifth of the instructions of the default hasher of
/// [`HashMap`](std::collections::HashMap), because the process assigns identities in order and no
/// peer chooses them.
///
/// # Example
/// ```no_run
/// # fn f(clients: Vec<ibverbs::QueuePair<ibverbs::Rc>>) {
/// use ibverbs::QueueMap;
/// let mut by_id = QueueMap::default();
/// by_id.extend(clients.into_iter().map(|client| (client.id(), client)));
/// # }
/// ```
pub type QueueMap<T> = HashMap<QueueId, T, BuildHasherDefault<QueueHasher>>;

/// The hasher of a [`QueueMap`].
///
/// # Example
/// ```
/// use std::hash::BuildHasherDefault;
/// use ibverbs::{QueueHasher, QueueMap};
/// let hasher = BuildHasherDefault::<QueueHasher>::default();
/// let clients: QueueMap<u32> = QueueMap::with_capacity_and_hasher(4096, hasher);
/// assert!(clients.capacity() >= 4096);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueHasher(u64);

impl Hasher for QueueHasher {
    /// Spreads a number over all bits of the hash: Knuth's multiplicative method.
    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The queue to which a work request was posted.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, Direction, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     match completion.direction() {
///         Direction::Send => drop(qp.retire(completion)?), // the buffer returns to its pool
///         Direction::Recv => println!("received {} bytes", qp.retire(completion)?.received_len()),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The send queue: sends, writes, reads, atomics.
    Send,
    /// The receive queue.
    Recv,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn an_identity_is_read_back_from_a_context() {
        assert_eq!(
            QueueId::from_context(QueueId(u32::MAX).as_context()),
            QueueId(u32::MAX)
        );
    }

    #[test]
    fn threads_get_each_identity_once_until_none_is_left() {
        let first = QueueId::MAX - 20;
        let counter = AtomicU32::new(first);
        let take = || (0..10).filter_map(|_| QueueId::next_of(&counter));
        let taken: Vec<QueueId> = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(|| take().collect::<Vec<_>>()));
            let taken = threads.map(|thread| thread.join().expect("thread"));
            taken.into_iter().flatten().collect()
        });
        let different: BTreeSet<QueueId> = taken.iter().copied().collect();
        assert_eq!((taken.len(), different.len()), (21, 21));
        assert_eq!(different.first().map(|id| id.get()), Some(first));
        assert_eq!(different.last().map(|id| id.get()), Some(QueueId::MAX));
    }

    #[test]
    fn hashes_of_consecutive_identities_differ_in_each_half() {
        let hash = |id| BuildHasherDefault::<QueueHasher>::default().hash_one(QueueId(id));
        // The map takes the place of an entry from the low bits, and a tag from the highest seven.
        let places: BTreeSet<u64> = (1..=4096).map(|id| hash(id) % 4096).collect();
        let tags: BTreeSet<u64> = (1..=4096).map(|id| hash(id) >> 57).collect();
        assert_eq!((places.len(), tags.len()), (4096, 128));
    }

    #[test]
    fn identities_differ() {
        let (a, b) = (QueueId::next().expect("a"), QueueId::next().expect("b"));
        assert_ne!(a, b);
    }
}
