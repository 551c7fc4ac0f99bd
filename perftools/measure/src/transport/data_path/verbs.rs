//! The parts of a request: a [`DataPathTransport`], a [`SendVerb`] or a [`FetchVerb`], and the
//! [`Source`] of its payload or the memory that it fetches into.

use std::marker::PhantomData;

use ibverbs::{
    Buf, DeviceRegion, Frozen, Held, Hold, QueuePair, Rc, RemoteMemory, SendTransport,
    SharedRegion, Uc, Ud,
    dc::{Dc, DcDestination},
    efa::Srd,
    wr::{self, Destination, Operation, ReadPayload, SendPayload, SendRequest},
    xrc::{SrqNum, XrcSend},
};

use super::marks;
use super::memory::{Content, Memory};
use super::qp::{AnyQp, HeldMemory};

/// A transport of the tests, and the address that its requests need.
pub(super) trait DataPathTransport: SendTransport + Sized {
    /// Address of the peer.
    type Address: Copy;
    /// An operation with the address of the peer.
    type Addressed<O>;

    /// Returns the queue pair that sends, and the address of the peer. Returns `None` if the queue
    /// pair has another transport.
    fn sender(qp: &mut AnyQp) -> Option<(&mut QueuePair<Self>, Self::Address)>;

    /// Ends a request or a list of requests. The next ones may have another address.
    #[inline]
    fn advance(_qp: &mut AnyQp) {}

    /// Adds the address of the peer to a request.
    fn address<O, P>(
        request: SendRequest<O, P>,
        to: Self::Address,
    ) -> SendRequest<Self::Addressed<O>, P>;
}

/// Implements [`DataPathTransport`] for transports whose requests name the peer.
macro_rules! addressed {
    ($($transport:ident($address:ty): $pattern:pat => $sender:expr $(, $advance:expr)?;)+) => {$(
        impl DataPathTransport for $transport {
            type Address = $address;
            type Addressed<O> = wr::To<O, $address>;

            #[inline]
            fn sender(qp: &mut AnyQp) -> Option<(&mut QueuePair<$transport>, $address)> {
                match qp {
                    $pattern => Some($sender),
                    _ => None,
                }
            }

            $(#[inline]
            fn advance(qp: &mut AnyQp) {
                if let $pattern = qp {
                    $advance;
                }
            })?

            #[inline]
            fn address<O, P>(
                request: SendRequest<O, P>,
                to: $address,
            ) -> SendRequest<wr::To<O, $address>, P> {
                request.to(to)
            }
        }
    )+};
}

addressed! {
    Ud(Destination): AnyQp::Ud(qp, to) => (qp, *to);
    Srd(Destination): AnyQp::Srd(qp, to) => (qp, *to);
    XrcSend(SrqNum): AnyQp::Xrc(xrc) => (&mut xrc.sender, xrc.peer_srq);
    Dc(DcDestination): AnyQp::Dc(dc) => { let to = dc.peer(); (&mut dc.initiator, to) }, dc.advance();
}

/// Implements [`DataPathTransport`] for transports of queue pairs that have one peer.
macro_rules! connected {
    ($($transport:ident: $($pattern:pat => $sender:expr),+;)+) => {$(
        impl DataPathTransport for $transport {
            type Address = ();
            type Addressed<O> = O;

            #[inline]
            fn sender(qp: &mut AnyQp) -> Option<(&mut QueuePair<$transport>, ())> {
                match qp {
                    $($pattern => Some(($sender, ())),)+
                    _ => None,
                }
            }

            #[inline]
            fn address<O, P>(request: SendRequest<O, P>, (): ()) -> SendRequest<O, P> {
                request
            }
        }
    )+};
}

connected! {
    Rc: AnyQp::Rc(qp) => qp, AnyQp::Cm(connection) => connection.qp_mut();
    Uc: AnyQp::Uc(qp) => qp;
}

/// A verb that sends or writes a payload.
pub(super) trait SendVerb<T: DataPathTransport> {
    /// Makes the request of message `n`.
    fn request<P: SendPayload>(
        to: T::Address,
        memory: &Memory,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>>;
}

/// A verb that returns data of the peer.
pub(super) trait FetchVerb<T: DataPathTransport> {
    /// Makes the request of message `n`.
    fn request<P: ReadPayload>(
        to: T::Address,
        memory: &Memory,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>>;
}

/// Send.
pub(super) struct Send;
/// Send with the number of the message as immediate data.
pub(super) struct SendNumbered;
/// RDMA write.
pub(super) struct Write;
/// RDMA write with the number of the message as immediate data.
pub(super) struct WriteNumbered;
/// RDMA read.
pub(super) struct Read;
/// Atomic compare-and-swap.
pub(super) struct CompareSwap;
/// Atomic fetch-and-add.
pub(super) struct FetchAdd;

/// Makes the request of message `n` without the address of the peer.
macro_rules! request {
    (Send, $memory:ident, $n:ident, $payload:ident) => {
        wr::send($payload)
    };
    (SendNumbered, $memory:ident, $n:ident, $payload:ident) => {
        wr::send_with_imm($payload, $memory.imm($n))
    };
    (Write, $memory:ident, $n:ident, $payload:ident) => {
        wr::write($payload, peer_slot($memory, $n)?)
    };
    (WriteNumbered, $memory:ident, $n:ident, $payload:ident) => {
        wr::write_with_imm($payload, peer_slot($memory, $n)?, $memory.imm($n))
    };
    (Read, $memory:ident, $n:ident, $payload:ident) => {
        wr::read($payload, peer_slot($memory, $n)?)
    };
    (CompareSwap, $memory:ident, $n:ident, $payload:ident) => {{
        // Each queue pair has a counter of its own in the peer's memory.
        let count = $n / u64::from($memory.shape.qps);
        wr::compare_swap($payload, peer_slot($memory, $n)?, count, count + 1)
    }};
    (FetchAdd, $memory:ident, $n:ident, $payload:ident) => {
        wr::fetch_add($payload, peer_slot($memory, $n)?, 1)
    };
}

/// Implements the verbs of transports.
macro_rules! verbs {
    ($trait:ident<$bound:ident>: $($transport:ident: $($verb:ident),+;)+) => {$($(
        impl $trait<$transport> for $verb {
            #[inline]
            #[allow(unused_variables, reason = "a send has no remote memory")]
            fn request<P: $bound>(
                to: <$transport as DataPathTransport>::Address,
                memory: &Memory,
                n: u64,
                payload: P,
            ) -> ibverbs::Result<SendRequest<impl Operation<$transport, P>, P>> {
                let request = request!($verb, memory, n, payload);
                Ok($transport::address(request, to))
            }
        }
    )+)+};
}

verbs! { SendVerb<SendPayload>:
    Rc: Send, SendNumbered, Write, WriteNumbered;
    Uc: SendNumbered, Write, WriteNumbered;
    Ud: SendNumbered;
    XrcSend: Send, SendNumbered, Write, WriteNumbered;
    Srd: SendNumbered, Write, WriteNumbered;
    Dc: Send, SendNumbered, Write, WriteNumbered;
}

verbs! { FetchVerb<ReadPayload>:
    Rc: Read, CompareSwap, FetchAdd;
    XrcSend: Read, CompareSwap, FetchAdd;
    Srd: Read;
    Dc: Read, CompareSwap, FetchAdd;
}

/// Returns the memory of the peer that message `n` accesses.
#[inline]
fn peer_slot(memory: &Memory, n: u64) -> ibverbs::Result<RemoteMemory> {
    memory
        .peer_slot(n)
        .ok_or_else(|| missing("memory of the peer"))
}

/// Memory from which messages are sent.
pub(super) trait Source {
    /// The payload of a message.
    type Payload<'a>: SendPayload;

    /// Prepares the memory for message `n`.
    #[inline]
    fn prepare(_: &mut Memory, _: u64) -> ibverbs::Result<()> {
        Ok(())
    }

    /// Returns the payload of message `n`.
    fn payload<'a>(
        held: &HeldMemory,
        memory: &'a Memory,
        n: u64,
    ) -> ibverbs::Result<Self::Payload<'a>>;
}

/// The same bytes for all messages, copied when a message is posted.
pub(super) struct Inline;

impl Source for Inline {
    type Payload<'a> = wr::Inline<'a>;

    #[inline]
    fn payload<'a>(_: &HeldMemory, memory: &'a Memory, _: u64) -> ibverbs::Result<wr::Inline<'a>> {
        Ok(wr::Inline(&memory.message))
    }
}

/// A source whose last byte is the mark of the message.
pub(super) struct Marked<S>(PhantomData<S>);

impl<S: Source> Source for Marked<S> {
    type Payload<'a> = S::Payload<'a>;

    #[inline]
    fn prepare(memory: &mut Memory, n: u64) -> ibverbs::Result<()> {
        memory.write_marked(n)
    }

    #[inline]
    fn payload<'a>(
        held: &HeldMemory,
        memory: &'a Memory,
        n: u64,
    ) -> ibverbs::Result<S::Payload<'a>> {
        S::payload(held, memory, n)
    }
}

/// The part of frozen memory that ends with the mark of the message.
pub(super) struct MarkedPart;

impl Source for MarkedPart {
    type Payload<'a> = Held<Frozen>;

    #[inline]
    fn payload(held: &HeldMemory, memory: &Memory, n: u64) -> ibverbs::Result<Held<Frozen>> {
        let range = marks::part(n, memory.shape.msg_size as usize);
        let part = held.frozen.and_then(|source| source.slice(range));
        part.ok_or_else(|| missing("source"))
    }
}

/// A buffer for each message.
pub(super) struct OwnBuffer;

impl Source for OwnBuffer {
    type Payload<'a> = Buf;

    fn payload(_: &HeldMemory, memory: &Memory, n: u64) -> ibverbs::Result<Buf> {
        let Content::Distinct { sends, .. } = &memory.content else {
            return Err(missing("source"));
        };
        let mut payload = sends.take().ok_or_else(|| missing("free buffer"))?;
        if memory.shape.verify {
            memory.payload.fill(&mut payload, n);
        }
        Ok(payload)
    }
}

/// Memory that a queue pair holds.
pub(super) trait Holdable: Hold + Sized {
    /// Returns the token of the memory.
    fn token(held: &HeldMemory) -> Option<Held<Self>>;
}

impl Holdable for Frozen {
    #[inline]
    fn token(held: &HeldMemory) -> Option<Held<Self>> {
        held.frozen
    }
}

impl Holdable for SharedRegion {
    #[inline]
    fn token(held: &HeldMemory) -> Option<Held<Self>> {
        held.shared
    }
}

impl Holdable for DeviceRegion {
    #[inline]
    fn token(held: &HeldMemory) -> Option<Held<Self>> {
        held.gpu
    }
}

/// The same held memory for all messages.
impl<M: Holdable> Source for M
where
    Held<M>: SendPayload,
{
    type Payload<'a> = Held<M>;

    #[inline]
    fn payload(held: &HeldMemory, _: &Memory, _: u64) -> ibverbs::Result<Held<M>> {
        M::token(held).ok_or_else(|| missing("source"))
    }
}

/// Returns the memory that message `n` is fetched into.
#[inline]
pub(super) fn fetch_target<M: Holdable>(
    held: &HeldMemory,
    memory: &Memory,
    n: u64,
) -> ibverbs::Result<Held<M>> {
    let target = M::token(held).and_then(|held| memory.fetch_slot(held, n));
    target.ok_or_else(|| missing("memory to fetch into"))
}

/// Returns the error of a request that lacks one of its parts.
#[cold]
pub(super) fn missing(what: &str) -> ibverbs::Error {
    ibverbs::Error::new(
        ibverbs::ErrorKind::InvalidInput,
        "post",
        format!("there is no {what}"),
    )
}
