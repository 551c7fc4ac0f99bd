//! Work requests: an operation, its payload and its flags.
//!
//! ```no_run
//! # use ibverbs::{wr, Buf, QueuePair, Rc, PostError};
//! # fn post(qp: &mut QueuePair<Rc>, a: Buf, b: Buf, c: Buf) -> Result<(), ibverbs::Error> {
//! qp.post_recv(wr::recv(a).tag(1))?;
//! qp.post_send(wr::send(b))?;
//! qp.post_send(wr::send(c).signaled(false))?;
//! qp.post_send(wr::send(wr::Inline(b"copied when posted")))?;
//! # Ok(()) }
//! ```

use rdma_sys::{IBV_SEND_FENCE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED};

use super::flush::{AtomicWrite, Flush, FlushPlacement};
use super::message::{Send, SendWithImm};
use super::one_sided::{CompareSwap, FetchAdd, RdmaRead, RdmaWrite, RdmaWriteWithImm};
use super::operation::private::Transfer;
use super::owner::Owner;
use super::payload::private::Payload;
use super::payload::{ReadPayload, RecvPayload, SendPayload};
use super::unregistered::Empty;
use super::window::{Bind, Invalidate, SendWithInv};
use crate::in_flight::{CompletionOrder, InFlight, Owned, Request};
use crate::mr::RemoteMemory;
use crate::mw::{Binding, BoundWindow, Type2};

/// Flags of a send, and what the table of requests must know.
#[derive(Clone, Copy)]
pub(crate) struct PostFlags {
    /// The flags of the verb (`IBV_SEND_*`).
    pub(crate) flags: u32,
    /// `true` if the table must hold an [`InFlight::Marker`] for the request.
    pub(crate) needs_mark: bool,
}

impl PostFlags {
    const fn new(flags: u32, needs_mark: bool) -> Self {
        Self { flags, needs_mark }
    }
}

/// A request for the send queue: an operation `O` on a payload `P`.
///
/// # Example
/// Requests prepared now and posted later:
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, bufs: Vec<Buf>) -> ibverbs::Result<()> {
/// let requests: Vec<wr::SendRequest<_, Buf>> = bufs
///     .into_iter()
///     .zip(1..)
///     .map(|(buf, tag)| wr::send(buf).tag(tag).solicited(true))
///     .collect();
/// for request in requests {
///     qp.post_send(request)?;
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html); IBA 10.8
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct SendRequest<O, P> {
    pub(crate) operation: O,
    pub(crate) payload: P,
    pub(crate) flags: u32,
    pub(crate) tag: u64,
}

impl<O, P> SendRequest<O, P> {
    fn with_source(operation: O, mut payload: P) -> Self
    where
        P: Payload,
    {
        payload.prepare_source();
        Self::new(operation, payload)
    }

    fn fetching(operation: O, mut payload: P, len: u64) -> Self
    where
        P: Payload,
    {
        payload.prepare_fetch(len);
        Self::new(operation, payload)
    }

    fn new(operation: O, payload: P) -> Self {
        Self {
            operation,
            payload,
            flags: IBV_SEND_SIGNALED,
            tag: 0,
        }
    }

    /// Sets a number that [`Retired::tag`](crate::Retired::tag) returns when the request completes.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Sets whether a success has a completion (default: true). Without one, the completion of the
    /// next signaled request retires this one too, and its buffer returns to its pool.
    ///
    /// At least one in every [`max_send_wr`](crate::QpCaps::max_send_wr) requests must be signaled.
    /// Otherwise the queue stays full.
    ///
    /// On other transports than InfiniBand and RoCE, `false` has an effect only over iWARP, and
    /// only on sends and writes of memory that cannot change: of [`Inline`](crate::wr::Inline)
    /// data, of [`Empty`], and of a [`Held`](crate::Held) token of
    /// [`frozen_shared`](crate::ProtectionDomain::frozen_shared) memory. All other requests have a
    /// completion, because a later one does not prove that the device has finished with the memory:
    /// Soft-iWARP completes READs late, and transmits large unsignaled messages after a later
    /// request has completed. The completion queue needs an entry for each request in flight.
    pub fn signaled(self, signaled: bool) -> Self {
        self.flag(IBV_SEND_SIGNALED, signaled)
    }

    /// Sets whether the message raises an event at a receiver that armed its completion queue for
    /// solicited events only (default: false).
    pub fn solicited(self, solicited: bool) -> Self {
        self.flag(IBV_SEND_SOLICITED, solicited)
    }

    /// Sets whether the request waits until all RDMA reads and atomics that were posted before it
    /// have completed (default: false).
    pub fn fenced(self, fenced: bool) -> Self {
        self.flag(IBV_SEND_FENCE, fenced)
    }

    #[inline]
    fn flag(mut self, flag: u32, is_set: bool) -> Self {
        self.flags = self.flags & !flag | if is_set { flag } else { 0 };
        self
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }

    /// Returns how to post the request to a queue whose requests complete in this order. A
    /// completion is requested if the queue would otherwise not learn when the device has finished
    /// with the payload.
    #[inline]
    pub(crate) fn flags_for(&self, order: CompletionOrder, owner: &Owner) -> PostFlags
    where
        P: Payload,
    {
        if order != CompletionOrder::Unsignaled || self.flags & IBV_SEND_SIGNALED != 0 {
            PostFlags::new(self.flags, false)
        } else if owner.may_be_read_late(self.payload.device_reads()) {
            PostFlags::new(self.flags, true)
        } else {
            PostFlags::new(self.flags | IBV_SEND_SIGNALED, false)
        }
    }

    /// Returns what the table keeps while the request is in flight. `needs_mark` is that of
    /// [`flags_for`](Self::flags_for).
    #[inline]
    pub(crate) fn into_in_flight(self, needs_mark: bool) -> Request
    where
        O: Transfer<P>,
        P: Payload,
    {
        let in_flight = if needs_mark {
            Some(InFlight::Marker)
        } else {
            self.operation.into_in_flight(self.payload)
        };
        Request {
            owned: Owned::new(in_flight),
            tag: self.tag,
        }
    }
}

/// A request for the receive queue.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf) -> ibverbs::Result<()> {
/// let request: wr::RecvRequest<Buf> = wr::recv(buf).tag(7);
/// qp.post_recv(request)?; // Retired::tag will return 7
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_post_recv")]
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct RecvRequest<P> {
    pub(crate) payload: P,
    pub(crate) tag: u64,
}

impl<P> RecvRequest<P> {
    /// Sets a number that [`Retired::tag`](crate::Retired::tag) returns when the request completes.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }
}

/// Creates a request that sends the payload. The message consumes one receive of the peer.
pub fn send<P: SendPayload>(payload: P) -> SendRequest<Send, P> {
    SendRequest::with_source(Send, payload)
}

/// Like [`send`], with 32 bits of immediate data for the completion of the peer's receive.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// qp.post_send(wr::send_with_imm(wr::Inline(b"row"), 17))?; // the peer's Retired::imm_data returns Some(17)
/// # Ok(()) }
/// ```
pub fn send_with_imm<P: SendPayload>(payload: P, imm_data: u32) -> SendRequest<SendWithImm, P> {
    SendRequest::with_source(SendWithImm(imm_data), payload)
}

/// Like [`send`], and invalidates the peer's memory window that has this remote key.
///
/// The key must belong to a type 2 window that the peer's queue pair has bound. With any other key
/// the peer's receive fails and the connection ends there. On Soft-RoCE the sender's completion
/// reports success even then. Soft-iWARP has no windows: there the key of any region in the peer's
/// domain is accepted, and that region can no longer be used.
///
/// # Example
/// A server answers and invalidates the client's window, which it no longer needs:
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, answer: Buf, client_window: RemoteMemory) -> ibverbs::Result<()> {
/// qp.post_send(wr::send_with_inv(answer, client_window.rkey))?;
/// # Ok(()) }
/// ```
pub fn send_with_inv<P: SendPayload>(payload: P, rkey: u32) -> SendRequest<SendWithInv, P> {
    SendRequest::with_source(SendWithInv(rkey), payload)
}

/// Creates a request that binds a type 2 window, prepared by
/// [`Window::bind`](crate::mw::Window::bind). Requests posted after it may send the key to the
/// peer.
pub fn bind(binding: Binding) -> SendRequest<Bind, Binding> {
    SendRequest::new(Bind::new(&binding), binding)
}

/// Creates a request that ends the binding of a type 2 window. The peer can no longer use its key,
/// and [`Retired::into_window`](crate::Retired::into_window) returns the window.
///
/// [Fence](SendRequest::fenced) the request if RDMA reads into the window's memory precede it.
pub fn invalidate(window: BoundWindow<Type2>) -> SendRequest<Invalidate, BoundWindow<Type2>> {
    SendRequest::new(Invalidate(window.remote().rkey), window)
}

/// Creates a request that writes the payload to the start of `remote`, which the peer must have
/// registered for remote writes. The peer's processor is not involved.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf, remote: RemoteMemory) -> ibverbs::Result<()> {
/// qp.post_send(wr::write(buf, remote))?;
/// # Ok(()) }
/// ```
pub fn write<P: SendPayload>(payload: P, remote: RemoteMemory) -> SendRequest<RdmaWrite, P> {
    SendRequest::with_source(RdmaWrite(remote), payload)
}

/// Like [`write`](fn@write), and consumes one receive of the peer, whose completion has 32 bits of
/// immediate data.
pub fn write_with_imm<P: SendPayload>(
    payload: P,
    remote: RemoteMemory,
    imm_data: u32,
) -> SendRequest<RdmaWriteWithImm, P> {
    SendRequest::with_source(RdmaWriteWithImm(remote, imm_data), payload)
}

/// Creates a request that reads all of `remote` into the payload, which must be at least as large.
/// The length of a buffer, or of the buffers of a list in their order, becomes that of `remote`. A
/// list of held memory must have exactly its length.
///
/// A list may have at most [`max_sge_rd`](crate::DeviceAttr::max_sge_rd) entries, which is 1 on
/// Soft-iWARP.
///
/// On iWARP the payload must be a held [`SharedRegion`](crate::SharedRegion) with
/// [`REMOTE_WRITE`](crate::AccessFlags::REMOTE_WRITE), because the peer sends the response like a
/// write. Other payloads are refused. A program that does so runs on all devices.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, remote: RemoteMemory) -> ibverbs::Result<()> {
/// let buf = qp.pd().buf(4096)?;
/// let first_page = remote.slice(0..4096).expect("at least one page");
/// qp.post_send(wr::read(buf, first_page))?; // Retired::into_buf returns the data
/// # Ok(()) }
/// ```
pub fn read<P: ReadPayload>(payload: P, remote: RemoteMemory) -> SendRequest<RdmaRead, P> {
    SendRequest::fetching(RdmaRead(remote), payload, remote.len)
}

/// Creates a request that replaces the 8 bytes at `remote` with `swap` if they equal `compare`. The
/// previous value is written to the first 8 bytes of the payload, and a buffer has that length
/// afterwards. [`Buf::into_slice`](crate::Buf::into_slice) and
/// [`Held::slice`](crate::Held::slice) select other bytes.
///
/// On each host the 8 bytes are a number in that host's byte order.
///
/// # Example
/// Acquires a lock in the first word of the peer's memory if it is free (0):
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, lock: RemoteMemory) -> ibverbs::Result<()> {
/// let previous = qp.pd().buf(8)?;
/// qp.post_send(wr::compare_swap(previous, lock, 0, qp.qp_num().0.into()))?;
/// // after completion, the lock is acquired if the buffer holds u64::to_ne_bytes(0)
/// # Ok(()) }
/// ```
pub fn compare_swap<P: ReadPayload>(
    payload: P,
    remote: RemoteMemory,
    compare: u64,
    swap: u64,
) -> SendRequest<CompareSwap, P> {
    let operation = CompareSwap {
        remote,
        compare,
        swap,
    };
    SendRequest::fetching(operation, payload, 8)
}

/// Creates a request that adds `add` to the 8 bytes at `remote`. The previous value is written to
/// the first 8 bytes of the payload, as by [`compare_swap`].
///
/// # Example
/// Takes a ticket from a counter in the peer's memory:
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, counter: RemoteMemory) -> ibverbs::Result<()> {
/// let ticket = qp.pd().buf(8)?;
/// qp.post_send(wr::fetch_add(ticket, counter, 1))?;
/// # Ok(()) }
/// ```
pub fn fetch_add<P: ReadPayload>(
    payload: P,
    remote: RemoteMemory,
    add: u64,
) -> SendRequest<FetchAdd, P> {
    SendRequest::fetching(FetchAdd { remote, add }, payload, 8)
}

/// Creates a request that writes 8 bytes to `remote`, which must be aligned to 8 bytes. No reader
/// sees a part of them. They are written after everything that was posted before.
///
/// The queue pair must be created with [`OptionalOps::ATOMIC_WRITE`](crate::qp::OptionalOps), and
/// the memory needs [`REMOTE_WRITE`](crate::AccessFlags::REMOTE_WRITE).
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, tail: RemoteMemory, position: u64) -> ibverbs::Result<()> {
/// qp.post_send(wr::atomic_write(tail, position.to_le_bytes()))?;
/// # Ok(()) }
/// ```
pub fn atomic_write(remote: RemoteMemory, bytes: [u8; 8]) -> SendRequest<AtomicWrite, Empty> {
    SendRequest::new(AtomicWrite { remote, bytes }, Empty)
}

/// Creates a request that completes when earlier writes of this queue pair to `remote` have reached
/// `placement`. The completion of a write alone only says that the peer's adapter has the data.
///
/// The queue pair must be created with [`OptionalOps::FLUSH`](crate::qp::OptionalOps). The memory
/// and the [path](crate::RcPath::access) of the peer need the access rights of the placement.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, record: Buf, log: RemoteMemory) -> ibverbs::Result<()> {
/// qp.post_send(wr::write(record, log).signaled(false))?;
/// qp.post_send(wr::flush(log, wr::FlushPlacement::PERSISTENT))?;
/// # Ok(()) }
/// ```
pub fn flush(remote: RemoteMemory, placement: FlushPlacement) -> SendRequest<Flush, Empty> {
    SendRequest::new(Flush::range(remote, placement), Empty)
}

/// Like [`flush`], for the whole region with the key of `remote`. Its address and length have no
/// meaning.
pub fn flush_region(remote: RemoteMemory, placement: FlushPlacement) -> SendRequest<Flush, Empty> {
    SendRequest::new(Flush::region(remote, placement), Empty)
}

/// Creates a request that receives one message.
pub fn recv<P: RecvPayload>(mut payload: P) -> RecvRequest<P> {
    payload.prepare_target();
    RecvRequest { payload, tag: 0 }
}
