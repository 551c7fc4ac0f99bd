//! Safe RDMA verbs: RAII wrappers over libibverbs. User code needs no `unsafe`, not even on the
//! data path.
//!
//! # Objects
//!
//! ```text
//! Device ── open ──▶ Context ──▶ ProtectionDomain ──▶ Pool ──▶ Buf ──▶ Frozen
//!                      │              │     │      ├▶ Sink
//!                      │              │     │      └▶ SharedRegion ──▶ Window
//!                      │              │     └▶ AddressHandle
//!                      │              ├▶ SharedReceiveQueue ─────────────┐
//!                      ├▶ AsyncEvents │                                  ▼
//!                      ├▶ CompletionChannel                         QueuePair<T>   T: Rc, Uc, Ud, XrcSend, RawPacket
//!                      ├▶ CompletionQueue ── poll ──▶ Completion ────────┘ retire ──▶ Retired ──▶ Buf
//!                      └▶ XrcDomain ──▶ XrcRecvQueuePair, SharedReceiveQueue<Xrc>
//! ```
//!
//! Each object keeps its parents alive, so objects can be dropped in any order. An object that the
//! device cannot destroy is leaked and [counted](leaked_objects), never freed.
//!
//! The root of the crate has what every program needs. Import it by name: `Rc`, `Context` and
//! `Sink` are also names of the standard library and of futures. Everything else is in a module:
//! [`caps`], [`cq_ex`], [`event`], [`flow`], [`gid`], [`mw`], [`xrc`] and others.
//!
//! The search finds an item by the C function that it calls, such as `ibv_post_send`. Its manual
//! page, at `https://man7.org/linux/man-pages/man3/ibv_post_send.3.html`, describes the verb.
//!
//! # A first program
//!
//! Two queue pairs in one process exchange one message. The program runs on any RoCE or InfiniBand
//! device, including Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
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
//! a.connect(&path, &b.endpoint(&path)?)?; // two hosts would exchange the endpoints
//! b.connect(&path, &a.endpoint(&path)?)?;
//!
//! let mut message = pd.buf(5)?;
//! message.copy_from_slice(b"hello");
//! b.post_recv(wr::recv(pd.buf(64)?))?;
//! a.post_send(wr::send(message))?; // the queue pair owns `message` now
//! let mut received = None;
//! while received.is_none() {
//!     for completion in cq.poll()? {
//!         if completion.queue() == a.id() {
//!             a.retire(completion)?.check()?;
//!         } else {
//!             let retired = b.retire(completion)?;
//!             retired.check()?;
//!             received = retired.into_buf();
//!         }
//!     }
//! }
//! assert_eq!(received.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), ibverbs::Error>(())
//! ```
//!
//! The crate `rdmacm` connects queue pairs by IP address. On iWARP there is no other way.
//!
//! # The life of a request
//!
//! 1. A [`Buf`] comes from a [`Pool`], which is one registered memory region. While you own it, it
//!    is an ordinary `&mut [u8]`.
//! 2. [`QueuePair::post_send`] or [`post_recv`](QueuePair::post_recv) takes the buffer. The device
//!    may now access it, and you cannot.
//! 3. [`CompletionQueue::poll`] returns [`Completion`]s. [`QueuePair::retire`] consumes one and
//!    returns the buffer, whether the request succeeded or failed. [`Retired`] has the rest: the
//!    status, the length, [send or receive](Retired::direction), and the
//!    [tag](wr::SendRequest::tag) of the request, for what C programs use `wr_id`.
//! 4. [Destroying](QueuePair::destroy) or [draining](QueuePair::drain) the queue pair returns the
//!    buffers of requests that never completed.
//!
//! # Memory classes
//!
//! Memory is divided at registration by who may access it:
//!
//! | class | access by the processor | access by a peer | use in requests |
//! |---|---|---|---|
//! | [`Buf`] | `&mut [u8]` while owned | none | one at a time: it moves in, and the completion returns it |
//! | [`Frozen`] | `&[u8]` | read, if registered so | any number of sends |
//! | [`Sink`] | none | none | any number of receives |
//! | [`SharedRegion`] | copies and atomic words, never a reference | read, write and atomics, as registered | any number, as source or destination |
//! | [`DeviceRegion`] | none: it is in device memory or in a dma-buf, or has no address | as registered | any number |
//! | slices borrowed in a [scope](QueuePair::scope) | none inside the scope | none | several, until the scope ends |
//!
//! Memory that many requests use is [held](QueuePair::hold) by the queue pair until it is
//! destroyed; posting the token costs nothing. Memory can come from the heap, from pages or huge
//! pages, from the caller ([`mr::CallerMemory`]) or from a dma-buf ([`MemoryOptions`]).
//!
//! A [scope](QueuePair::scope) posts borrowed slices, on one or several queue pairs. It ends when
//! none of its requests is in flight and its regions are deregistered. If requests do not complete,
//! it destroys their queue pairs. The module [`scope`] explains why this is safe.
//!
//! A [`mw::Window`] grants one peer access to a part of a shared region, with its own remote key.
//! It is revoked without another registration.
//!
//! # Why this is safe
//!
//! - No reference to memory exists while a device may write it. A buffer in flight has moved, held
//!   memory has no mutable references, and a shared region never has references.
//! - Only its completion releases the memory of a request. A completion cannot be constructed,
//!   copied, kept past the next poll or retired twice. A stale completion matches no request.
//! - Destroying the queue pair ends the device's access for all requests that never completed.
//! - An operation that the transport lacks does not compile. Neither does reading a completion
//!   field that the queue was not created with, nor a batch that escapes its closure.
//!
//! Each rule is a program in `testing/compile-fail`.
//!
//! RDMA memory is outside Rust's memory model: a device is not a thread, and the model does not
//! describe its accesses. The crate assumes what the verbs promise. A device accesses the local
//! memory of a request from the post until its completion was polled or its queue pair destroyed,
//! and at no other time. Polling a completion makes the device's writes visible. The provider's
//! code is a part of the device in this sense: libmlx5 and libhns write short messages to memory
//! with the processor while they poll. The code that copies to and from a [`SharedRegion`] is such
//! a part as well, because the compiler does not see it. Everything else is ordinary ownership:
//! forgetting a value leaks it and has no other effect.
//!
//! # Threads
//!
//! - `Send + Sync`: [`Device`], [`Context`], [`event::AsyncEvents`], [`ProtectionDomain`],
//!   [`CompletionChannel`], [`AddressHandle`], [`xrc::XrcDomain`], [`Pool`] and all memory. The
//!   library functions they call are thread-safe.
//! - `Send`, used through `&mut` by one thread at a time: [`QueuePair`], [`CompletionQueue`],
//!   [`SharedReceiveQueue`]. They are also `Sync`, because `&` only gives access to fixed
//!   properties. This crate takes no locks on the data path, except when EFA is polled.
//! - A queue pair in a [`pd::ThreadDomain`] does without the provider's locks as well. A thread
//!   domain belongs to one queue pair, so `&mut` upholds the single-thread rule that C leaves to
//!   the program.
//! - Neither `Send` nor `Sync`: a [`group::ThreadGroup`] and its queues, which share a thread
//!   domain.
//! - A [`Completion`] borrows the completion queue that it was polled from.
//!
//! After [`fork`], the child must not use objects of the parent.
//!
//! # Not covered
//!
//! Tag matching, receive-side scaling (work queue indirection tables), flow actions and counters of
//! flows. [`AsRaw`] and [`QueuePair::as_raw`] give the raw handles for these verbs.
//!
//! # Newer versions of rdma-core
//!
//! The crate needs rdma-core 44. Some functions use verbs of newer versions, and say so. Programs
//! that call them also start with rdma-core 44, where their errors are of the kind
//! [`ErrorKind::Unsupported`] and name the version to install.
//!
//! # Features
//!
//! All features are off by default.
//!
//! - `dlopen`: the program is not linked with libibverbs; the first call loads it. If it is not
//!   installed, [`Device::list`] fails with [`ErrorKind::Unsupported`] and names it.
//! - `efa`: the transport `efa::Srd` (reliable datagrams), completions with the GID of the sender
//!   (`efa::SourceGid`) and queries of EFA. The first call loads libefa.
//! - `mlx5`: the dynamically connected transport of mlx5, `dc::Dc` and `dc::DcStreams`, and queues
//!   that are exposed to a GPU (`exposed`). The first call loads libmlx5.
//! - `serde`: [`Endpoint`], [`Gid`], [`RemoteMemory`] and their parts can be serialized and sent to
//!   a peer. A GID is a string in human-readable formats such as JSON, and 16 bytes in others.
//! - `tokio`: `AsyncCompletionQueue` awaits completions. Waiting is cancel-safe, and requests in
//!   flight stay in flight.
//! - `tracing`: events with the target `ibverbs` when a device is opened, a queue pair changes
//!   state, a verb fails (with its errno) or an object is leaked. The data path emits none.

// On docs.rs, items of a feature are marked with its name.
#![cfg_attr(
    test,
    allow(clippy::duplicate_mod, reason = "compiled again with loom")
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod ah;
mod convert;
pub mod counter;
pub mod cq;
#[cfg(feature = "mlx5")]
#[cfg_attr(docsrs, doc(cfg(feature = "mlx5")))]
pub mod dc;
pub mod device;
pub mod dm;
#[cfg(feature = "efa")]
#[cfg_attr(docsrs, doc(cfg(feature = "efa")))]
pub mod efa;
mod error;
pub mod event;
#[cfg(feature = "mlx5")]
#[cfg_attr(docsrs, doc(cfg(feature = "mlx5")))]
pub mod exposed;
mod fd;
pub mod flow;
pub mod fork;
mod forked;
pub mod gid;
pub mod group;
mod heap;
mod identity;
mod in_flight;
mod io_error;
mod leak;
pub mod mr;
pub mod mw;
mod numbers;
pub mod pd;
pub mod port;
pub mod qp;
mod raw;
pub mod scope;
pub mod srq;
mod text;
mod trace;
#[cfg(all(test, feature = "tracing"))]
mod trace_tests;
mod transport;
#[doc = include_str!("transports.md")]
pub mod transports {}
mod unwind;
pub mod wr;
mod wr_id;
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
        CompletionEx, CompletionQueueEx, CompletionsEx, CqFields, Disabled, Enabled, Field,
        FieldSet,
    };
}

#[doc(inline)]
pub use rdma_types::{Errno, Error, ErrorKind, Guid, Result, leaked_objects};

pub use crate::ah::{AddressHandle, AhAttr, GRH_LEN, GlobalRoute};
#[cfg(feature = "tokio")]
pub use crate::cq::AsyncCompletionQueue;
pub use crate::cq::{
    Completion, CompletionChannel, CompletionQueue, Completions, CqId, CqOptions, UdSource,
    WcOpcode, WcStatus,
};
pub use crate::device::{Context, Device, DeviceAttr};
pub use crate::error::call_failed;
pub use crate::gid::{Gid, GidIndex, GidQuery};
// For the tools of this project, which contain no `unsafe`. Not a part of the API.
#[doc(hidden)]
pub use crate::heap::{set_heap_trim_threshold, set_max_heaps, trim_heap};
pub use crate::identity::{Direction, QueueHasher, QueueId, QueueMap};
pub use crate::in_flight::{ForeignCompletion, Reclaimed, Retired};
pub use crate::leak::count_leaked_object;
pub use crate::mr::{
    AccessFlags, Buf, BufList, DeviceRegion, Frozen, Held, HeldList, Hold, MemoryOptions, Pool,
    RemoteMemory, SharedRegion, Sink,
};
pub use crate::numbers::{Psn, Qkey, Qpn};
pub use crate::pd::ProtectionDomain;
pub use crate::port::{Lid, LinkLayer, Mtu, Pkey, PortAttr, PortState};
pub use crate::qp::{Batch, DatagramAttr, Endpoint, QpCaps, QpOptions, QpState, QueuePair, RcPath};
pub use crate::raw::AsRaw;
pub use crate::srq::{SharedReceiveQueue, SrqOptions};
pub use crate::transport::{
    ConnectedDuplexTransport, ConnectedTransport, DatagramTransport, DuplexTransport, QpType,
    RawPacket, Rc, SendTransport, Uc, Ud,
};
pub use crate::wr::{BatchError, HeldAddress, PostError, RecvBatch, Rejected};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
