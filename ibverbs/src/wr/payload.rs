//! The memory of work requests: what can be sent, received into, read into, and what a queue asks
//! of it.

use rdma_sys::ibv_sge;

use crate::identity::QueueId;
use crate::in_flight::InFlight;
use crate::pd::{DomainKey, ProtectionDomain};

/// What a payload tells the queue about its memory.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// No memory.
    Empty,
    /// One registered piece.
    One(ibv_sge),
    /// Several registered pieces: where they are described, how many, and how many bytes. The
    /// description stays where it is until the request has completed.
    List {
        sges: *const ibv_sge,
        count: usize,
        len: u64,
    },
    /// Bytes to copy.
    Inline(&'a [u8]),
}

impl Gather<'_> {
    /// How many bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(sge) => sge.length.into(),
            Self::List { len, .. } => *len,
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// How many pieces.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) | Self::Inline(_) => 1,
            Self::List { count, .. } => *count,
        }
    }

    pub(crate) fn list(sges: &[ibv_sge]) -> Self {
        let len = sges.iter().map(|sge| u64::from(sge.length)).sum();
        Self::List {
            sges: sges.as_ptr(),
            count: sges.len(),
            len,
        }
    }

    /// The first `length` of a piece that has at least so many.
    #[inline]
    pub(crate) fn first(self, length: u32) -> Self {
        match self {
            Self::One(sge) => Self::One(ibv_sge { length, ..sge }),
            other => other,
        }
    }
}

/// Whom the memory of a payload belongs to, for the queue to check.
#[derive(Clone, Copy, Debug)]
pub enum Belongs<'a> {
    /// It fits any queue.
    Anywhere,
    /// It fits the queues of this domain.
    To(&'a ProtectionDomain),
    /// As `To`, of a domain that the payload keeps alive.
    Of(DomainKey),
    /// It is held by this queue.
    HeldBy(QueueId),
    /// Its parts are of different domains: it fits none.
    Nowhere,
}

pub(crate) mod private {
    use super::Belongs;
    use super::Gather;
    use super::InFlight;

    /// What every payload says of itself; only this crate's types do.
    pub trait Payload: Sized {
        /// Whether peers may write to it, as an iWARP peer does to answer a read.
        const OPEN_TO_PEER: bool = false;

        /// Called once when a request is made that reads it.
        fn prepare_source(&mut self) {}

        /// Called once when a request is made that writes it.
        fn prepare_target(&mut self) {}

        fn belongs(&self) -> Belongs<'_>;
        fn into_in_flight(self) -> Option<InFlight>;
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

/// What can be sent or written to a peer: [`Buf`](crate::Buf), [`BufList`](crate::BufList),
/// [`Held`](crate::Held) and [`HeldList`](crate::HeldList) of [`Frozen`](crate::Frozen),
/// [`SharedRegion`](crate::SharedRegion) or [`DeviceRegion`](crate::DeviceRegion),
/// [`Inline`](crate::wr::Inline), [`Empty`](crate::wr::Empty); in a scope
/// [`Lent`](crate::scope::Lent) and [`LentMut`](crate::scope::LentMut). Sealed.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// fn shout<P: wr::SendPayload>(qp: &mut QueuePair<Rc>, message: P) -> ibverbs::Result<()> {
///     Ok(qp.post_send(wr::send(message).solicited())?)
/// }
/// ```
pub trait SendPayload: Source {}

/// What can be received into: [`Buf`](crate::Buf), [`BufList`](crate::BufList),
/// [`Held`](crate::Held) and [`HeldList`](crate::HeldList) of [`Sink`](crate::Sink),
/// [`SharedRegion`](crate::SharedRegion) or [`DeviceRegion`](crate::DeviceRegion),
/// [`Empty`](crate::wr::Empty); in a scope [`LentMut`](crate::scope::LentMut). Sealed.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// fn receive_into<P: wr::RecvPayload>(
///     qp: &mut QueuePair<Rc>,
///     places: Vec<P>,
/// ) -> ibverbs::Result<()> {
///     for (place, tag) in places.into_iter().zip(0..) {
///         qp.post_recv(wr::recv(place).tag(tag))?;
///     }
///     Ok(())
/// }
/// ```
pub trait RecvPayload: Target {}

/// What a peer's memory can be read into: [`Buf`](crate::Buf), [`Held`](crate::Held) of
/// [`Sink`](crate::Sink), [`SharedRegion`](crate::SharedRegion) or
/// [`DeviceRegion`](crate::DeviceRegion); in a scope [`LentMut`](crate::scope::LentMut). Sealed.
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
pub trait ReadPayload: Target {}
