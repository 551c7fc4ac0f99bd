//! `ribping` tests reachability.
//!
//! [`args`] → [`target`] (the parsed address) → [`transport_choice`] → a
//! [`PingTransport`](transport::PingTransport) ([`umad`] or [`rping`]) → [`session`] (the loop) →
//! [`tracker`] (sent, answered and lost pings) → [`report`]. [`server`] answers pings of both
//! transports. The program `ribping` calls [`main`].

pub mod args;
pub mod host_name;
pub mod report;
pub mod rping;
mod run;
pub mod server;
pub mod session;
pub mod stop;
pub mod target;
pub mod tracker;
pub mod transport;
pub mod transport_choice;
pub mod umad;

pub use run::{main, run};
