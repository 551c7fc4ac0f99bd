//! `ribping` tests reachability. The program `ribping` calls [`main`].
//!
//! Data flows from [`args`] to [`target`] (the parsed address), [`transport_choice`], a
//! [`PingTransport`](transport::PingTransport) ([`umad`] or [`rping`]), [`session`] (the loop),
//! [`tracker`] (sent, answered and lost pings) and [`report`]. [`server`] answers the pings of both
//! transports.

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
