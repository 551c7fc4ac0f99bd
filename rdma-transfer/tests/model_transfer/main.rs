//! Tests of transfers over adapters of `nic-model`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/stress.rs"]
mod stress;

mod failover;
mod threads;
