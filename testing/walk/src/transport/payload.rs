//! Memory of requests that transfer bytes to a peer.

use ibverbs::{Buf, BufList, Error, Frozen, Held, HeldList, SharedRegion, wr};

use super::qp::{Flags, Outbound, Poster, Transport};

/// Memory of a request to be posted.
pub(crate) enum Payload {
    Buf(Buf),
    List(Vec<Buf>),
    Inline(Vec<u8>),
    Empty,
    Frozen(Held<Frozen>),
    FrozenList(HeldList<Frozen>),
    Shared(Held<SharedRegion>),
    SharedList(HeldList<SharedRegion>),
}

/// Posts a request. If it was not posted, returns its buffers with the reason.
pub(crate) fn post<T: Transport>(
    poster: &mut impl Poster<T>,
    outbound: Outbound,
    payload: Payload,
    flags: Flags,
) -> Result<(), (Error, Vec<Buf>)> {
    macro_rules! post {
        ($payload:expr, $bufs:expr) => {
            T::outbound(poster, outbound, $payload, flags).map_err(|rejected| {
                (
                    Error::new(rejected.error().kind(), "post", rejected.to_string()),
                    $bufs(rejected.into_payload()),
                )
            })
        };
    }
    match payload {
        Payload::Buf(buf) => post!(buf, |buf: Option<Buf>| buf.into_iter().collect()),
        Payload::List(bufs) => post!(BufList::new(bufs), |list: Option<BufList>| {
            list.map(BufList::into_bufs).unwrap_or_default()
        }),
        Payload::Inline(bytes) => post!(wr::Inline(&bytes), |_| Vec::new()),
        Payload::Empty => post!(wr::Empty, |_| Vec::new()),
        Payload::Frozen(held) => post!(held, |_| Vec::new()),
        Payload::FrozenList(held) => post!(held, |_| Vec::new()),
        Payload::Shared(held) => post!(held, |_| Vec::new()),
        Payload::SharedList(held) => post!(held, |_| Vec::new()),
    }
}
