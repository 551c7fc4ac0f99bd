//! Beside qperf 0.4.11: its protocol, in both roles.
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
//! All numbers are little-endian. An end that fails sends the urgent byte `?`, then a text, and
//! shuts its side down.
//!
//! [`control_conn`] is the control connection, [`client`] and [`server`] are the two roles; `rdma`
//! connects RC by rdma_cm and has loops that end as qperf's do, each by its own clock.
//! [`request`], [`node`], [`stat`] and [`conf`] are pure: bytes to values and back, any bytes
//! without a panic.

mod bytes;
pub mod client;
pub mod conf;
pub mod control_conn;
pub mod index;
pub mod node;
mod rdma;
pub mod request;
pub mod server;
pub mod stat;

/// What both ends say before the test.
pub const BEFORE: &[u8] = b"synchronization before test";
/// What the client says after it has the server's figures.
pub const AFTER: &[u8] = b"synchronization after test";
/// The version of qperf whose protocol this is; a peer is compared by the first two numbers.
pub const VERSION: (u16, u16, u16) = (0, 4, 11);
