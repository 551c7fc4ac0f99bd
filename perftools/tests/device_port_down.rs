//! `rperf` while a device's network interface is down: alone in its program, as it disturbs all
//! others.

mod common;

use std::time::{Duration, Instant};

use common::{Server, address, addresses, devices, fails, ip, netdev, run};

/// An interface that is down, and comes up again with its IPv6 addresses when this is dropped.
struct Down {
    netdev: String,
    addresses: Vec<String>,
}

impl Down {
    fn new(device: &str) -> Self {
        let netdev = netdev(device);
        // Down takes the IPv6 addresses away, but not the IPv4 ones.
        let addresses = addresses(&netdev, "-6");
        ip(&format!("link set {netdev} down"));
        Self { netdev, addresses }
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        ip(&format!("link set {} up", self.netdev));
        for address in &self.addresses {
            ip(&format!(
                "-6 address replace {address} dev {} nodad",
                self.netdev
            ));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_port_that_is_down_is_named_with_the_remedy() {
    for device in devices() {
        let (server, address) = (Server::start(), address(&device));
        let down = Down::new(&device);
        // Nor is another device taken, where the address says which is meant.
        let text = fails(&format!("-lp {} {address} -to 3 rc_bw", server.port), 1);
        assert!(
            text.contains("is not active") && text.contains("names another device"),
            "{text}"
        );
        let text = fails(&format!("-i {device} -to 3 rc_bw"), 1);
        assert!(
            text.contains("is not active") && text.contains("ip link set"),
            "{text}"
        );
        drop(down);
        let begin = Instant::now();
        while !run(&format!("-i {device} -n 10 rc_bw")).status.success() {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{device} does not come back"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
