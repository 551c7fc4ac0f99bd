//! The conversation with the peer, over TCP: rperf's own protocol.
//!
//! ```text
//! client                                    server
//!   hello: magic, protocol, version ──────▶
//!          ◀────────────────────────────── hello
//!          ◀────────────────────────────── Challenge            where the server wants a token
//!   Proof ────────────────────────────────▶
//!          ◀────────────────────────────── Proof
//!   Request (the whole specification) ────▶           checked again, against the server's device
//!          ◀────────────────────────────── Offer
//!   Answer ───────────────────────────────▶
//!                 both connect, and post their receives
//!   Ready ◀───────────────────────────────▶ Ready
//!                 the test runs; Finished (sent n) each way
//!   Stats ◀───────────────────────────────▶ Stats
//! ```
//! Instead of `Request`, `AskFacts` may come, which `Facts` answers. Instead of any message an
//! `Error` with a text may come, which ends the conversation. One connection is one test.

pub mod admission;
pub mod client;
pub mod context;
pub mod link;
pub mod message;
pub mod rules;
pub mod server;
pub mod session;
mod socket_session;
pub mod token;

#[cfg(test)]
mod fake_backend;
#[cfg(test)]
mod tests;
