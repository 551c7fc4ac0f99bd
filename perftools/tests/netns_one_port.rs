//! Tests of `rperf` over sockets with a server whose packet filter opens one port.

mod common;

use common::{json, namespace};

#[test]
#[ignore = "needs network namespaces: run by ci/test tools"]
fn tests_over_sockets_need_one_port() {
    if !namespace::is_inside("tests_over_sockets_need_one_port") {
        return;
    }
    let _server = namespace::connected_server(
        "ip netns exec server nft -f - <<'END'
        table inet filter {
            chain input {
                type filter hook input priority 0; policy drop;
                ct state established,related accept
                tcp dport 7000 accept
                udp dport 7000 accept
            }
        }
END",
    );
    let run = |options: &str| {
        let records = json(&format!("-lp 7000 {options}"));
        let measured = &records[0]["outcome"]["measured"];
        let verified = |side: &str| measured[side]["verified"].as_u64().unwrap_or(0);
        let bytes = verified("local_stats") + verified("remote_stats");
        assert!(bytes > 0, "{options}: {records:#?}");
    };
    // The filter drops packets to another port.
    let other = common::run("-lp 7000 -to 1 --ip-port 7001 10.77.0.2 tcp_bw");
    assert_eq!(other.code(), Some(1), "{other}");
    for test in ["tcp_bw", "tcp_lat", "udp_bw", "udp_lat"] {
        run(&format!("-t 0.2 --verify 10.77.0.2 {test}"));
    }
    for test in ["tcp_bw", "udp_bw"] {
        run(&format!("-t 0.2 --verify --flip on 10.77.0.2 {test}"));
        run(&format!(
            "-t 0.2 --verify --parallel 3 --bidir 10.77.0.2 {test}"
        ));
        // Several clients use the port at the same time.
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| run(&format!("-n 100 --verify 10.77.0.2 {test}")));
            }
        });
    }
}
