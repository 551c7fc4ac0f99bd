//! The protocol of qperf 0.4.11, as client and as server.
//!
//! ```text
//! client                                      server
//!   Request, 200 bytes ──────────────────────▶
//!          ◀─────────────────── port (sockets, rdma_cm)
//!                 the data connection
//!   Node ◀───────────────────────────────────▶ Node          (RDMA only)
//!   "synchronization before test" ◀──────────▶ the same
//!                 the test; each end stops by its own clock
//!          ◀──────────────────────────────────  Stat, 256 bytes
//!   "synchronization after test" ────────────▶
//! ```
//! All numbers are little-endian. An end that fails sends the urgent byte `?` and an error text,
//! then shuts down its sending direction.
//!
//! `control_conn` is the control connection, and `client` and [`server`] are the two roles.
//! `rdma` connects RC queue pairs with rdma_cm; its loops end like qperf's, each by its own clock.
//! [`request`], [`node`], [`stat`] and [`conf`] encode and decode messages. Decoding never panics.

mod bytes;
pub(crate) mod client;
pub mod conf;
pub(crate) mod control_conn;
pub mod index;
pub mod node;
mod rdma;
pub mod request;
pub mod server;
pub mod stat;

/// Message that both ends send before the test.
pub(crate) const SYNC_BEFORE: &[u8] = b"synchronization before test";
/// Message that the client sends after it has received the server's statistics.
pub(crate) const SYNC_AFTER: &[u8] = b"synchronization after test";
/// Implemented version of qperf. The first two numbers must match those of the peer.
pub(crate) const VERSION: (u16, u16, u16) = (0, 4, 11);
