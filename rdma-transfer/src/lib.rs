//! Transfers between the memory of hosts over several RDMA adapters, which continue when an adapter
//! fails. Without `unsafe`.
//!
//! Registered memory is written to peers and read from them, striped over all adapters. Peer groups
//! and counted immediates make it fit to move the pages of a key-value cache or to dispatch tokens
//! to experts. It is built on the public APIs of [`ibverbs`] and `rdmacm`.
//!
//! # Objects
//!
//! ```text
//! Engine ── alloc, register ──▶ Region ── remote ──▶ RemoteRegion  (sent to the peer)
//!    ├───── dial, accept ─────▶ Peer ──────────────▶ PeerGroup
//!    │                            └─ write, read ──▶ Transfer ── wait
//!    └───── imm_counter ──────▶ ImmCounter ── wait
//! ```
//!
//! Engines are connected by a TCP stream ([`Engine::dial`], [`Engine::accept`]), or by another
//! [control connection](Control), which they keep. A peer finds a region by the name under which it
//! is [offered](Peer::offer). [`RemoteRegion`] can also be serialized with serde, and exchanged by
//! the program.
//!
//! # Example
//! ```no_run
//! use rdma_transfer::{Engine, EngineOptions, Span, Token, TransferOptions};
//! use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open(&["mlx5_0", "mlx5_1"], EngineOptions::new().queue_pairs(2))?;
//! let region = engine.alloc(1 << 30)?;
//! let token = Token::new(&std::fs::read("/etc/engine.token")?)?;
//! let peer = engine.dial("10.0.0.2:7600", &token)?;
//! let remote = peer.remote("cache", Duration::from_secs(10))?;
//!
//! // The sender: two pages, and the immediate 7 after both.
//! let pages = [Span::new(0, 8192, 4096), Span::new(65536, 0, 4096)];
//! let options = TransferOptions::new().imm(7).deadline(Duration::from_secs(5));
//! let transfer = peer.write(&region, &remote, &pages, options)?;
//! transfer.wait(Duration::from_secs(10))?;
//!
//! // The receiver: accepts the sender, and waits until one transfer with the immediate 7 has
//! // arrived.
//! let listener = std::net::TcpListener::bind("10.0.0.2:7600")?;
//! let peer = engine.accept(&listener, &token)?;
//! peer.offer("cache", &region)?;
//! engine.imm_counter(7).wait(1, Duration::from_secs(10))?;
//! # Ok(()) }
//! ```
//!
//! # Failures
//!
//! - When a queue pair or an adapter fails, its transfers continue on the remaining ones. Both
//!   sides destroy the failed queue pair before a request is repeated, so no late packet changes
//!   memory after that.
//! - The adapter is connected again after a [backoff](EngineOptions::min_backoff), and used when a
//!   message over it has been acknowledged. [`Peer::paths`] shows the state.
//! - Without any adapter, transfers wait. They end with success, by their
//!   [deadline](TransferOptions::deadline), or when the peer is disconnected.
//! - A transfer fails if its memory permits no such access, for example because the peer has
//!   released it.
//!
//! # Memory in flight
//!
//! - Dropping a region or a transfer never frees memory that a device may still access.
//!   [`Region::release`] tells when it is free.
//! - When [`Transfer::wait`] returns and the transfer has [ended](Transfer::has_ended), no device
//!   of either side accesses memory for it anymore. [`Transfer::wait`] names the one exception.
//!
//! # Immediates
//!
//! A transfer with an immediate counts exactly once at each peer, after all of its bytes have
//! arrived, also if parts of it were repeated.
//!
//! # Security
//!
//! With a [`Token`], engines connect only to engines that have it, and encrypt their messages.
//! [`Engine::dial_unauthenticated`] and [`Engine::accept_unauthenticated`] do neither: then every
//! program that can connect to the port, or take over the connection in the network, is a peer.
//! The transferred data is never encrypted, and can be read and changed in the RDMA network.
//!
//! - A peer gets the keys of the regions that it is [offered](Peer::offer). Keys are numbers of 32
//!   bits, and all peers share a protection domain on each device. So a peer can also guess the key
//!   of a region that it was not offered. It can read every region of the engine, and write those
//!   of [`Engine::alloc`], [`Engine::register_mut`] and [`Engine::register_dmabuf`]. Peers that
//!   must not access each other's memory need an engine each.
//! - A peer decides which immediates are counted, and over iWARP to which address the engine
//!   connects.
//! - A peer cannot use unlimited memory or time, and does not end the connections to others.
//!
//! # Devices
//!
//! InfiniBand, RoCE and iWARP. The latter is connected by the connection manager, to the IP address
//! of the device. Its requests complete before they have arrived, so each write is followed by a
//! message, and the peer's engine reports over the control connection which messages have arrived.
//!
//! A device without reliable connections makes [`Engine::open`] fail with
//! [`Unsupported`](ibverbs::ErrorKind::Unsupported). Soft-iWARP may read memory after it was
//! deregistered. Therefore [`Engine::alloc`] and [`Engine::register_mut`] fail with the same kind
//! if an engine has another device beside it. [`Engine::register`] does not.

#![forbid(unsafe_code)]

mod api;
mod deferred;
mod device;
mod failure;
mod memory;
mod options;
mod protocol;
mod runtime;
mod waker;

pub use ibverbs::{Error, ErrorKind, Result};

pub use crate::api::engine::Engine;
pub use crate::api::group::PeerGroup;
pub use crate::api::peer::Peer;
pub use crate::api::transfer::Transfer;
pub use crate::memory::region::{Region, Release};
pub use crate::options::{EngineOptions, TransferOptions};
pub use crate::protocol::Token;
pub use crate::protocol::control::{Control, StreamControl};
pub use crate::protocol::immediates::ImmCounter;
pub use crate::protocol::path::PathStatus;
pub use crate::protocol::remote_region::RemoteRegion;
pub use crate::protocol::stripe::Span;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
