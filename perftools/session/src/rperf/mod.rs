//! The control connection between client and server: rperf's own protocol over TCP.
//!
//! ```text
//! client                                    server
//!   hello, in a request of qperf ─────────▶           magic, protocol, version
//!          ◀────────────────────────────── hello
//!   handshake of Noise ───────────────────▶                      if the server has a token
//!          ◀────────────────────────────── handshake of Noise
//!   Request (the whole specification) ────▶           checked again, with the server's limits
//!          ◀────────────────────────────── Offer
//!   Answer ───────────────────────────────▶
//!                 both connect and post receives
//!   Ready ◀───────────────────────────────▶ Ready
//!                 the test runs; both send Finished (number of sent messages)
//!   Stats ◀───────────────────────────────▶ Stats
//! ```
//! A coordinator of `rperf mesh` may send `RunClient` instead of `Request`; see `delegate`.
//! A client may send `AskFacts` instead of `Request`; the server replies with `Facts`. `rperf
//! monitor` sends `AskReflectors`; the server replies with `Reflectors`. Either end may send an
//! `Error` at any time, which ends the session. Each connection is used for one test.
//!
//! `client` and [`server`] use [`link`] and [`message`]; [`session`] is the server's end of one
//! connection. `rdma_session` and `socket_session` run the test at either end. [`devices`] runs the
//! sessions of a client with several devices. `run` uses this module, which starts tests in
//! `transport`, `sockets` and `engine`.

pub(crate) mod admission;
pub(crate) mod client;
pub mod context;
pub mod coordinator;
pub mod data_streams;
pub(crate) mod delegate;
pub mod devices;
pub mod link;
pub mod message;
mod peer_state;
mod rdma_session;
pub mod rules;
pub mod server;
pub mod session;
mod socket_session;

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod devices_tests;
#[cfg(test)]
mod fake_backend;
#[cfg(test)]
mod report_diagnosis;
#[cfg(test)]
mod socket_session_tests;
#[cfg(test)]
mod tests;
