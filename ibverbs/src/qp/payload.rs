//! The memory of work requests: what can be sent, received into, read into.

use rdma_sys::ibv_sge;

use super::kept::InFlight;
use crate::identity::QueueId;
use crate::mr::{Buf, BufList, DeviceRegion, Frozen, Held, HeldList, Hold, SharedRegion, Sink};
use crate::pd::{DomainKey, ProtectionDomain};

/// Bytes that are copied when the request is posted: no registered memory is needed, and they are free again at once.
///
/// At most [`QpCaps::max_inline_data`](crate::QpCaps) bytes.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// let line = format!("my number is {}", qp.qp_num());
/// qp.post_send(wr::send(wr::Inline(line.as_bytes())))?;
/// drop(line); // it was copied
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html) (`IBV_SEND_INLINE`)
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a>(pub &'a [u8]);

/// No data: a message of zero bytes.
///
/// # Example
/// A message that says nothing but that it came, and a place for one:
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// qp.post_recv(wr::recv(wr::Empty))?;
/// qp.post_send(wr::send_with_imm(wr::Empty, 42))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

/// What a payload tells the queue about its memory.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// No memory.
    Empty,
    /// One registered piece.
    One(ibv_sge),
    /// Several registered pieces: where they are described, how many, and how many bytes. The description stays where it is until
    /// the request has completed.
    List { sges: *const ibv_sge, count: usize, len: u64 },
    /// Bytes to copy.
    Inline(&'a [u8]),
}

impl Gather<'_> {
    /// How many bytes.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(sge) => sge.length.into(),
            Self::List { len, .. } => *len,
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// How many pieces.
    #[inline]
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) | Self::Inline(_) => 1,
            Self::List { count, .. } => *count,
        }
    }

    fn list(sges: &[ibv_sge]) -> Self {
        let len = sges.iter().map(|sge| u64::from(sge.length)).sum();
        Self::List { sges: sges.as_ptr(), count: sges.len(), len }
    }

    /// The first `length` of a piece that has at least so many.
    #[inline]
    pub(super) fn first(self, length: u32) -> Self {
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

pub(super) mod private {
    use super::{Belongs, Gather, InFlight};

    /// What every payload says of itself; only this crate's types do.
    pub trait Payload: Sized {
        /// Whether peers may write to it, as an iWARP peer does to answer a read.
        const OPEN_TO_PEER: bool = false;

        /// Called once when a request is made that reads it.
        fn prepare_source(&mut self) {}

        /// Called once when a request is made that writes it.
        fn prepare_target(&mut self) {}

        fn belongs(&self) -> Belongs<'_>;
        fn into_in_flight(self) -> InFlight;
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

use private::{Payload, Source, Target};

/// What can be sent or written to a peer: [`Buf`], [`BufList`], [`Held`] of [`Frozen`] or [`SharedRegion`], [`Inline`], [`Empty`]. Sealed.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// fn shout<P: wr::SendPayload>(qp: &mut QueuePair<Rc>, message: P) -> ibverbs::Result<()> {
///     Ok(qp.post_send(wr::send(message).solicited())?)
/// }
/// ```
pub trait SendPayload: Source {}

/// What can be received into: [`Buf`], [`BufList`], [`Held`] of [`Sink`] or [`SharedRegion`], [`Empty`]. Sealed.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// fn receive_into<P: wr::RecvPayload>(qp: &mut QueuePair<Rc>, places: Vec<P>) -> ibverbs::Result<()> {
///     for (place, tag) in places.into_iter().zip(0..) {
///         qp.post_recv(wr::recv(place).tag(tag))?;
///     }
///     Ok(())
/// }
/// ```
pub trait RecvPayload: Target {}

/// What a peer's memory can be read into: [`Buf`], [`Held`] of [`Sink`] or [`SharedRegion`]. Sealed.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// fn fetch<P: wr::ReadPayload>(qp: &mut QueuePair<Rc>, into: P, from: RemoteMemory) -> ibverbs::Result<()> {
///     Ok(qp.post_send(wr::read(into, from))?)
/// }
/// ```
pub trait ReadPayload: Target {}

impl Payload for Buf {
    #[inline]
    fn belongs(&self) -> Belongs<'_> {
        Belongs::Of(self.domain())
    }

    #[inline]
    fn into_in_flight(self) -> InFlight {
        InFlight::buf(self)
    }
}

impl Source for Buf {
    #[inline]
    fn gather(&self) -> Gather<'_> {
        Gather::One(self.shown())
    }
}

impl Target for Buf {
    #[inline]
    fn scatter(&self) -> Gather<'_> {
        Gather::One(self.whole())
    }
}

impl SendPayload for Buf {}
impl RecvPayload for Buf {}
impl ReadPayload for Buf {}

impl<K: Hold> Payload for Held<K> {
    const OPEN_TO_PEER: bool = K::OPEN_TO_PEER;

    #[inline]
    fn belongs(&self) -> Belongs<'_> {
        Belongs::HeldBy(self.queue())
    }

    #[inline]
    fn into_in_flight(self) -> InFlight {
        InFlight::NOTHING
    }
}

impl Payload for BufList {
    fn prepare_source(&mut self) {
        BufList::prepare_source(self);
    }

    fn prepare_target(&mut self) {
        BufList::prepare_target(self);
    }

    fn belongs(&self) -> Belongs<'_> {
        self.pd().map_or(Belongs::Nowhere, Belongs::To)
    }

    fn into_in_flight(self) -> InFlight {
        InFlight::list(self)
    }
}

impl Source for BufList {
    fn gather(&self) -> Gather<'_> {
        Gather::list(self.sges())
    }
}

impl Target for BufList {
    fn scatter(&self) -> Gather<'_> {
        Gather::list(self.sges())
    }
}

impl SendPayload for BufList {}
impl RecvPayload for BufList {}

impl SendPayload for HeldList<Frozen> {}
impl SendPayload for HeldList<SharedRegion> {}
impl RecvPayload for HeldList<Sink> {}
impl RecvPayload for HeldList<SharedRegion> {}

impl<K: Hold> Payload for HeldList<K> {
    const OPEN_TO_PEER: bool = K::OPEN_TO_PEER;

    #[inline]
    fn belongs(&self) -> Belongs<'_> {
        Belongs::HeldBy(self.queue())
    }

    #[inline]
    fn into_in_flight(self) -> InFlight {
        InFlight::NOTHING
    }
}

macro_rules! held {
    ($($kind:ty: $role:ident::$memory:ident for $($payload:ident),+;)*) => {$(
        impl $role for Held<$kind> {
            #[inline]
            fn $memory(&self) -> Gather<'_> {
                Gather::One(self.sge())
            }
        }
        $(impl $payload for Held<$kind> {})+

        impl $role for HeldList<$kind> {
            #[inline]
            fn $memory(&self) -> Gather<'_> {
                let (sges, count) = self.sges();
                Gather::List { sges, count, len: self.len() }
            }
        }
    )*};
}

held! {
    Frozen: Source::gather for SendPayload;
    Sink: Target::scatter for RecvPayload, ReadPayload;
    SharedRegion: Source::gather for SendPayload;
    SharedRegion: Target::scatter for RecvPayload, ReadPayload;
    DeviceRegion: Source::gather for SendPayload;
    DeviceRegion: Target::scatter for RecvPayload, ReadPayload;
}

impl Payload for Inline<'_> {
    #[inline]
    fn belongs(&self) -> Belongs<'_> {
        Belongs::Anywhere
    }

    #[inline]
    fn into_in_flight(self) -> InFlight {
        InFlight::NOTHING
    }
}

impl Source for Inline<'_> {
    #[inline]
    fn gather(&self) -> Gather<'_> {
        Gather::Inline(self.0)
    }
}

impl SendPayload for Inline<'_> {}

impl Payload for Empty {
    #[inline]
    fn belongs(&self) -> Belongs<'_> {
        Belongs::Anywhere
    }

    #[inline]
    fn into_in_flight(self) -> InFlight {
        InFlight::NOTHING
    }
}

impl Source for Empty {
    #[inline]
    fn gather(&self) -> Gather<'_> {
        Gather::Empty
    }
}

impl Target for Empty {
    #[inline]
    fn scatter(&self) -> Gather<'_> {
        Gather::Empty
    }
}

impl SendPayload for Empty {}
impl RecvPayload for Empty {}
