//! Payloads in registered memory.

use super::payload::{DeviceReads, Gather, PostableTo, ReadPayload, RecvPayload, SendPayload};
use super::payload::{private::Payload, private::Source, private::Target, returned};
use crate::in_flight::InFlight;
use crate::mr::{
    Buf, BufList, BufSlice, DeviceRegion, Frozen, Held, HeldList, Hold, SharedRegion, Sink,
};

impl Payload for Buf {
    returned!(Self);

    #[inline]
    fn postable_to(&self) -> PostableTo<'_> {
        PostableTo::DomainKey(self.domain())
    }

    #[inline]
    fn into_in_flight(self) -> Option<InFlight> {
        Some(InFlight::Buf(self))
    }
}

impl Source for Buf {
    #[inline]
    fn gather(&self) -> Gather<'_> {
        Gather::One(self.sge())
    }
}

impl Target for Buf {
    #[inline]
    fn scatter(&self) -> Gather<'_> {
        Gather::Whole(self.capacity_sge())
    }
}

impl SendPayload for Buf {}
impl RecvPayload for Buf {}
impl ReadPayload for Buf {}

impl Payload for BufSlice {
    returned!(Self);

    #[inline]
    fn postable_to(&self) -> PostableTo<'_> {
        PostableTo::DomainKey(self.domain())
    }

    #[inline]
    fn into_in_flight(self) -> Option<InFlight> {
        Some(InFlight::Buf(self.into_buf()))
    }

    #[inline]
    fn into_fetching(self, _: usize) -> Option<InFlight> {
        Some(InFlight::Buf(self.into_buf()))
    }
}

impl Source for BufSlice {
    #[inline]
    fn gather(&self) -> Gather<'_> {
        Gather::One(self.sge())
    }
}

impl Target for BufSlice {
    #[inline]
    fn scatter(&self) -> Gather<'_> {
        Gather::One(self.sge())
    }
}

impl SendPayload for BufSlice {}
impl ReadPayload for BufSlice {}

impl<K: Hold> Payload for Held<K> {
    const OPEN_TO_PEER: bool = K::OPEN_TO_PEER;

    returned!(Self);

    #[inline]
    fn postable_to(&self) -> PostableTo<'_> {
        PostableTo::Held(self.token())
    }

    #[inline]
    fn device_reads(&self) -> DeviceReads {
        DeviceReads::Held(self.token())
    }

    #[inline]
    fn into_in_flight(self) -> Option<InFlight> {
        None
    }
}

impl Payload for BufList {
    returned!(Self);

    fn prepare_source(&mut self) {
        BufList::prepare_source(self);
    }

    fn prepare_target(&mut self) {
        BufList::prepare_target(self);
    }

    fn prepare_fetch(&mut self, len: u64) {
        BufList::prepare_fetch(self, len);
    }

    fn postable_to(&self) -> PostableTo<'_> {
        match self.pd() {
            Some(pd) => PostableTo::Domain(pd),
            None if self.is_empty() => PostableTo::AnyQueue,
            None => PostableTo::NoQueue,
        }
    }

    fn into_in_flight(self) -> Option<InFlight> {
        Some(InFlight::List(self))
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
impl ReadPayload for BufList {}

impl SendPayload for HeldList<Frozen> {}
impl SendPayload for HeldList<SharedRegion> {}
impl SendPayload for HeldList<DeviceRegion> {}
impl RecvPayload for HeldList<Sink> {}
impl RecvPayload for HeldList<SharedRegion> {}
impl RecvPayload for HeldList<DeviceRegion> {}
impl ReadPayload for HeldList<Sink> {}
impl ReadPayload for HeldList<SharedRegion> {}
impl ReadPayload for HeldList<DeviceRegion> {}

impl<K: Hold> Payload for HeldList<K> {
    const OPEN_TO_PEER: bool = K::OPEN_TO_PEER;

    returned!(Self);

    #[inline]
    fn postable_to(&self) -> PostableTo<'_> {
        PostableTo::Held(self.token())
    }

    #[inline]
    fn into_in_flight(self) -> Option<InFlight> {
        None
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
