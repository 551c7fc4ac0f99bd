//! Safe RDMA verbs: RAII over libibverbs, with no `unsafe` in user code, data path included.
//!
//! ```text
//! Device ── open ──▶ Context ──▶ ProtectionDomain ──▶ Pool ──▶ Buf ──▶ Frozen
//!                      │                  │         └▶ Sink
//!                      ├▶ AsyncEvents                │  (moves in, or is held)
//!                      ├▶ CompletionChannel          │
//!                      └▶ CompletionQueue ─────▶ QueuePair<Rc>
//!                              │ poll                ▲
//!                              └──▶ Completion ──────┘ retire ──▶ Retired ──▶ Buf
//! ```
//!
//! # A request's life
//!
//! 1. A [`Buf`] comes from a [`Pool`], which is one registered region. It is an ordinary `&mut [u8]` while you own it.
//! 2. [`QueuePair::post_send`] or [`post_recv`](QueuePair::post_recv) takes it: the device may now read or write it, and you cannot.
//! 3. [`CompletionQueue::poll`] yields a [`Completion`]; [`QueuePair::retire`] consumes it and gives the buffer back, after a success and
//!    after a failure.
//! 4. What never completes comes back when the queue pair is [destroyed](QueuePair::destroy).
//!
//! Memory that many requests use at once is a [`Frozen`] (sent, read-only) or a [`Sink`] (received into, unreadable); the queue pair
//! [holds](QueuePair::hold) it. See [`QueuePair`] for a whole program.
//!
//! # What is assumed
//!
//! RDMA memory stands outside Rust's memory model: a device is no thread, and its accesses are not described by it. This crate
//! assumes what the verbs promise: a device touches local memory of a request from the post until its completion was polled or its
//! queue pair destroyed, and at no other time; polling a completion makes the device's writes visible. Over such memory no Rust reference
//! exists in that time. Everything else is ordinary ownership: forgetting any value leaks and does nothing worse.
//!
//! # Threads
//!
//! [`Device`], [`Context`], [`AsyncEvents`], [`ProtectionDomain`], [`CompletionChannel`], [`Pool`] and memory are `Send + Sync`. A [`QueuePair`] and a
//! [`CompletionQueue`] are used through `&mut`, by one thread at a time, and can be sent between threads. After [`fork`] the child must not
//! use objects of the parent.

//!
//! # Features
//!
//! All are off by default.
//!
//! - `serde`: [`Endpoint`], [`Gid`], [`RemoteMemory`] and what they are made of can be serialised, to be told to a peer. A GID is text in formats for
//!   people (JSON) and 16 bytes in others.
//! - `tokio`: `AsyncCompletionQueue` awaits completions. Waiting can be cancelled at any time; requests in flight stay in flight.
//! - `tracing`: events with target `ibverbs` when a device is opened, a queue pair changes its state, a verb fails (with its errno), or an object is leaked.
//!   The data path has none.

mod ah;
mod async_events;
#[cfg(feature = "tokio")]
mod awaiting;
mod clock;
mod context;
mod convert;
mod cq;
mod device;
mod device_attr;
mod device_caps;
mod device_ex;
mod dm;
mod errno;
mod error;
mod event;
mod fixed;
pub mod fork;
mod gid;
mod gid_select;
mod hint;
mod identity;
mod interface;
mod kind;
mod leak;
mod link_rate;
mod mr;
mod mw;
mod netdev;
mod newtype;
mod pd;
mod pkey;
mod port;
mod port_caps;
mod qp;
mod raw;
mod readable;
mod roce;
#[cfg(feature = "serde")]
mod serialised;
mod trace;

pub use crate::ah::{AddressHandle, AhAttr, GRH_LEN, GlobalRoute};
pub use crate::async_events::AsyncEvents;
#[cfg(feature = "tokio")]
pub use crate::awaiting::AsyncCompletionQueue;
pub use crate::context::Context;
pub use crate::cq::{
    Asked, Completion, CompletionChannel, CompletionEx, CompletionQueue, CompletionQueueEx, Completions, CompletionsEx,
    CqFields, CqId, CqOptions, FieldSet, UdSource, WcOpcode, WcStatus, With, Without,
};
pub use crate::device::{Device, Guid, NodeType, TransportType};
pub use crate::device_attr::{AtomicCap, DeviceAttr, DeviceCapFlags};
pub use crate::device_caps::{
    CqModerationCaps, OdpCaps, OdpGeneralCaps, OdpTransportCaps, PacketPacingCaps, PciAtomicCaps, QpTypes,
    RawPacketCaps, RssCaps, RxHashFields, TmCaps, TsoCaps,
};
pub use crate::device_ex::DeviceAttrEx;
pub use crate::dm::DeviceMemory;
pub use crate::errno::Errno;
pub use crate::error::{Error, Result};
pub use crate::event::{AsyncEvent, EventSource, EventType};
pub use crate::gid::{Gid, GidEntry, GidIndex, GidType};
pub use crate::gid_select::{GidChoice, GidQuery, IpFamily};
pub use crate::identity::{Direction, Psn, Qkey, Qpn, QueueId};
pub use crate::kind::ErrorKind;
pub use crate::leak::{count_leaked_object, leaked_objects};
pub use crate::link_rate::{LinkRate, LinkSpeed, LinkWidth};
pub use crate::mr::{
    AccessFlags, Advice, Backing, Buf, BufList, CallerMemory, DeviceRegion, Frozen, Held, HeldList, Hold, HugePageSize,
    MemoryOptions, Pool, RemoteMemory, ReregError, SharedRegion, Sink, StillShared,
};
pub use crate::mw::{Binding, BoundWindow, Type1, Type2, Window, WindowType};
pub use crate::pd::ProtectionDomain;
pub use crate::pkey::{Pkey, PkeyEntry};
pub use crate::port::{Lid, LinkLayer, Mtu, PhysState, PortAttr, PortState};
pub use crate::port_caps::{PortCapFlags, PortCapFlags2, PortFlags};
pub use crate::qp::{
    Batch, BatchError, Connected, DRAIN_TAG, Destination, Ece, Endpoint, HeldAddress, NotMine, Operation, PostError,
    QpAttr, QpCaps, QpChange, QpOptions, QpState, QpType, QueuePair, Rc, RcPath, Reclaimed, RecvBatch, Rejected,
    Retired, SharedReceiveQueue, SrqAttr, SrqOptions, Transport, Uc, Ud, wr,
};
pub use crate::qp::{Lent, LentMut, Scope, ScopeEnd};
pub use crate::raw::AsRaw;
pub use crate::roce::RoceConfig;
