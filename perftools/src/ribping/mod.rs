//! `ribping` tests reachability. The program `ribping` calls [`main`].
//!
//! Data flows from [`args`] to `target` (the parsed address), `transport_choice`, a `PingTransport`
//! (`umad` or [`rping`]), [`session`] (the loop), `tracker` (sent, answered and lost pings) and
//! `report`. `server` answers the pings of both transports.

pub mod args;
mod host_name;
mod report;
pub mod rping;
mod run;
mod server;
pub mod session;
pub mod stop;
#[doc(hidden)]
pub mod target;
mod tracker;
mod transport;
mod transport_choice;
mod umad;

pub use run::{main, run};
