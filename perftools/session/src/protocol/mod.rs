//! Start and framing of the control protocol: the greeting ([`hello`]), authentication with a token
//! ([`auth`], [`token`]) and length-prefixed JSON messages ([`frame`]). `rperf` controls tests with
//! it, and `ribinfo` requests the facts of another host. Each tool defines its own messages.

pub mod auth;
pub mod frame;
pub mod hello;
pub mod token;
