//! Hostile peers of the servers that listen on sockets: ten behaviours against each protocol, and
//! sessions whose bytes are changed on the way. `ci/stress hostile` runs both for longer.

mod changed;
#[path = "../common/mod.rs"]
mod common;
mod servers;
