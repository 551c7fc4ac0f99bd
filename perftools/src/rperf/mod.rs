//! `rperf` measures bandwidth and latency between two hosts or within one host.
//!
//! Data flows one way: [`args`] → [`spec`] (a checked test) → [`control`] (the protocol with the
//! peer) → [`transport`] or [`sockets`] (a connected endpoint) → [`engine`] (the timed loop) →
//! [`stats`] → [`report`]. [`qperf`] speaks the protocol of qperf instead, [`auto`] searches for
//! the best settings, and [`run`] connects the parts; the program `rperf` calls [`main`].

pub mod args;
pub mod auto;
pub mod run;

pub use run::main;
