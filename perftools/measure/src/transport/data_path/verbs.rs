//! The parts of a request: a [`DataPathTransport`], a [`SendVerb`] or a [`FetchVerb`], and the
//! [`Source`] of its payload or the memory that it fetches into.

use std::marker::PhantomData;

use ibverbs::{
    Buf, ConnectedDuplexTransport, DeviceRegion, Frozen, Held, Hold, QueuePair, Rc, RemoteMemory,
    SendTransport, SharedRegion, Uc, Ud,
    wr::{self, Destination, Operation, ReadPayload, SendPayload, SendRequest},
    xrc::{SrqNum, XrcSend},
};

use super::marks;
use super::memory::{Content, Memory};
use super::message_number::low_bits;
use super::qp::{AnyQp, HeldMemory};

/// A transport of the tests, and the address that its requests need.
pub(super) trait DataPathTransport: SendTransport + Sized {
    /// Address of the peer.
    type Address: Copy;

    /// Returns the queue pair that sends, and the address of the peer. Returns `None` if the queue
    /// pair has another transport.
    fn sender(qp: &mut AnyQp) -> Option<(&mut QueuePair<Self>, Self::Address)>;
}

impl DataPathTransport for Rc {
    type Address = ();

    #[inline]
    fn sender(qp: &mut AnyQp) -> Option<(&mut QueuePair<Rc>, ())> {
        match qp {
            AnyQp::Rc(qp) => Some((qp, ())),
            AnyQp::Cm(connection) => Some((connection.qp_mut(), ())),
            _ => None,
        }
    }
}

impl DataPathTransport for Uc {
    type Address = ();

    #[inline]
    fn sender(qp: &mut AnyQp) -> Option<(&mut QueuePair<Uc>, ())> {
        match qp {
            AnyQp::Uc(qp) => Some((qp, ())),
            _ => None,
        }
    }
}

impl DataPathTransport for Ud {
    type Address = Destination;

    #[inline]
    fn sender(qp: &mut AnyQp) -> Option<(&mut QueuePair<Ud>, Destination)> {
        match qp {
            AnyQp::Ud(qp, to) => Some((qp, *to)),
            _ => None,
        }
    }
}

impl DataPathTransport for XrcSend {
    type Address = SrqNum;

    #[inline]
    fn sender(qp: &mut AnyQp) -> Option<(&mut QueuePair<XrcSend>, SrqNum)> {
        match qp {
            AnyQp::Xrc(connection) => Some((&mut connection.sender, connection.peer_srq)),
            _ => None,
        }
    }
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

/// Send.
pub(super) struct Send;

impl SendVerb<Rc> for Send {
    #[inline]
    fn request<P: SendPayload>(
        (): (),
        _: &Memory,
        _: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Rc, P>, P>> {
        Ok(wr::send(payload))
    }
}

/// Send to the shared receive queue of the peer.
impl SendVerb<XrcSend> for Send {
    #[inline]
    fn request<P: SendPayload>(
        to: SrqNum,
        _: &Memory,
        _: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<XrcSend, P>, P>> {
        Ok(wr::send(payload).for_srq(to))
    }
}

/// Send with the number of the message, on services that may lose it.
pub(super) struct SendNumbered;

impl SendVerb<Uc> for SendNumbered {
    #[inline]
    fn request<P: SendPayload>(
        (): (),
        _: &Memory,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Uc, P>, P>> {
        Ok(wr::send_with_imm(payload, low_bits(n)))
    }
}

impl SendVerb<Ud> for SendNumbered {
    #[inline]
    fn request<P: SendPayload>(
        to: Destination,
        _: &Memory,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Ud, P>, P>> {
        Ok(wr::send_to_with_imm(payload, to, low_bits(n)))
    }
}

/// RDMA write.
pub(super) struct Write;

impl<T: DataPathTransport + ConnectedDuplexTransport> SendVerb<T> for Write {
    #[inline]
    fn request<P: SendPayload>(
        _: T::Address,
        memory: &Memory,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>> {
        Ok(wr::write(payload, peer_slot(memory, n)?))
    }
}

/// RDMA write with the number of the message as immediate data.
pub(super) struct WriteNumbered;

impl<T: DataPathTransport + ConnectedDuplexTransport> SendVerb<T> for WriteNumbered {
    #[inline]
    fn request<P: SendPayload>(
        _: T::Address,
        memory: &Memory,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>> {
        Ok(wr::write_with_imm(
            payload,
            peer_slot(memory, n)?,
            low_bits(n),
        ))
    }
}

/// A verb of reliable connections that returns data of the peer.
pub(super) trait FetchVerb {
    /// Makes the request of message `n`.
    fn request<P: ReadPayload>(
        memory: &Memory,
        n: u64,
        target: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Rc, P>, P>>;
}

/// RDMA read.
pub(super) struct Read;

impl FetchVerb for Read {
    #[inline]
    fn request<P: ReadPayload>(
        memory: &Memory,
        n: u64,
        target: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Rc, P>, P>> {
        Ok(wr::read(target, peer_slot(memory, n)?))
    }
}

/// Atomic compare-and-swap.
pub(super) struct CompareSwap;

impl FetchVerb for CompareSwap {
    #[inline]
    fn request<P: ReadPayload>(
        memory: &Memory,
        n: u64,
        target: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Rc, P>, P>> {
        // Each queue pair has a counter of its own in the peer's memory.
        let count = n / u64::from(memory.shape.qps);
        Ok(wr::compare_swap(
            target,
            peer_slot(memory, n)?,
            count,
            count + 1,
        ))
    }
}

/// Atomic fetch-and-add.
pub(super) struct FetchAdd;

impl FetchVerb for FetchAdd {
    #[inline]
    fn request<P: ReadPayload>(
        memory: &Memory,
        n: u64,
        target: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Rc, P>, P>> {
        Ok(wr::fetch_add(target, peer_slot(memory, n)?, 1))
    }
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
