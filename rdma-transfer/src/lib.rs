//! A transfer engine over RDMA, without `unsafe`: registered memory, scattered writes that are
//! striped over several devices and queue pairs, peer groups, and counters of immediates.
//!
//! It is built on the public API of [`ibverbs`] and shows that this API suffices for the data path
//! of a distributed program, for example to move the pages of a key-value cache or to dispatch
//! tokens to experts.
//!
//! # Objects
//!
//! ```text
//! Engine ── alloc ─────▶ Region ── remote ──▶ RemoteRegion   (sent to the peer)
//!    ├───── new_peer ──▶ PendingPeer ─ address ─▶ PeerAddress  (sent to the peer)
//!    │                       └─ connect ──▶ Peer ──▶ PeerGroup
//!    │                                        └─ write ─▶ Transfer ── wait
//!    └───── imm_counter ──▶ ImmCounter ── wait
//! ```
//!
//! Programs exchange [`PeerAddress`] and [`RemoteRegion`] over a connection of their own. Both can
//! be serialized with serde.
//!
//! # Example
//! ```no_run
//! use rdma_transfer::{Engine, EngineOptions, PeerAddress, RemoteRegion, Span};
//! use std::time::Duration;
//! # fn exchange<T>(ours: T) -> T { ours }
//! # fn main() -> rdma_transfer::Result<()> {
//! let engine = Engine::open(&["mlx5_0", "mlx5_1"], EngineOptions::new().queue_pairs(2))?;
//! let region = engine.alloc(1 << 30)?;
//! let pending = engine.new_peer()?;
//! let address: PeerAddress = exchange(pending.address().clone());
//! let peer = pending.connect(&address)?;
//! let remote: RemoteRegion = exchange(region.remote());
//!
//! // The sender: two pages, and the immediate 7 after both.
//! let pages = [Span::new(0, 8192, 4096), Span::new(65536, 0, 4096)];
//! let transfer = peer.write(&region, &remote, &pages, Some(7))?;
//! transfer.wait(Duration::from_secs(1))?;
//!
//! // The receiver: waits until one transfer with the immediate 7 has arrived.
//! engine.imm_counter(7).wait(1, Duration::from_secs(1))?;
//! # Ok(()) }
//! ```
//!
//! # Memory in flight
//!
//! - A queue pair holds each [`Region`] that it was used with, until it is destroyed. Dropping a
//!   region or a transfer therefore never frees memory that a device may still access.
//! - [`Transfer::wait`] returns `Ok`, or an error other than
//!   [`TimedOut`](ibverbs::ErrorKind::TimedOut), when no device accesses the memory for this
//!   transfer any more. After a failure, the queue pairs of the peer are destroyed first.
//! - After a timeout the transfer is still in flight. Wait again, or call [`Peer::disconnect`],
//!   which destroys the queue pairs.
//!
//! # Immediates
//!
//! A transfer with an immediate counts once at each peer, after all of its bytes have arrived.
//! Every queue pair of the peer delivers the immediate behind its share of the bytes, and the
//! engine counts the transfer when the last one has arrived. This needs no additional round trip,
//! and no ordering between devices.
//!
//! # Devices
//!
//! The engine needs reliable connections and RDMA writes with immediate data, so the devices are
//! InfiniBand or RoCE. iWARP has no immediate data, and EFA no reliable connections:
//! [`Engine::open`] fails with [`Unsupported`](ibverbs::ErrorKind::Unsupported) and names the
//! device.

#![forbid(unsafe_code)]

mod connection;
mod engine;
mod failure;
mod group;
mod immediates;
mod nic;
mod options;
mod peer;
mod region;
mod shared;
mod stripe;
mod transfer;

pub use ibverbs::{Error, ErrorKind, Result};

pub use crate::engine::Engine;
pub use crate::group::PeerGroup;
pub use crate::immediates::ImmCounter;
pub use crate::options::EngineOptions;
pub use crate::peer::{Peer, PeerAddress, PendingPeer, QueuePairAddress};
pub use crate::region::{Region, RemoteRegion};
pub use crate::stripe::Span;
pub use crate::transfer::Transfer;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
