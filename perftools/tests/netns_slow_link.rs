//! Tests of `rperf` over sockets on a link that needs longer than `--timeout` for what the buffers
//! hold, and for one message.

mod common;

use common::{json, namespace};

#[test]
#[ignore = "needs network namespaces: run by ci/test tools"]
fn tests_with_buffers_larger_than_a_link_end() {
    if !namespace::is_inside("tests_with_buffers_larger_than_a_link_end") {
        return;
    }
    let _server = namespace::connected_server(
        "tc qdisc add dev client root tbf rate 1mbit burst 32kb latency 300ms",
    );
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
