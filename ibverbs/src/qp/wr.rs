//! Work requests: what to do, with which memory.
//!
//! ```no_run
//! # use ibverbs::{wr, Buf, QueuePair, Rc, PostError};
//! # fn post(qp: &mut QueuePair<Rc>, a: Buf, b: Buf, c: Buf) -> Result<(), ibverbs::Error> {
//! qp.post_recv(wr::recv(a).tag(1))?;
//! qp.post_send(wr::send(b))?;
//! qp.post_send(wr::send(c).unsignaled())?;
//! qp.post_send(wr::send(wr::Inline(b"copied at once")))?;
//! # Ok(()) }
//! ```

use rdma_sys::{IBV_SEND_FENCE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, ibv_sge};

use super::inflight::InFlight;
use super::operation::{Send, SendWithImm};
use crate::identity::QueueId;
use crate::mr::{Buf, Frozen, Held, Sink};
use crate::pd::ProtectionDomain;

/// A request for the send queue: an operation `O` on a payload `P`.
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct SendRequest<O, P> {
    pub(super) operation: O,
    pub(super) payload: P,
    pub(super) flags: u32,
    pub(super) tag: u64,
}

impl<O, P> SendRequest<O, P> {
    fn new(operation: O, payload: P) -> Self {
        Self { operation, payload, flags: IBV_SEND_SIGNALED, tag: 0 }
    }

    /// A number of your own, which comes back with the completion.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Asks for no completion if the request succeeds. The next signalled one retires it too; its buffer then goes back to its pool.
    ///
    /// Signal at least one request in each queue's length, or the queue fills up for ever.
    pub fn unsignaled(mut self) -> Self {
        self.flags &= !IBV_SEND_SIGNALED;
        self
    }

    /// Wakes a receiver that armed its completion queue for solicited events only.
    pub fn solicited(mut self) -> Self {
        self.flags |= IBV_SEND_SOLICITED;
        self
    }

    /// Starts only when all RDMA reads and atomics posted before it are done.
    pub fn fenced(mut self) -> Self {
        self.flags |= IBV_SEND_FENCE;
        self
    }

    /// What it would send, given back.
    pub fn into_payload(self) -> P {
        self.payload
    }
}

/// A request for the receive queue.
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct RecvRequest<P> {
    pub(super) payload: P,
    pub(super) tag: u64,
}

impl<P> RecvRequest<P> {
    /// A number of your own, which comes back with the completion.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }
}

/// Sends the payload to a receive of the peer.
pub fn send<P: SendPayload>(payload: P) -> SendRequest<Send, P> {
    SendRequest::new(Send, payload)
}

/// As [`send`], with 32 bits of immediate data that arrive in the completion.
pub fn send_with_imm<P: SendPayload>(payload: P, imm_data: u32) -> SendRequest<SendWithImm, P> {
    SendRequest::new(SendWithImm(imm_data), payload)
}

/// Receives one message.
pub fn recv<P: RecvPayload>(payload: P) -> RecvRequest<P> {
    RecvRequest { payload, tag: 0 }
}

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
        fn belongs(&self) -> Belongs<'_>;
        fn into_in_flight(self) -> InFlight;
    }

    /// The memory that a send reads.
    pub trait Source: Payload {
        fn gather(&self) -> Gather<'_>;
    }

    /// The memory that a receive writes.
    pub trait Target: Payload {
        fn scatter(&self) -> Gather<'_>;
    }
}

use private::{Payload, Source, Target};

/// What can be sent: [`Buf`], [`Held<Frozen>`](Held), [`Inline`], [`Empty`]. Sealed.
pub trait SendPayload: Source {}

/// What can be received into: [`Buf`], [`Held<Sink>`](Held), [`Empty`]. Sealed.
pub trait RecvPayload: Target {}

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

impl<K> Payload for Held<K> {
    #[inline]
    fn belongs(&self) -> Belongs<'_> {
        Belongs::HeldBy(self.queue())
    }
    #[inline]
    fn into_in_flight(self) -> InFlight {
        InFlight::Nothing
    }
}

impl Source for Held<Frozen> {
    #[inline]
    fn gather(&self) -> Gather<'_> {
        Gather::One(self.sge())
    }
}

impl SendPayload for Held<Frozen> {}

impl Target for Held<Sink> {
    #[inline]
    fn scatter(&self) -> Gather<'_> {
        Gather::One(self.sge())
    }
}

impl RecvPayload for Held<Sink> {}

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
