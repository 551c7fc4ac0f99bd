//! `rperf` while a device's network interface is down: alone in its program, as it disturbs all others.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{devices, fails, run};

fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// An interface that is down, and comes up again with its IPv6 addresses when this is dropped.
struct Down {
    netdev: String,
    addresses: Vec<String>,
}

impl Down {
    fn new(device: &str) -> Self {
        let path = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0");
        let netdev = std::fs::read_to_string(path).unwrap().trim().to_owned();
        // Down takes the IPv6 addresses away, but not the IPv4 ones.
        let shown = ip(&format!("-6 -oneline address show dev {netdev} scope global"));
        let addresses = shown.lines().filter_map(|l| l.split_whitespace().nth(3)).map(str::to_owned).collect();
        ip(&format!("link set {netdev} down"));
        Self { netdev, addresses }
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        ip(&format!("link set {} up", self.netdev));
        for address in &self.addresses {
            ip(&format!("-6 address add {address} dev {} nodad", self.netdev));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_port_that_is_down_is_named_with_the_remedy() {
    for device in devices() {
        let down = Down::new(&device);
        let text = fails(&format!("-i {device} -to 3 rc_bw"), 1);
        assert!(text.contains("is not active") && text.contains("ip link set"), "{text}");
        drop(down);
        let begin = Instant::now();
        while !run(&format!("-i {device} -n 10 rc_bw")).status.success() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{device} does not come back");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
