//! Start and framing of the control protocol: the greeting ([`hello`]), the handshake of ends that
//! have a token ([`handshake`], [`token`]), the connection that it protects ([`control_stream`]),
//! and length-prefixed JSON messages ([`frame`]). `rperf` controls tests with it, and `ribinfo`
//! requests the facts of another host. Each tool defines its own messages.

pub mod control_stream;
pub mod frame;
pub mod handshake;
pub mod hello;
pub mod token;
