//! Who a work request belongs to, packed into the 64 bits that the device carries for it.

#![allow(
    clippy::cast_possible_truncation,
    reason = "the fields are cut out of 64 bits on purpose"
)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// Which queue pair of this process; never reused, so that a completion of a destroyed one matches
/// nothing.
///
/// # Example
/// Many queue pairs on one completion queue:
/// ```no_run
/// use std::collections::HashMap;
/// use ibverbs::{CompletionQueue, QueueId, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, clients: &mut HashMap<QueueId, QueuePair<Rc>>) -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     if let Some(client) = clients.get_mut(&completion.queue()) {
///         client.retire(completion)?.ok()?;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(u32);

impl QueueId {
    /// A new identity.
    pub(crate) fn next() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mut id = NEXT.load(Ordering::Relaxed);
        loop {
            if u64::from(id) & MARK != 0 {
                let what = "this process has made 2^31 queue pairs";
                return Err(Error::new(ErrorKind::QueueFull, "ibv_create_qp", what));
            }
            match NEXT.compare_exchange_weak(id, id + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(Self(id)),
                Err(seen) => id = seen,
            }
        }
    }

    /// The identity as the number that the library carries with the object, as events report it;
    /// never a pointer to follow.
    pub(crate) fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0 as usize)
    }

    /// The identity out of that number.
    pub(crate) fn from_context(context: *mut c_void) -> Self {
        Self(context.addr() as u32)
    }

    /// A small number of its own, for a table of the caller's.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Which of its two queues a work request was posted to.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, Direction, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     match completion.direction() {
///         Direction::Send => drop(qp.retire(completion)?), // its buffer may be filled anew
///         Direction::Recv => println!("{} bytes came", qp.retire(completion)?.byte_len()),
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

/// What goes into `wr_id`, from the lowest bit: the queue's identity (31 bits), a mark that no
/// number has which is told (1), the place in the table of that queue (20), one bit for receives,
/// one for what a receive can be of, one for requests that were [never posted](Self::never_posted),
/// and a count of the uses of the place (9). It is the highest, so that it wraps by itself.
///
/// A number is told to the device once, but for the wrap, and no number of a vacant place is: so a
/// completion whose `wr_id` equals that of a place is of the request there, which is in flight. The
/// count wraps by requests that completed only, for which the completion queue is polled: a program
/// cannot keep a completion meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct WrId(pub(crate) u64);

/// How a table numbers its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requests {
    SendTransport,
    /// Receives of messages.
    Receives,
    /// Receives of what may be datagrams, whose completions say where they came from.
    Datagrams,
}

const QUEUE_BITS: u32 = 32;
const MARK: u64 = 1 << (QUEUE_BITS - 1);
const RECV_BIT: u64 = 1 << (QUEUE_BITS + WrId::PLACE_BITS);
const DATAGRAM_BIT: u64 = RECV_BIT << 1;
const UNPOSTED_BIT: u64 = DATAGRAM_BIT << 1;
/// One more use of a place, in the upper half.
const USE: u32 = (UNPOSTED_BIT >> (QUEUE_BITS - 1)) as u32;

impl WrId {
    /// How many places a table can have, as a power of two.
    pub(crate) const PLACE_BITS: u32 = 20;

    /// The first number of the first place. The count of uses begins with 1, so that it is none of
    /// the small numbers and addresses that other programs take for a `wr_id`.
    pub(crate) const fn first(queue: QueueId, requests: Requests) -> Self {
        let bits = match requests {
            Requests::SendTransport => 0,
            Requests::Receives => RECV_BIT,
            Requests::Datagrams => RECV_BIT | DATAGRAM_BIT,
        };
        Self((USE as u64) << QUEUE_BITS | bits | queue.0 as u64)
    }

    /// The first number of another place in the same table.
    pub(crate) const fn of_place(self, place: u32) -> Self {
        const KEPT: u64 = RECV_BIT | DATAGRAM_BIT | u32::MAX as u64;
        Self(self.0 & KEPT | (USE as u64 | place as u64) << QUEUE_BITS)
    }

    /// Another number, equal to none that is told.
    pub(crate) const fn marked(self) -> Self {
        Self(self.0 | MARK)
    }

    /// Whether it was made by [`marked`](Self::marked).
    pub(crate) const fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }

    /// The number that it was made of, if it was; otherwise itself.
    pub(crate) const fn unmarked(self) -> Self {
        Self(self.0 & !MARK)
    }

    /// Another number for the same use of the place, whose request was never posted though the
    /// provider may have been told of it. There are two, so that failures without end bring
    /// back no number of a request that was posted.
    pub(crate) const fn never_posted(self) -> Self {
        Self(self.0 ^ UNPOSTED_BIT)
    }

    /// Makes a number that of the next use of its place, by one addition to half of it.
    ///
    /// # Safety
    /// It can be read and written.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) unsafe fn count_use(this: *mut Self) {
        let upper = this
            .cast::<u32>()
            .wrapping_add(usize::from(cfg!(target_endian = "little")));
        // SAFETY: the caller's promise; it is two halves, of which this is the upper one. Atomic so
        // that it becomes one instruction, which adds to memory: the compiler knows the old
        // value, and would add to that.
        let upper = unsafe { AtomicU32::from_ptr(upper) };
        upper.store(
            upper.load(Ordering::Relaxed).wrapping_add(USE),
            Ordering::Relaxed,
        );
    }

    /// The place in the table of its queue.
    pub(crate) fn place(self) -> usize {
        (self.0 >> QUEUE_BITS) as usize & ((1 << Self::PLACE_BITS) - 1)
    }

    /// Where that is in bytes, in a table of `Place`s that has no more than a power of two of them:
    /// `mask` is that number less one, in bytes too.
    #[inline]
    pub(crate) fn offset<Place>(self, mask: usize) -> usize {
        const { assert!(size_of::<Place>().is_power_of_two()) };
        (self.0 >> (QUEUE_BITS - size_of::<Place>().trailing_zeros())) as usize & mask
    }

    #[inline]
    pub(crate) fn queue(self) -> QueueId {
        QueueId(self.0 as u32)
    }

    #[inline]
    pub(crate) fn direction(self) -> Direction {
        if self.0 & RECV_BIT == 0 {
            Direction::Send
        } else {
            Direction::Recv
        }
    }

    /// Whether it is of a receive of what may be a datagram.
    #[inline]
    pub(crate) fn may_be_datagram(self) -> bool {
        self.0 & DATAGRAM_BIT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn a_wr_id_gives_back_what_it_was_made_of() {
        for (requests, direction) in [
            (Requests::SendTransport, Direction::Send),
            (Requests::Receives, Direction::Recv),
            (Requests::Datagrams, Direction::Recv),
        ] {
            for place in [0, 1, (1 << WrId::PLACE_BITS) - 1] {
                let first = WrId::first(QueueId(u32::MAX >> 1), requests).of_place(place);
                let mut id = first;
                for uses in 0..if cfg!(miri) { 2 } else { 1 << 9 } {
                    assert_eq!(
                        (id.queue(), id.direction(), id.place()),
                        (QueueId(u32::MAX >> 1), direction, place as usize)
                    );
                    assert_eq!(id.may_be_datagram(), requests == Requests::Datagrams);
                    assert!(
                        uses == 0 || id != first && id != first.never_posted(),
                        "{uses}"
                    );
                    // SAFETY: a number of this function.
                    unsafe { WrId::count_use(&raw mut id) };
                }
                assert!(cfg!(miri) || id == first, "it wraps");
            }
        }
    }

    #[test]
    fn an_identity_survives_its_way_through_the_library() {
        assert_eq!(
            QueueId::from_context(QueueId(u32::MAX).as_context()),
            QueueId(u32::MAX)
        );
    }

    #[test]
    fn identities_are_never_equal() {
        let (a, b) = (QueueId::next().expect("a"), QueueId::next().expect("b"));
        assert_ne!(a, b);
    }
}
