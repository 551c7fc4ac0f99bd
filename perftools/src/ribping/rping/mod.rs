//! Pings over a connection, compatible with `rping`: the client exposes memory, the server reads
//! it, the client exposes other memory, and the server writes the same bytes there.
//! Used by `transport_choice` and `server`.

pub(crate) mod client;
mod closed_listener;
pub(crate) mod endpoint;
pub mod message;
pub(crate) mod server;

/// Maximum size of a ping in bytes, the same as that of rping.
pub(crate) const MAX_SIZE: u32 = 64 * 1024;
