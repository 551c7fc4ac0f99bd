//! Safe RDMA connection management: librdmacm as a chain of types.
//!
//! ```text
//! active     Resolver ── resolve ──▶ Route ── with_qp ──▶ ReadyRoute ── connect ──▶ Connection
//! passive    Listener ── next_request ──▶ ConnectRequest ── with_qp ──▶ ReadyRequest ── accept ──▶ Connection
//!
//! datagrams  Resolver ── resolve_datagram ──▶ DatagramRoute ── query ──▶ Service
//!            ListenOptions ── bind_datagram ──▶ ServiceListener ── next_request ──▶ ServiceRequest
//! multicast  Resolver ── join ──▶ Membership
//! ```
//!
//! Each step consumes the previous one, so that a request cannot be claimed, connected or accepted
//! twice. Create the queue pair with [`ibverbs`], on any context of the device that the connection
//! manager has chosen, and add it with `with_qp`. Receives can be posted to it from then on, before
//! the peer's first message can arrive.
//!
//! # Example
//! ```no_run
//! use ibverbs::{CqOptions, QpOptions, Rc, wr};
//! use rdmacm::{ConnectParams, Resolver};
//! use std::time::Duration;
//!
//! let route = Resolver::new("10.99.0.1:7471".parse()?).resolve()?;
//! let context = route.context()?;
//! let pd = context.alloc_pd()?;
//! let mut cq = context.create_cq(CqOptions::default())?;
//! let mut ready = route.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
//! ready.qp_mut().post_recv(wr::recv(pd.buf(4096)?))?;
//! let mut connection = ready.connect(&ConnectParams::default(), Duration::from_secs(5))?;
//! connection.qp_mut().post_send(wr::send(pd.buf(4096)?))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For messages the crate [`rdma-messenger`](https://docs.rs/rdma-messenger) is simpler: it creates
//! the queues and buffers of a connection, and posts receives in time.
//!
//! # Ownership
//!
//! - Every connection has an identifier (`rdma_cm_id`), and an event channel of its own unless the
//!   application names a shared [`EventChannel`] or moves it there. It is independent of the
//!   listener and of other connections. A channel lives as long as an identifier uses it.
//! - The identifier never owns the queue pair (`id->qp` stays NULL). The crate changes the state of
//!   the queue pair with the attributes that the kernel returns for the identifier: to INIT, RTR
//!   and RTS on InfiniBand and RoCE, to INIT on iWARP, where the kernel does the rest.
//! - An application can keep the queue pair and change its state itself, for another transport or
//!   with other attributes. It uses [`Route::request`] and [`ConnectRequest::accept_external`], and
//!   gets a [`ConnectedId`](connection::ConnectedId): a connection without its queue pair.
//! - A queue pair is destroyed before its identifier, and an identifier before its channel. Events
//!   are copied and acknowledged when they are read, so that destroying an identifier never waits
//!   for one. An object that cannot be destroyed is leaked and counted
//!   ([`ibverbs::leaked_objects`]).
//! - Dropping a [`ConnectRequest`] or a [`ReadyRequest`] rejects the request. Dropping a
//!   [`Connection`] disconnects it.
//!
//! # Waiting
//!
//! Each step that waits has three forms:
//!
//! - a blocking call with a time limit: `resolve`, `connect`, `next_request`, `accept`, `query`,
//!   `join`;
//! - a call that starts the step and returns an [`InProgress`] with a descriptor: `start` and
//!   methods that begin with `start_`;
//! - with the feature `tokio`, `.await` of the step.
//!
//! Dropping a step or its future cancels it.
//!
//! A program with many connections can wait in one place: on an [`EventChannel`], which returns the
//! key of the identifier that has an event. Connections start there if
//! [`Resolver::channel`] or [`ListenOptions::accept_on`] name it. That is also the fastest way to
//! connect.
//!
//! # Time limits
//!
//! The caller limits the time of every wait. On iWARP the kernel has no time limit for two steps:
//! the TCP handshake of `rdma_connect`, and destroying a queue pair during connection setup. A
//! thread that can outlive the timeout performs them. The call returns in time, and the queue pair
//! and its buffers are released when the kernel releases them: after about 10 seconds with
//! Soft-iWARP, and after 2 minutes if the peer does not answer at all.

#![cfg_attr(
    test,
    allow(clippy::duplicate_mod, reason = "compiled again with loom")
)]
// On docs.rs, items of a feature are marked with its name.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod active;
pub mod address;
pub mod connection;
mod convert;
pub mod datagram;
mod error;
pub mod event;
mod help;
mod id;
mod library;
pub mod params;
pub mod passive;
mod polling;
mod progress;
mod reject;
mod wait;

#[doc(inline)]
pub use ibverbs::{Errno, Error, ErrorKind, Result};

pub use crate::active::{Connecting, ReadyRoute, Resolver, Route};
pub use crate::address::PortSpace;
pub use crate::connection::Connection;
pub use crate::error::{ConnectError, Rejection};
pub use crate::event::{CmEvent, CmEventType, EventChannel, IdKey};
pub use crate::params::{ConnectParams, PrivateDataLimits};
#[cfg(feature = "tokio")]
pub use crate::passive::AsyncListener;
pub use crate::passive::{Accepting, ConnectRequest, ListenOptions, Listener, ReadyRequest};
#[cfg(feature = "tokio")]
pub use crate::progress::Finish;
pub use crate::progress::InProgress;
pub use crate::reject::RejectReason;

/// Items that the crates `rdma-messenger` and `rdma-transfer` share. They are not part of the API,
/// and any release may change them.
#[doc(hidden)]
pub mod internal {
    pub use crate::connection::device_check::with_fault;
    pub use crate::convert::failed;
    pub use crate::polling::{PollWindow, Polling};
    #[cfg(feature = "tokio")]
    pub use crate::wait::Readable;
    pub use crate::wait::{Deadline, Descriptor, as_millis};
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
