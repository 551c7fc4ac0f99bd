//! Options that tune a test.

use crate::common::{Server, connects_directly, devices, fails, json};
use crate::{connect_options, sum_of_both_ends};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn tuning_options_do_not_change_the_data() {
    for device in devices() {
        let roce = if connects_directly(&device) {
            "--traffic-class 32 --service-level 1 --pkey-index 0"
        } else {
            ""
        };
        for options in [
            "--post-list 1 --cq-moderation 1 --inline 0 -m 32",
            "--post-list 64 --cq-moderation 1000 --inline auto -m 32",
            "--qps 4 --depth 3 -m 3001",
            "--cpu-affinity 0 -cp1 -m 100",
            "-nr 1 -m 4000",
            "--recv-list 7 --depth 8 -m 900",
            roce,
        ] {
            for record in json(
                &format!("-i {device} {options} --verify -n 40 rc_bw rc_rdma_write_bw").replace(
                    "rc_bw",
                    if options.contains("-m") {
                        "rc_bw"
                    } else {
                        "-m 100 rc_bw"
                    },
                ),
            ) {
                let m = &record["outcome"]["measured"];
                let verified = |side: &str| m[side]["verified"].as_u64().unwrap();
                assert!(
                    verified("local_stats") + verified("remote_stats") > 0,
                    "{record:#}"
                );
            }
        }
        let text = fails(&format!("-i {device} --gid-index 77 rc_bw"), 1);
        assert!(
            text.contains("no GID 77") && text.contains("--gid-index"),
            "{text}"
        );
        let text = fails(&format!("-i {device} --cpu-affinity node77 -n 1 rc_bw"), 1);
        assert!(text.contains("NUMA node 77"), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn threads_srq_and_flip_deliver_the_same_bytes() {
    for device in devices() {
        let server = Server::start();
        // Each set of options runs with one of the connection methods, in turn.
        let options = [
            "--threads 2 --qps 2",
            "--srq --threads 2 --recv-list 4",
            "--flip on",
        ];
        for (options, connect) in options.iter().zip(connect_options(&device).iter().cycle()) {
            let tests = if options.contains("flip") {
                "rc_bw rc_rdma_write_bw"
            } else {
                "rc_bw rc_bi_bw"
            };
            let line = format!(
                "{} -i {device} {connect} {options} --verify -n 31 -m 3001 {tests}",
                server.target()
            );
            for record in json(&line) {
                let m = &record["outcome"]["measured"];
                let directions = if record["test"] == "rc_bi_bw" { 2 } else { 1 };
                let (sent, arrived) = (
                    sum_of_both_ends(&record, "/sent/msgs"),
                    sum_of_both_ends(&record, "/received/msgs"),
                );
                assert_eq!(sent, 31 * directions, "{line}: {record:#}");
                // The target of an iWARP write gets no completion.
                assert!(
                    arrived == 31 * directions
                        || arrived == 0 && record["test"] == "rc_rdma_write_bw",
                    "{record:#}"
                );
                assert!(
                    sum_of_both_ends(&record, "/verified") > 0,
                    "{line}: {record:#}"
                );
                let threads = m["local_stats"]["threads"].as_array().map_or(1, Vec::len);
                assert_eq!(
                    threads,
                    if options.contains("threads") { 2 } else { 1 },
                    "{record:#}"
                );
                if options.contains("flip") {
                    assert_eq!(m["remote_stats"]["sent"]["msgs"], 31, "{record:#}");
                }
            }
        }
    }
}
