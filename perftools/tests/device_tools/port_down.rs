//! `rperf` while the network interface of a device is down.

use std::time::Duration;

use test_support::lab::{LinkDown, netdev};
use test_support::process::wait_until;
use test_support::text::assert_contains;

use crate::common::{Server, connects_directly, devices, fails, ipv4_address, run, spawn};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_that_is_down_is_reported_with_a_remedy() {
    for device in devices() {
        let (server, address) = (Server::start(), ipv4_address(&device));
        let down = LinkDown::new(&netdev(&device));
        // The address names the device, so `rperf` must not use another device.
        let text = fails(&format!("-lp {} {address} -to 3 rc_bw", server.port), 1);
        assert_contains(&text, &["is not active", "choose another device"]);
        let text = fails(&format!("-i {device} -to 3 rc_bw"), 1);
        assert_contains(&text, &["is not active", "ip link set"]);
        drop(down);
        wait_until_up(&device);
        if !connects_directly(&device) {
            // Within one host, Soft-iWARP sends through the loopback interface, which stays up.
            continue;
        }
        // The port goes down in the middle of a test.
        let server = Server::with_options(&["-v"]);
        let line = format!("-lp {} {address} -to 10 -t 60 rc_bw", server.port);
        let client = spawn(&line);
        server.wait_for_log("begins");
        let down = LinkDown::new(&netdev(&device));
        let output = client.wait();
        assert_eq!(output.code(), Some(1), "{output}");
        assert!(
            output
                .stderr
                .contains(&format!("port 1 of {device} is DOWN")),
            "{output}"
        );
        drop(down);
        wait_until_up(&device);
    }
}

/// Waits until a test over the device succeeds.
fn wait_until_up(device: &str) {
    let works = || run(&format!("-i {device} -n 10 rc_bw")).success();
    assert!(
        wait_until(Duration::from_secs(20), works),
        "{device} does not recover"
    );
}
