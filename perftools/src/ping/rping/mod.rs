//! Pings over a connection, in rping's way: the pinger offers memory, the server reads it, the
//! pinger offers other memory, the server writes what it read.

pub mod client;
pub mod end;
pub mod message;
pub mod server;

/// The largest ping, rping's own limit.
pub const MAX_SIZE: u32 = 64 * 1024;
