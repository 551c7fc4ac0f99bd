//! Connections for messages over RDMA: a [`Messenger`] creates the queue pair, the completion queue
//! and the buffers of a connection of [`rdmacm`], and sends and receives whole messages.
//!
//! ```text
//! messages   Messenger (blocking) ── split ──▶ SendHalf, RecvHalf
//!            AsyncMessenger (tokio) ── split ──▶ AsyncSendHalf, AsyncRecvHalf
//! resources  MessengerOptions (one connection)   MessengerGroup (many connections)
//! ```
//!
//! # Example
//! ```no_run
//! use messenger::{Messenger, MessengerOptions};
//! use std::time::Duration;
//!
//! const LIMIT: Duration = Duration::from_secs(5);
//! let server = "10.99.0.1:7471".parse()?;
//! let mut client = Messenger::connect(server, &MessengerOptions::default(), LIMIT)?;
//! client.send(b"hello", LIMIT)?;
//! println!("{:?}", client.recv(LIMIT)?.as_deref());
//! client.shutdown(LIMIT)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Protocol
//!
//! Both sides must use a messenger. Each message has a header with credits and acknowledgements, so
//! a sender waits if the peer's receives are used up, and no message is lost without an error.
//!
//! # Security
//!
//! The network is trusted. A messenger neither authenticates its peer nor encrypts messages,
//! because adapters protect no packet after the handshake. A secret would be readable on the way,
//! and a host that can inject packets could replace the messages of an authenticated peer. So use a
//! network that only trusted hosts can inject packets into, and encrypt messages that others must
//! not read or change. A listener finds the address of a client in
//! [`ConnectRequest`](rdmacm::ConnectRequest), and can drop the request.
//!
//! A peer cannot access memory of this side, unless [`MessengerOptions::access`] permits it. It
//! takes no more than the memory that the options allow, and one that violates the protocol gets
//! its connection closed.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::duplicate_mod, reason = "compiled again with loom")
)]
// On docs.rs, items of a feature are marked with its name.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod codec;
mod deferred;
mod driver;
mod emptied;
mod endpoint;
#[cfg(any(test, fuzzing))]
mod exploration_tests;
mod flow;
#[cfg(test)]
mod flow_tests;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod halves;
mod inbox;
mod lease;
mod local_fault;
#[cfg(test)]
mod loom_tests;
mod message;
mod messenger;
mod options;
mod receives;
mod resources;
mod rtr;
mod shared;
mod state;
mod sync;
#[cfg(feature = "tokio")]
mod tokio;
mod waiters;

pub use crate::group::{GroupOptions, MessengerGroup};
pub use crate::halves::{RecvHalf, SendHalf};
pub use crate::message::{Message, SendBuffer};
pub use crate::messenger::{Messenger, TryRecv};
pub use crate::options::MessengerOptions;
#[cfg(feature = "tokio")]
pub use crate::tokio::{AsyncMessenger, AsyncRecvHalf, AsyncSendHalf, SendPermit};
#[doc(no_inline)]
pub use ibverbs::{Error, ErrorKind};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
