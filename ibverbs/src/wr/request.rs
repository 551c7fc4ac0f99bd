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

use rdma_sys::{IBV_SEND_FENCE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED};

use super::address::Destination;
use super::message::{Send, SendTo, SendToWithImm, SendWithImm};
use super::one_sided::{CompareSwap, FetchAdd, RdmaRead, RdmaWrite, RdmaWriteWithImm};
use super::payload::private::Payload;
use super::payload::{ReadPayload, RecvPayload, SendPayload};
use super::window::{Bind, Invalidate, SendWithInv};
use crate::mr::RemoteMemory;
use crate::mw::{Binding, BoundWindow, Type2};

/// A request for the send queue: an operation `O` on a payload `P`.
///
/// # Example
/// Requests to post later, of one operation on one kind of memory:
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, bufs: Vec<Buf>) -> ibverbs::Result<()> {
/// let requests: Vec<wr::SendRequest<_, Buf>> = bufs
///     .into_iter()
///     .zip(1..)
///     .map(|(buf, tag)| wr::send(buf).tag(tag).solicited())
///     .collect();
/// for request in requests {
///     qp.post_send(request)?;
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html); IBA 10.8
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct SendRequest<O, P> {
    pub(crate) operation: O,
    pub(crate) payload: P,
    pub(crate) flags: u32,
    pub(crate) tag: u64,
}

impl<O, P> SendRequest<O, P> {
    fn sending(operation: O, mut payload: P) -> Self
    where
        P: Payload,
    {
        payload.prepare_source();
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

    /// A number of your own, which comes back with the completion.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Asks for no completion if the request succeeds. The next signalled one retires it too; its
    /// buffer then goes back to its pool.
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
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf) -> ibverbs::Result<()> {
/// let request: wr::RecvRequest<Buf> = wr::recv(buf).tag(7);
/// qp.post_recv(request)?; // Retired::tag will be 7
///
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct RecvRequest<P> {
    pub(crate) payload: P,
    pub(crate) tag: u64,
}

impl<P> RecvRequest<P> {
    /// A number of your own, which comes back with the completion.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// What it would receive into, given back.
    pub fn into_payload(self) -> P {
        self.payload
    }
}

/// Sends the payload to a receive of the peer.
pub fn send<P: SendPayload>(payload: P) -> SendRequest<Send, P> {
    SendRequest::sending(Send, payload)
}

/// As [`send`], with 32 bits of immediate data that arrive in the completion.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// qp.post_send(wr::send_with_imm(wr::Inline(b"row"), 17))?; // there, Retired::imm_data is Some(17)
/// # Ok(()) }
/// ```
pub fn send_with_imm<P: SendPayload>(payload: P, imm_data: u32) -> SendRequest<SendWithImm, P> {
    SendRequest::sending(SendWithImm(imm_data), payload)
}

/// Sends the payload as one datagram. It must fit into one packet: at most the port's MTU.
pub fn send_to<P: SendPayload>(payload: P, destination: Destination) -> SendRequest<SendTo, P> {
    SendRequest::sending(SendTo(destination), payload)
}

/// As [`send_to`], with 32 bits of immediate data that arrive in the completion.
pub fn send_to_with_imm<P: SendPayload>(
    payload: P,
    destination: Destination,
    imm_data: u32,
) -> SendRequest<SendToWithImm, P> {
    SendRequest::sending(SendToWithImm(destination, imm_data), payload)
}

/// As [`send`], and invalidates the peer's memory window with this remote key when it arrives.
///
/// The key of anything but a window of type 2 that the peer's queue pair has bound makes the peer's
/// receive fail, and ends the connection there; Soft-RoCE tells its sender of a success all the
/// same. Soft-iWARP, which has no windows, takes that of any region of the peer's domain instead,
/// which nobody can use from then on.
///
/// # Example
/// A server that has done with a client's window:
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, answer: Buf, window_of_the_client: RemoteMemory) -> ibverbs::Result<()> {
/// qp.post_send(wr::send_with_inv(answer, window_of_the_client.rkey))?;
/// # Ok(()) }
/// ```
pub fn send_with_inv<P: SendPayload>(payload: P, rkey: u32) -> SendRequest<SendWithInv, P> {
    SendRequest::sending(SendWithInv(rkey), payload)
}

/// Binds a window of type 2, as [`Window::bind`](crate::mw::Window::bind) prepared it. Requests
/// after this one may tell the peer its key.
pub fn bind(binding: Binding) -> SendRequest<Bind, Binding> {
    SendRequest::new(Bind::new(&binding), binding)
}

/// Ends the binding of a window of type 2: a peer can no longer use its key.
/// [`Retired::into_window`](crate::Retired::into_window) gives it
/// back. [Fence](SendRequest::fenced) it when RDMA reads of this side into the memory come before.
pub fn invalidate(window: BoundWindow<Type2>) -> SendRequest<Invalidate, BoundWindow<Type2>> {
    SendRequest::new(Invalidate(window.remote().rkey), window)
}

/// Writes the payload to the start of `remote`, memory of the peer that is open to writes. The
/// peer's processor takes no part.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, buf: Buf, told_by_the_peer: RemoteMemory) -> ibverbs::Result<()> {
/// qp.post_send(wr::write(buf, told_by_the_peer))?;
/// # Ok(()) }
/// ```
pub fn write<P: SendPayload>(payload: P, remote: RemoteMemory) -> SendRequest<RdmaWrite, P> {
    SendRequest::sending(RdmaWrite(remote), payload)
}

/// As [`write`](fn@write), and takes one receive of the peer, whose completion carries 32 bits of
/// immediate data.
pub fn write_with_imm<P: SendPayload>(
    payload: P,
    remote: RemoteMemory,
    imm_data: u32,
) -> SendRequest<RdmaWriteWithImm, P> {
    SendRequest::sending(RdmaWriteWithImm(remote, imm_data), payload)
}

/// Reads all of `remote` into the payload, which must be at least as large. A buffer then shows
/// what was read.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, told_by_the_peer: RemoteMemory) -> ibverbs::Result<()> {
/// let buf = qp.pd().buf(4096)?;
/// let first_page = told_by_the_peer.slice(0, 4096).expect("a page at least");
/// qp.post_send(wr::read(buf, first_page))?; // Retired::into_buf shows it
///
/// # Ok(()) }
/// ```
pub fn read<P: ReadPayload>(payload: P, remote: RemoteMemory) -> SendRequest<RdmaRead, P> {
    SendRequest::new(RdmaRead(remote), payload)
}

/// Replaces the 8 bytes at `remote` by `swap` if they equal `compare`; what was there before
/// arrives in the payload's first 8 bytes.
///
/// Both sides' bytes are a number in their host's order.
///
/// # Example
/// Takes a lock that the peer's memory begins with, if it is free (0):
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, lock: RemoteMemory) -> ibverbs::Result<()> {
/// let before = qp.pd().buf(8)?;
/// qp.post_send(wr::compare_swap(before, lock, 0, qp.qp_num().0.into()))?;
/// // when it has completed: the lock is ours if the buffer holds u64::to_ne_bytes(0)
/// # Ok(()) }
/// ```
pub fn compare_swap<P: ReadPayload>(
    payload: P,
    remote: RemoteMemory,
    compare: u64,
    swap: u64,
) -> SendRequest<CompareSwap, P> {
    SendRequest::new(
        CompareSwap {
            remote,
            compare,
            swap,
        },
        payload,
    )
}

/// Adds `add` to the 8 bytes at `remote`; what was there before arrives in the payload's first 8
/// bytes.
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
    SendRequest::new(FetchAdd { remote, add }, payload)
}

/// Receives one message.
pub fn recv<P: RecvPayload>(mut payload: P) -> RecvRequest<P> {
    payload.prepare_target();
    RecvRequest { payload, tag: 0 }
}
