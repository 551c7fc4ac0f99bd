//! The memory of work requests: what can be sent, received into, read into.

use rdma_sys::ibv_sge;

use super::inflight::InFlight;
use crate::identity::QueueId;
use crate::mr::{Buf, Frozen, Held, Hold, SharedRegion, Sink};
use crate::pd::ProtectionDomain;

/// Bytes that are copied when the request is posted: no registered memory is needed, and they are free again at once.
///
/// At most [`QpCaps::max_inline_data`](crate::QpCaps) bytes.
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a>(pub &'a [u8]);

/// No data: a message of zero bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

/// What a payload tells the queue about its memory.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// No memory.
    Empty,
    /// One registered piece.
    One(ibv_sge),
    /// Bytes to copy.
    Inline(&'a [u8]),
}

impl Gather<'_> {
    /// How many bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(sge) => sge.length as usize,
            Self::Inline(bytes) => bytes.len(),
        }
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
    /// It is held by this queue.
    HeldBy(QueueId),
}

pub(super) mod private {
    use super::{Belongs, Gather, InFlight};

    /// What every payload says of itself; only this crate's types do.
    pub trait Payload {
        /// Whether peers may write to it, as an iWARP peer does to answer a read.
        const OPEN_TO_PEER: bool = false;

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

/// What can be sent or written to a peer: [`Buf`], [`Held`] of [`Frozen`] or [`SharedRegion`], [`Inline`], [`Empty`]. Sealed.
pub trait SendPayload: Source {}

/// What can be received into: [`Buf`], [`Held`] of [`Sink`] or [`SharedRegion`], [`Empty`]. Sealed.
pub trait RecvPayload: Target {}

/// What a peer's memory can be read into: [`Buf`], [`Held`] of [`Sink`] or [`SharedRegion`]. Sealed.
pub trait ReadPayload: Target {}

impl Payload for Buf {
    #[inline]
    fn belongs(&self) -> Belongs<'_> {
        Belongs::To(self.pd())
    }

    #[inline]
    fn into_in_flight(self) -> InFlight {
        InFlight::Buf(self)
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
        InFlight::Nothing
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
    )*};
}

held! {
    Frozen: Source::gather for SendPayload;
    Sink: Target::scatter for RecvPayload, ReadPayload;
    SharedRegion: Source::gather for SendPayload;
    SharedRegion: Target::scatter for RecvPayload, ReadPayload;
}

impl Payload for Inline<'_> {
    #[inline]
    fn belongs(&self) -> Belongs<'_> {
        Belongs::Anywhere
    }

    #[inline]
    fn into_in_flight(self) -> InFlight {
        InFlight::Nothing
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
        InFlight::Nothing
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
