//! Tests of the programs on devices. `ci/guest/device-tests` runs each module alone.

#[path = "../common/mod.rs"]
mod common;
#[path = "../rping_peer/mod.rs"]
mod rping_peer;

mod adapter_faults;
mod gpu;
mod monitor;
mod nfs;
mod port_down;
mod qperf;
mod readme;
mod removed;
mod ribinfo;
mod ribping;
mod rperf;
mod server;
mod several;
mod sockets;
mod stress_kill;
mod stress_net;
mod stress_rping;
