//! Payloads of work requests: the memory types that can be sent, received into and read into.

use rdma_sys::ibv_sge;

use crate::identity::QueueId;
use crate::in_flight::InFlight;
use crate::mr::Grant;
use crate::pd::{DomainKey, ProtectionDomain};

/// The local memory that a request reads or writes, as scatter/gather entries or as inline data.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// No memory.
    Empty,
    /// One scatter/gather entry.
    One(ibv_sge),
    /// One scatter/gather entry, which is not moved until the request has completed.
    Whole(&'a ibv_sge),
    /// A scatter/gather list: address, number of entries and total length in bytes. The list is not
    /// moved until the request has completed.
    List {
        sges: *const ibv_sge,
        count: usize,
        len: u64,
    },
    /// Inline data, copied when the request is posted.
    Inline(&'a [u8]),
}

impl Gather<'_> {
    /// Returns the length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(sge) => sge.length.into(),
            Self::Whole(sge) => sge.length.into(),
            Self::List { len, .. } => *len,
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Returns the length of the first entry.
    #[allow(unsafe_code)]
    pub(crate) fn first_len(&self) -> u32 {
        match self {
            Self::Empty | Self::List { count: 0, .. } => 0,
            Self::One(sge) => sge.length,
            Self::Whole(sge) => sge.length,
            // SAFETY: the list has an entry, and is alive.
            Self::List { sges, .. } => unsafe { (**sges).length },
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns the number of scatter/gather entries.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) | Self::Whole(_) | Self::Inline(_) => 1,
            Self::List { count, .. } => *count,
        }
    }

    /// Returns a list. The entries must stay at their address until the request has completed.
    pub(crate) fn list(sges: &[ibv_sge]) -> Self {
        let len = sges.iter().map(|sge| u64::from(sge.length)).sum();
        Self::List {
            sges: sges.as_ptr(),
            count: sges.len(),
            len,
        }
    }

    /// Shortens a single entry to its first `length` bytes. The entry must be at least that long.
    /// Other variants are returned unchanged.
    #[inline]
    pub(crate) fn truncated_to(self, length: u32) -> Self {
        match self {
            Self::One(sge) | Self::Whole(&sge) => Self::One(ibv_sge { length, ..sge }),
            other => other,
        }
    }
}

/// The queues that a payload can be posted to.
#[derive(Clone, Copy, Debug)]
pub enum PostableTo<'a> {
    /// Any queue.
    AnyQueue,
    /// The queues of this protection domain.
    Domain(&'a ProtectionDomain),
    /// The queues of the protection domain with this key. The payload keeps the domain alive.
    DomainKey(DomainKey),
    /// The queue pairs of the scope to which the memory is lent.
    Scope(QueueId),
    /// The queue that holds the memory, until it is released.
    Held(Grant),
    /// No queue: the parts of the payload belong to different protection domains.
    NoQueue,
}

/// The memory that the device reads, for the decision whether a request can be unsignaled.
#[derive(Clone, Copy, Debug)]
pub enum DeviceReads {
    /// None: there are no bytes, or they were copied when the request was posted.
    Nothing,
    /// Held memory.
    Held(Grant),
    /// Other memory, which may be changed and used again after the completion.
    Other,
}

/// Implements the part of [`Payload`](private::Payload) that returns the payload of a rejected
/// request: `Self`, or `Infallible` for a payload that borrows memory.
macro_rules! returned {
    (Self) => {
        type Returned = Self;

        #[inline]
        fn into_returned(self) -> Option<Self> {
            Some(self)
        }
    };
    (Infallible) => {
        type Returned = std::convert::Infallible;

        #[inline]
        fn into_returned(self) -> Option<Self::Returned> {
            None
        }
    };
}
pub(crate) use returned;

pub(crate) mod private {
    use super::DeviceReads;
    use super::Gather;
    use super::InFlight;
    use super::PostableTo;

    /// A payload. Only types of this crate implement it.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not memory that a request can use",
        label = "expected a `Buf`, a `BufList`, a `Held` token, `wr::Inline` or `wr::Empty`"
    )]
    pub trait Payload: Sized {
        /// `true` if peers can write to the memory. On iWARP the destination of an RDMA read must
        /// be such memory.
        const OPEN_TO_PEER: bool = false;

        /// The payload that the error of a rejected request returns: the payload itself, or
        /// [`Infallible`](std::convert::Infallible) if it borrows memory, so that the error borrows
        /// none and the `?` operator can convert it into any error type.
        type Returned: Send + Sync + 'static;

        /// Returns the payload of a rejected request, unless it borrows memory.
        fn into_returned(self) -> Option<Self::Returned>;

        /// Called once when a request that reads the memory is created.
        fn prepare_source(&mut self) {}

        /// Called once when a request that writes the memory is created.
        fn prepare_target(&mut self) {}

        /// Called once when a request is created that stores `len` bytes of a peer's memory.
        fn prepare_fetch(&mut self, _len: u64) {}

        /// Returns the queues that the payload can be posted to.
        fn postable_to(&self) -> PostableTo<'_>;

        /// Returns the memory that the device reads.
        #[inline]
        fn device_reads(&self) -> DeviceReads {
            DeviceReads::Other
        }

        /// Returns the memory that the queue owns until the request has completed, if any.
        fn into_in_flight(self) -> Option<InFlight>;

        /// Same as [`into_in_flight`](Self::into_in_flight), for a request that stores `len` bytes
        /// of a peer's memory.
        #[inline]
        fn into_fetching(self, len: usize) -> Option<InFlight> {
            self.into_in_flight().map(|owned| owned.with_len(len))
        }
    }

    /// Memory that a request reads.
    pub trait Source: Payload {
        fn gather(&self) -> Gather<'_>;
    }

    /// Memory that a request writes.
    pub trait Target: Payload {
        fn scatter(&self) -> Gather<'_>;
    }
}

use private::{Source, Target};

/// Payload of a send or an RDMA write.
///
/// This trait is sealed. It is implemented by:
/// - [`Buf`](crate::Buf), [`BufSlice`](crate::mr::BufSlice), [`BufList`](crate::BufList),
///   [`Inline`](crate::wr::Inline) and [`Empty`](crate::wr::Empty);
/// - [`Held`](crate::Held) and [`HeldList`](crate::HeldList) of [`Frozen`](crate::Frozen),
///   [`SharedRegion`](crate::SharedRegion) or [`DeviceRegion`](crate::DeviceRegion);
/// - in a scope, [`Lent`](crate::scope::Lent) and [`LentMut`](crate::scope::LentMut).
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// fn send_solicited<P: wr::SendPayload>(qp: &mut QueuePair<Rc>, message: P) -> ibverbs::Result<()> {
///     Ok(qp.post_send(wr::send(message).solicited(true))?)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a payload that can be sent",
    label = "expected a `Buf`, a `BufList`, a `Held` token, `wr::Inline` or `wr::Empty`",
    note = "ordinary bytes are copied into a buffer from `ProtectionDomain::buf`, or sent as `wr::Inline(&bytes)` up to the inline limit",
    note = "a `Frozen`, a `SharedRegion` or a `DeviceRegion` is held by the queue pair first: `wr::send(qp.hold(&memory)?)`"
)]
pub trait SendPayload: Source {}

/// Payload of a receive.
///
/// This trait is sealed. It is implemented by:
/// - [`Buf`](crate::Buf), [`BufList`](crate::BufList) and [`Empty`](crate::wr::Empty);
/// - [`Held`](crate::Held) and [`HeldList`](crate::HeldList) of [`Sink`](crate::Sink),
///   [`SharedRegion`](crate::SharedRegion) or [`DeviceRegion`](crate::DeviceRegion);
/// - in a scope, [`LentMut`](crate::scope::LentMut).
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// fn post_all<P: wr::RecvPayload>(
///     qp: &mut QueuePair<Rc>,
///     payloads: Vec<P>,
/// ) -> ibverbs::Result<()> {
///     for (payload, tag) in payloads.into_iter().zip(0..) {
///         qp.post_recv(wr::recv(payload).tag(tag))?;
///     }
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a message cannot be received into `{Self}`",
    label = "expected a `Buf`, a `BufList`, `wr::Empty`, or a `Held` token of writable memory",
    note = "the memory must be registered: `ProtectionDomain::buf` or `Pool::take` returns a `Buf`",
    note = "a `Sink` or a `SharedRegion` is held by the queue first: `wr::recv(qp.hold(&memory)?)`; a `Frozen` is read-only"
)]
pub trait RecvPayload: Target {}

/// Local memory that receives the result of an RDMA read or an atomic.
///
/// This trait is sealed. It is implemented by:
/// - [`Buf`](crate::Buf), [`BufSlice`](crate::mr::BufSlice) and [`BufList`](crate::BufList);
/// - [`Held`](crate::Held) and [`HeldList`](crate::HeldList) of [`Sink`](crate::Sink),
///   [`SharedRegion`](crate::SharedRegion) or [`DeviceRegion`](crate::DeviceRegion);
/// - in a scope, [`LentMut`](crate::scope::LentMut).
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// fn fetch<P: wr::ReadPayload>(
///     qp: &mut QueuePair<Rc>,
///     into: P,
///     from: RemoteMemory,
/// ) -> ibverbs::Result<()> {
///     Ok(qp.post_send(wr::read(into, from))?)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the result of an RDMA read or an atomic cannot be stored in `{Self}`",
    label = "expected a `Buf`, a `BufList`, or a `Held` token of writable memory",
    note = "the memory must be registered and writable; a `Frozen` is read-only, and `wr::Inline` can only be sent"
)]
pub trait ReadPayload: Target {}
