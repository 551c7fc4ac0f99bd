//! Safe RDMA connection management: librdmacm as a chain of types.
//!
//! ```text
//! active    Resolver ── resolve ──▶ Route ── with_qp ──▶ Ready ── connect ──▶ Connection
//! passive   Listener ── accept ──▶ ConnectRequest ── with_qp ──▶ Pending ── accept ──▶ Connection
//! ```
//!
//! Each step consumes the one before, so that nothing can be claimed, connected or accepted twice. The queue pair is made by
//! [`ibverbs`], on any opening of the device that the connection manager chose, and moves into the chain with `with_qp`: from then on
//! receives can be posted to it, before the peer's first message can arrive.
//!
//! # Example
//! ```no_run
//! use std::time::Duration;
//! use ibverbs::{CqOptions, QpOptions, Rc, wr};
//! use rdmacm::{ConnectParams, Resolver};
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
//! # Ownership
//!
//! - Every connection has an identifier and an event channel of its own: it depends neither on the listener nor on other connections.
//! - The identifier never owns the queue pair (`id->qp` stays NULL); its states are moved here, with the attributes that the kernel
//!   gives for the identifier. On InfiniBand and RoCE that is INIT, RTR and RTS; on iWARP the kernel does the last two.
//! - A queue pair is destroyed before its identifier, an identifier before its channel. An event is acknowledged before the call that
//!   took it returns. What cannot be destroyed is leaked and counted ([`leaked_objects`]).
//! - An unclaimed [`ConnectRequest`] or [`Pending`] is rejected when it is dropped. A dropped [`Connection`] is disconnected.
//!
//! # Time
//!
//! Every wait has a limit that the caller gives. On iWARP two steps of the kernel have none: the TCP handshake of `rdma_connect`, and
//! destroying a queue pair while its connection is being made. Both are done by a thread that outlives a timeout: the call returns in
//! time, and the queue pair with its buffers is released when the kernel lets go of it, in about 10 seconds with Soft-iWARP, 2
//! minutes for a peer that answers nothing at all.

mod address;
mod attempt;
mod channel;
mod connection;
mod deadline;
mod error;
mod event;
mod hint;
mod id;
mod leak;
mod listener;
mod newtype;
mod params;
mod path;
mod pending;
mod ready;
mod reject;
mod request;
mod resolver;
mod route;
mod transition;

pub use crate::connection::Connection;
pub use crate::error::{ConnectError, Rejection};
pub use crate::event::{CmEvent, CmEventType};
pub use crate::leak::leaked_objects;
pub use crate::listener::Listener;
pub use crate::params::{ConnectParams, PrivateDataLimits};
pub use crate::pending::Pending;
pub use crate::ready::Ready;
pub use crate::reject::RejectReason;
pub use crate::request::ConnectRequest;
pub use crate::resolver::Resolver;
pub use crate::route::Route;
