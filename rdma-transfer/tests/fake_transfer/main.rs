//! Tests of transfers on the fake provider.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/stress.rs"]
mod stress;

mod connect;
mod failover;
mod memory;
mod transfer;
