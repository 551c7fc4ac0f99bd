//! Identities of queues, and the two queues of a queue pair.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// The identity of a queue pair or shared receive queue of this process. It is never reused, so a
/// completion of a destroyed queue pair matches no other one.
///
/// # Example
/// Several queue pairs share a completion queue:
/// ```no_run
/// use std::collections::HashMap;
/// use ibverbs::{CompletionQueue, QueueId, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, clients: &mut HashMap<QueueId, QueuePair<Rc>>) -> ibverbs::Result<()> {
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
    fn identities_differ() {
        let (a, b) = (QueueId::next().expect("a"), QueueId::next().expect("b"));
        assert_ne!(a, b);
    }
}
