//! Pings over a connection, compatible with `rping`: the client exposes memory, the server reads
//! it, the client exposes other memory, and the server writes the same bytes there.
//! `transport_choice` and `server` use it.

pub mod client;
pub mod endpoint;
pub mod message;
pub mod server;

/// The largest ping, rping's own limit.
pub const MAX_SIZE: u32 = 64 * 1024;
