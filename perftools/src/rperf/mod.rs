//! `rperf` measures bandwidth and latency between two hosts or within one host.
//!
//! Data flows one way: [`args`] → [`measure::spec`] (a checked test) → [`session::rperf`] (the
//! protocol with the peer) → [`measure`] (a connected endpoint, the timed loop, statistics) →
//! [`report`]. [`session::qperf`] speaks the protocol of qperf instead, `tune` searches for the
//! best settings, and [`run`] connects the parts; the program `rperf` calls [`main`].

pub mod args;
pub mod run;
mod tune;

pub use run::main;
