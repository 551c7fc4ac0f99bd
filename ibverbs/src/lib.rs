//! Safe RDMA verbs: RAII over libibverbs, with no `unsafe` in user code, data path included.
//!
//! # The objects
//!
//! ```text
//! Device ── open ──▶ Context ──▶ ProtectionDomain ──▶ Pool ──▶ Buf ──▶ Frozen
//!                      │              │     │      ├▶ Sink
//!                      │              │     │      └▶ SharedRegion ──▶ Window
//!                      │              │     └▶ AddressHandle        (move in, or are held)
//!                      │              ├▶ SharedReceiveQueue ─────────────┐
//!                      ├▶ AsyncEvents │                                  ▼
//!                      ├▶ CompletionChannel                         QueuePair<T>   T: Rc, Uc, Ud, XrcSend, RawPacket
//!                      ├▶ CompletionQueue ── poll ──▶ Completion ────────┘ retire ──▶ Retired ──▶ Buf
//!                      └▶ XrcDomain ──▶ XrcRecvQueuePair, SharedReceiveQueue<Xrc>
//! ```
//!
//! Each keeps alive what it stands on, so that they may be dropped in any order. What the device
//! cannot destroy is leaked and [counted](leaked_objects), never freed.
//!
//! # A first program
//!
//! Two queue pairs of one process, one message; any RoCE or InfiniBand device will do, also one of
//! software (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```no_run
//! use ibverbs::{CqOptions, Device, GidQuery, QpOptions, Rc, RcPath, wr};
//!
//! let context = Device::by_name("rxe0")?.open()?;
//! let gid = context.select_gid(1, &GidQuery::default())?.entry;
//! let path = RcPath::new(1, gid.index, context.query_port(1)?.active_mtu);
//! let pd = context.alloc_pd()?;
//! let mut cq = context.create_cq(CqOptions::default())?;
//! let mut a = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
//! let mut b = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
//! a.init(&path)?;
//! b.init(&path)?;
//! a.connect(&path, &b.endpoint(&path)?)?; // the endpoint is what two hosts would tell each other
//! b.connect(&path, &a.endpoint(&path)?)?;
//!
//! let mut message = pd.buf(5)?;
//! message.copy_from_slice(b"hello");
//! b.post_recv(wr::recv(pd.buf(64)?))?;
//! a.post_send(wr::send(message))?; // `message` is the device's now
//! let mut received = None;
//! while received.is_none() {
//!     for completion in cq.poll()? {
//!         if completion.queue() == a.id() {
//!             a.retire(completion)?.ok()?;
//!         } else {
//!             let retired = b.retire(completion)?;
//!             retired.ok()?;
//!             received = retired.into_buf();
//!         }
//!     }
//! }
//! assert_eq!(received.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), ibverbs::Error>(())
//! ```
//!
//! The crate `rdmacm` connects by IP address, and is the only way on iWARP.
//!
//! # A request's life
//!
//! 1. A [`Buf`] comes from a [`Pool`], which is one registered region. It is an ordinary `&mut
//!    [u8]` while you own it.
//! 2. [`QueuePair::post_send`] or [`post_recv`](QueuePair::post_recv) takes it: the device may now
//!    read or write it, and you cannot.
//! 3. [`CompletionQueue::poll`] yields a [`Completion`]; [`QueuePair::retire`] consumes it and
//!    gives the buffer back, after a success and after a failure.
//! 4. What never completes comes back when the queue pair is [destroyed](QueuePair::destroy), or
//!    [drained](QueuePair::drain) before.
//!
//! # Classes of memory
//!
//! Memory is split when it is registered, by who may touch it:
//!
//! | class | the processor sees it as | a peer may | requests |
//! |---|---|---|---|
//! | [`Buf`] | `&mut [u8]`, while owned | nothing | one at a time: it moves in and comes back |
//! | [`Frozen`] | `&[u8]` | read, if so registered | any number send it |
//! | [`Sink`] | not at all | nothing | any number receive into it |
//! | [`SharedRegion`] | copies in and out, atomic words; never a reference | read, write, atomics, as registered | any number, in both directions |
//! | [`DeviceRegion`] | not at all: it lies on the device or in a dma-buf, or nowhere | as registered | any number |
//! | borrowed slices, in a [scope](QueuePair::scope) | not at all within the scope | nothing | several, until the scope ends |
//!
//! What many requests share is [held](QueuePair::hold) by the queue pair until it is destroyed; the
//! token costs nothing to post. Memory comes from the heap, from pages, huge pages, the caller
//! ([`mr::CallerMemory`]) or a dma-buf ([`MemoryOptions`]).
//!
//! A [scope](QueuePair::scope) posts slices that are borrowed rather than owned: it ends when none
//! of its requests is in flight and its regions are deregistered, by destroying the queue pair if
//! it must.
//!
//! A [`mw::Window`] gives a part of a shared region to one peer under a key of its own, and takes it
//! back without registering anew.
//!
//! # What is safe, and why
//!
//! No reference to memory exists while a device may write it: a buffer in flight has moved, a held
//! class has no references, a shared region never has any. A request's memory is let go by its
//! completion only, and a completion can be neither made, copied, kept past the next poll nor
//! retired twice; one that is stale matches nothing. Destroying a queue pair is the barrier for all
//! that never completed. An operation that a transport lacks, a field that a completion queue was
//! not made with, and a batch that escapes its closure do not compile. Each of these rules is a
//! program in `tests/compile_fail`.
//!
//! The crate assumes what the verbs promise. RDMA memory stands outside Rust's memory model: a
//! device is no thread, and its accesses are not described by it. A device touches local memory of
//! a request from the post until its completion was polled or its queue pair destroyed, and at no
//! other time; polling a completion makes the device's writes visible. Everything else is ordinary
//! ownership: forgetting any value leaks and does nothing worse.
//!
//! # Threads
//!
//! - `Send + Sync`: [`Device`], [`Context`], [`event::AsyncEvents`], [`ProtectionDomain`],
//!   [`CompletionChannel`], [`AddressHandle`], [`xrc::XrcDomain`], [`Pool`] and all memory: the
//!   library's calls on them are thread safe.
//! - `Send`, and used through `&mut` by one thread at a time: [`QueuePair`], [`CompletionQueue`],
//!   [`SharedReceiveQueue`]. Through `&` they only say what they are, so that they are `Sync` too.
//!   No lock is taken beyond the provider's own, and not that either for a queue pair in a
//!   [`pd::ThreadDomain`], which is one queue pair's, so that `&mut` is the promise that C asks of the
//!   program.
//! - A [`Completion`] stays with the poll it came from.
//!
//! After [`fork`] the child must not use objects of the parent.
//!
//! # What is not covered
//!
//! Tag matching, indirection tables of work queues (RSS), flow actions and counters: [`AsRaw`]
//! gives the handles for them.
//!
//! # Features
//!
//! All are off by default.
//!
//! - `serde`: [`Endpoint`], [`Gid`], [`RemoteMemory`] and what they are made of can be serialised,
//!   to be told to a peer. A GID is text in formats for people (JSON) and 16 bytes in others.
//! - `tokio`: `AsyncCompletionQueue` awaits completions. Waiting can be cancelled at any time;
//!   requests in flight stay in flight.
//! - `tracing`: events with target `ibverbs` when a device is opened, a queue pair changes its
//!   state, a verb fails (with its errno), or an object is leaked. The data path has none.

mod ah;
mod convert;
pub mod cq;
pub mod device;
pub mod dm;
mod errno;
mod error;
pub mod event;
mod fixed;
pub mod flow;
pub mod fork;
pub mod gid;
mod guid;
mod hint;
mod identity;
mod in_flight;
mod kind;
mod leak;
pub mod mr;
pub mod mw;
mod newtype;
mod numbers;
pub mod pd;
pub mod port;
pub mod prelude;
pub mod qp;
mod raw;
mod readable;
pub mod scope;
pub mod srq;
mod trace;
mod transport;
pub mod wr;
pub mod xrc;

/// Capabilities of devices and ports beyond the usual attributes.
pub mod caps {
    pub use crate::device::{
        AtomicCap, CqModerationCaps, DeviceAttrEx, DeviceCapFlags, OdpCaps, OdpGeneralCaps,
        OdpTransportCaps, PacketPacingCaps, PciAtomicCaps, QpTypes, RawPacketCaps, RssCaps,
        RxHashFields, TmCaps, TsoCaps,
    };
    pub use crate::port::{PortCapFlags, PortCapFlags2, PortFlags};
}

/// Extended completion queues: completions with a timestamp, a VLAN tag or a flow tag.
pub mod cq_ex {
    pub use crate::cq::{
        CompletionEx, CompletionInPlace, CompletionQueueEx, CompletionsEx, CqFields, Disabled,
        Enabled, Field, FieldSet, InPlace,
    };
}

pub use crate::ah::{AddressHandle, AhAttr, GRH_LEN, GlobalRoute};
#[cfg(feature = "tokio")]
pub use crate::cq::AsyncCompletionQueue;
pub use crate::cq::{
    Completion, CompletionChannel, CompletionQueue, Completions, CqId, CqOptions, UdSource,
    WcOpcode, WcStatus,
};
pub use crate::device::{Context, Device, DeviceAttr};
pub use crate::errno::Errno;
pub use crate::error::{Error, Result};
pub use crate::gid::{Gid, GidIndex, GidQuery};
pub use crate::guid::Guid;
pub use crate::identity::{Direction, QueueId};
pub use crate::in_flight::{ForeignCompletion, Reclaimed, Retired};
pub use crate::kind::ErrorKind;
pub use crate::leak::{count_leaked_object, leaked_objects};
pub use crate::mr::{
    AccessFlags, Buf, BufList, DeviceRegion, Frozen, Held, HeldList, Hold, MemoryOptions, Pool,
    RemoteMemory, SharedRegion, Sink,
};
pub use crate::numbers::{Psn, Qkey, Qpn};
pub use crate::pd::ProtectionDomain;
pub use crate::port::{Lid, LinkLayer, Mtu, Pkey, PortAttr, PortState};
pub use crate::qp::{Batch, Endpoint, QpCaps, QpOptions, QpState, QueuePair, RcPath};
pub use crate::raw::AsRaw;
pub use crate::srq::{SharedReceiveQueue, SrqOptions};
pub use crate::transport::{
    ConnectedDuplexTransport, ConnectedTransport, DuplexTransport, QpType, RawPacket, Rc,
    SendTransport, Uc, Ud,
};
pub use crate::wr::{BatchError, HeldAddress, PostError, RecvBatch, Rejected};
