//! Safe RDMA connection management: librdmacm as a chain of types.
//!
//! ```text
//! active    Resolver ── resolve ──▶ Route ── with_qp ──▶ Ready ── connect ──▶ Connection
//! passive   Listener ── accept ──▶ ConnectRequest ── with_qp ──▶ Pending ── accept ──▶ Connection
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
//!   [`Route::ask`] and [`ConnectRequest::accept_by_hand`], and gets a [`Link`]: the connection
//!   without its queue pair.
//! - A queue pair is destroyed before its identifier, an identifier before its channel. An event is
//!   copied and acknowledged before the call that took it off the channel returns: nothing waits
//!   for it. What cannot be destroyed is leaked and counted ([`ibverbs::leaked_objects`]).
//! - An unclaimed [`ConnectRequest`] or [`Pending`] is rejected when it is dropped. A dropped
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

mod accepting;
mod address;
#[cfg(feature = "tokio")]
mod async_listener;
mod attempt;
mod by_hand;
mod channel;
mod conn_param;
mod connecting;
mod connection;
mod convert;
mod datagram;
mod datagram_route;
mod deadline;
mod desk;
mod device_address;
mod doorbell;
mod ece;
mod error;
mod event;
mod event_channel;
mod hint;
mod ib_address;
mod id;
mod id_ece;
mod id_options;
mod joining;
mod link;
mod listen_options;
mod listener;
mod listening;
mod lookup;
mod messenger;
#[cfg(feature = "tokio")]
mod messenger_async;
mod messenger_parts;
mod multicast;
mod newtype;
mod params;
mod path;
mod pending;
mod port_space;
mod progress;
mod qp_change;
mod querying;
#[cfg(feature = "tokio")]
mod readable;
mod ready;
mod reject;
mod request;
mod resolver;
mod resolving;
mod route;
mod service_listener;
mod target;
mod transition;
mod wait;

pub use crate::accepting::Accepting;
#[cfg(feature = "tokio")]
pub use crate::async_listener::AsyncListener;
pub use crate::by_hand::{Answer, Asking, Awaiting};
pub use crate::connecting::Connecting;
pub use crate::connection::Connection;
pub use crate::datagram_route::DatagramRoute;
pub use crate::desk::IdKey;
pub use crate::ece::Ece;
pub use crate::error::{ConnectError, Rejection};
pub use crate::event::{CmEvent, CmEventType};
pub use crate::event_channel::EventChannel;
pub use crate::ib_address::IbAddr;
pub use crate::joining::Joining;
pub use crate::link::Link;
pub use crate::listen_options::ListenOptions;
pub use crate::listener::Listener;
pub use crate::lookup::{AddrInfo, LookupOptions, lookup};
pub use crate::messenger::Messenger;
#[cfg(feature = "tokio")]
pub use crate::messenger_async::AsyncMessenger;
pub use crate::messenger_parts::MessengerOptions;
pub use crate::multicast::{JoinAs, Membership};
pub use crate::params::{ConnectParams, PrivateDataLimits};
pub use crate::pending::Pending;
pub use crate::port_space::PortSpace;
pub use crate::progress::InProgress;
pub use crate::querying::{Querying, Service};
pub use crate::ready::Ready;
pub use crate::reject::RejectReason;
pub use crate::request::ConnectRequest;
pub use crate::resolver::Resolver;
pub use crate::resolving::Resolving;
pub use crate::route::Route;
pub use crate::service_listener::{ServiceListener, ServiceRequest};
pub use crate::target::Target;
