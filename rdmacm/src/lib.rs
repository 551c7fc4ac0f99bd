//! Safe RDMA connection management: librdmacm as a chain of types.
//!
//! ```text
//! active    Resolver ── resolve ──▶ Route ── with_qp ──▶ ReadyRoute ── connect ──▶ Connection
//! passive   Listener ── accept ──▶ ConnectRequest ── with_qp ──▶ ReadyRequest ── accept ──▶ Connection
//!
//! datagrams Resolver ── resolve_datagram ──▶ DatagramRoute ── query ──▶ Service       ServiceListener ──▶ ServiceRequest
//! groups    Resolver ── join ──▶ Membership
//! ```
//!
//! Each step consumes the one before, so that nothing can be claimed, connected or accepted twice.
//! The queue pair is made by [`ibverbs`], on any opening of the device that the connection manager
//! chose, and moves into the chain with `with_qp`: from then on receives can be posted to it,
//! before the peer's first message can arrive.
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
//! For messages there is less to do: a [`Messenger`] is a connection with its queues and buffers,
//! and its receives are posted in time.
//!
//! # Ownership
//!
//! - Every connection has an identifier, and to begin with an event channel of its own: it depends
//!   neither on the listener nor on other connections. What shall share one descriptor moves to an
//!   [`EventChannel`], which lives as long as somebody is on it.
//! - The identifier never owns the queue pair (`id->qp` stays NULL); its states are moved here,
//!   with the attributes that the kernel gives for the identifier. On InfiniBand and RoCE that is
//!   INIT, RTR and RTS; on iWARP the kernel does the last two.
//! - Who moves a queue pair by himself (of another transport, with other attributes) uses
//!   [`Route::request`] and [`ConnectRequest::accept_external`], and gets a [`ConnectedId`]: the
//!   connection without its queue pair.
//! - A queue pair is destroyed before its identifier, an identifier before its channel. An event is
//!   copied and acknowledged before the call that took it off the channel returns: nothing waits
//!   for it. What cannot be destroyed is leaked and counted ([`ibverbs::leaked_objects`]).
//! - An unclaimed [`ConnectRequest`] or [`ReadyRequest`] is rejected when it is dropped. A dropped
//!   [`Connection`] is disconnected.
//!
//! # Waiting
//!
//! Each step that waits has three forms: the call that blocks, with a limit (`resolve`, `connect`,
//! `accept`, `query`, `join`); the one that begins and does not wait (`start` and its like), whose
//! result is [`InProgress`] and has a descriptor; and that awaited on tokio (`InProgress::finish`,
//! with the feature `tokio`). A step that is dropped, or a future of it, leaves nothing behind.
//!
//! A server of many clients sleeps in one place when its listener and its connections are on one
//! [`EventChannel`], which says whose event it is.
//!
//! # Time
//!
//! Every wait has a limit that the caller gives. On iWARP two steps of the kernel have none: the
//! TCP handshake of `rdma_connect`, and destroying a queue pair while its connection is being made.
//! Both are done by a thread that outlives a timeout: the call returns in time, and the queue pair
//! with its buffers is released when the kernel lets go of it, in about 10 seconds with Soft-iWARP,
//! 2 minutes for a peer that answers nothing at all.

pub mod active;
pub mod address;
pub mod connection;
mod convert;
pub mod datagram;
mod error;
pub mod event;
mod hint;
mod id;
pub mod messenger;
mod newtype;
pub mod params;
pub mod passive;
mod progress;
mod reject;
mod wait;

pub use crate::active::{Connecting, ReadyRoute, Resolver, Route};
pub use crate::address::PortSpace;
pub use crate::connection::Connection;
pub use crate::error::{ConnectError, Rejection};
pub use crate::event::{CmEvent, CmEventType, EventChannel, IdKey};
#[cfg(feature = "tokio")]
pub use crate::messenger::AsyncMessenger;
pub use crate::messenger::{Messenger, MessengerOptions};
pub use crate::params::{ConnectParams, PrivateDataLimits};
#[cfg(feature = "tokio")]
pub use crate::passive::AsyncListener;
pub use crate::passive::{Accepting, ConnectRequest, ListenOptions, Listener, ReadyRequest};
pub use crate::progress::InProgress;
pub use crate::reject::RejectReason;

/// The types that most programs need, and the trait [`InProgress`].
///
/// # Example
/// ```no_run
/// use rdmacm::prelude::*;
/// let listener = Listener::bind("0.0.0.0:7471".parse()?, 16)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod prelude {
    pub use crate::active::{ReadyRoute, Resolver, Route};
    pub use crate::connection::Connection;
    pub use crate::event::{CmEvent, CmEventType, EventChannel};
    pub use crate::messenger::{Messenger, MessengerOptions};
    pub use crate::params::ConnectParams;
    pub use crate::passive::{ConnectRequest, ListenOptions, Listener, ReadyRequest};
    pub use crate::progress::InProgress;
}
