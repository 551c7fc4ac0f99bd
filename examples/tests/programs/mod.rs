//! Programs under test and the C programs that they are compared with.

#![allow(dead_code, reason = "each test program uses only some of these")]

use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};

use ibverbs::{Device, device::TransportType};
use test_support::lab::reported_device_names;
use test_support::process::{Finished, Process, command};

/// Returns the devices to test on and reports each of them.
pub(crate) fn devices() -> Vec<Device> {
    let by_name = |name: &String| Device::by_name(name).expect(name);
    reported_device_names().iter().map(by_name).collect()
}

/// Returns `true` if queue pairs of the device can be connected without rdma_cm.
pub(crate) fn connects_directly(device: &Device) -> bool {
    device.transport() == TransportType::IB
}

/// Expands to the path of a program of this package.
macro_rules! example {
    ($name:literal) => {
        env!(concat!("CARGO_BIN_EXE_", $name))
    };
}
pub(crate) use example;

/// Starts a program with arguments that are split at white space.
pub(crate) fn start(program: &str, arguments: &str) -> Process {
    Process::spawn(command(&format!("{program} {arguments}")).stdin(Stdio::null()))
}

/// Runs a program until it exits, and prints its output for the case that the test fails.
pub(crate) fn run(program: &str, arguments: &str) -> Finished {
    let finished = start(program, arguments).wait();
    println!("{program} {arguments}: {finished:?}");
    finished
}

/// Returns a port that no other test uses.
pub(crate) fn tcp_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(18600);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Checks that the programs exited with status 0, and returns them.
#[track_caller]
pub(crate) fn assert_success<const N: usize>(programs: [Finished; N]) -> [Finished; N] {
    for finished in &programs {
        assert!(finished.success(), "{finished:?}");
    }
    programs
}

/// Ends a server that runs without limit, as Ctrl-C does, and returns its output.
pub(crate) fn stop(server: Process) -> Finished {
    server.interrupt();
    server.wait()
}
