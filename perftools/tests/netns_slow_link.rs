//! Tests of `rperf` over sockets on a link that needs longer than `--timeout` for what the buffers
//! hold, and for one message.

mod common;

use std::process::Command;

use common::namespace::{self, shell};
use common::{Server, json, rperf};

#[test]
#[ignore = "needs network namespaces: run by ci/test tools"]
fn tests_with_buffers_larger_than_a_link_end() {
    if !namespace::is_inside("tests_with_buffers_larger_than_a_link_end") {
        return;
    }
    shell(
        "mount -t tmpfs none /run; ip link set lo up
        ip netns add server
        ip link add client type veth peer name eth0 netns server
        ip addr add 10.77.0.1/30 dev client; ip link set client up
        ip -n server addr add 10.77.0.2/30 dev eth0; ip -n server link set eth0 up
        tc qdisc add dev client root tbf rate 1mbit burst 32kb latency 300ms",
    );
    let mut command = Command::new("ip");
    command.args(["netns", "exec", "server"]);
    command.arg(rperf().get_program()).args(["-lp", "7000"]);
    let _server = Server::spawn(&mut command);
    // The link transfers 125 kB per second: 4 s for one message, and for many that the socket takes
    // at once. The timeout is half of that, because TCP may take a second to repeat a lost packet.
    for messages in ["-n 1 -m 512K", "-n 64 -m 8K"] {
        let records = json(&format!(
            "-lp 7000 -to 2 --sock-buf-size 400K {messages} 10.77.0.2 tcp_bw"
        ));
        let arrived = &records[0]["outcome"]["measured"]["remote_stats"]["received"]["bytes"];
        assert_eq!(arrived, 512 << 10, "{messages}: {records:#?}");
    }
}
