//! Options that tune a test.

use test_support::process;
use test_support::text::assert_contains;

use super::{connect_options, sum_of_both_ends};
use crate::common::{Server, connects_directly, devices, fails, json, rperf, run};

/// Devices state no limit.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn too_much_inline_data_is_refused_with_the_option() {
    for device in devices() {
        let line = "--inline 64K -m 64K -n 10 rc_bw";
        let output = run(&format!("-i {device} {line}"));
        let names_the_option = output.stderr.contains("inline data: lower --inline");
        let lacks_rc = output.stderr.contains("does not support RC");
        assert!(output.success() || names_the_option || lacks_rc, "{output}");
    }
}

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
        let record = &json(&format!(
            "-i {device} -nr 1 -m 4000 --verify -n 40 rc_rdma_read_bw"
        ))[0];
        let verified = &record["outcome"]["measured"]["local_stats"]["verified"];
        assert!(verified.as_u64().unwrap() >= 40 * 4000, "{record:#}");
        let text = fails(&format!("-i {device} -cm1 --mtu 256 rc_bw"), 1);
        assert!(text.contains("rdma_cm selects the MTU"), "{text}");
        let text = fails(&format!("-i {device} --gid-index 77 rc_bw"), 1);
        assert_contains(&text, &["no GID 77", "--gid-index"]);
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

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn options_of_perftest_do_not_change_the_data() {
    for device in devices() {
        let all = "--relaxed-ordering off --cq-vector 0";
        let roce = [
            "--flow-label 74565 --qp-timeout 12 --retry-count 3",
            "-cm1 --traffic-class 96 --qp-timeout 12 --retry-count 3",
        ];
        let mut options = vec![all];
        if connects_directly(&device) {
            options.extend(roce);
        }
        for options in options {
            let line =
                format!("-i {device} {options} --verify -n 40 -m 3000 rc_bw rc_rdma_write_bw");
            for record in json(&line) {
                let verified = sum_of_both_ends(&record, "/verified");
                assert_eq!(verified, 40 * 3000, "{options}: {record:#}");
                let tuning = &record["outcome"]["measured"]["spec"]["tuning"];
                let is_off = tuning["relaxed_ordering"] == false;
                assert_eq!(is_off, options == all, "{tuning}");
            }
        }
        let text = fails(&format!("-i {device} --cq-vector 9999 -n 1 rc_bw"), 1);
        assert_contains(
            &text,
            &["completion vector 9999", "help: set --cq-vector below"],
        );
        // A path by rdma_cm has the flow label that the kernel chooses.
        let text = if connects_directly(&device) {
            fails(&format!("-i {device} -cm1 --flow-label 7 -n 1 rc_bw"), 2)
        } else {
            fails(&format!("-i {device} --flow-label 7 -n 1 rc_bw"), 1)
        };
        assert!(text.contains("flow"), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn each_latency_is_recorded_on_request() {
    for device in devices() {
        let record = &json(&format!("-i {device} --samples -n 500 rc_lat"))[0];
        let m = &record["outcome"]["measured"];
        let samples = m["latency_samples"].as_array().expect("samples");
        assert_eq!(samples.len(), 500, "{record:#}");
        let nanos = samples.iter().map(|n| n.as_u64().expect("nanoseconds"));
        let (shortest, min) = (nanos.min(), m["latency"]["min"].as_u64());
        // The histogram has three significant digits.
        let (shortest, min) = (shortest.expect("a sample"), min.expect("a minimum"));
        assert!(shortest.abs_diff(min) <= min / 500 + 1, "{shortest} {min}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn more_queue_pairs_than_a_message_can_describe() {
    // The description of 600 queue pairs exceeds 64 KiB.
    for device in devices().iter().filter(|name| connects_directly(name)) {
        let line = format!("-i {device} -to 60 --qps 600 --depth 1 -n 3000 -m 64 rc_bw");
        let record = &json(&line)[0];
        let m = &record["outcome"]["measured"];
        assert_eq!(m["remote_stats"]["received"]["msgs"], 3000, "{record:#}");
        let text = fails(&format!("-i {device} --qps 16385 rc_bw"), 2);
        assert!(text.contains("expected 1 to 16384"), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dc_initiators_send_to_several_targets() {
    for device in devices() {
        let line = format!("-i {device} -n 300 -m 4001 --verify --dc-targets 3");
        if !device.starts_with("mlx5") {
            let text = fails(&format!("{line} dc_bw"), 1);
            let remedy = "does not support DC (dynamically connected transport); help: run rc_bw";
            assert!(text.contains(remedy), "{text}");
            continue;
        }
        let bandwidth = "dc_bw dc_bi_bw dc_rdma_write_bw dc_rdma_read_bw";
        for (options, tests) in [
            ("", bandwidth),
            ("--qps 2 --post-list 1", bandwidth),
            ("--qps 2 --threads 2", "dc_bw"),
            ("", "dc_lat dc_rdma_write_lat"),
        ] {
            for record in json(&format!("{line} {options} {tests}")) {
                let m = &record["outcome"]["measured"];
                let verified = |side: &str| m[side]["verified"].as_u64().unwrap();
                let verified = verified("local_stats") + verified("remote_stats");
                assert!(verified >= 300 * 4001, "{record:#}");
            }
        }
        // Only the model counts the requests of each target.
        if std::env::var_os("NIC_MODEL").is_some() {
            assert_targets_take_turns(&line);
        }
    }
}

/// Checks that 300 writes of 2 initiators are divided equally among their 6 targets. A late
/// response can repeat a write. The targets of the other end get a few credits.
fn assert_targets_take_turns(line: &str) {
    let line = format!("{line} --qps 2 --post-list 1 dc_rdma_write_bw");
    let mut command = rperf();
    command.args(line.split_whitespace());
    let output = process::output(command.env("NIC_MODEL_TRACE", "1"));
    assert!(output.success(), "{output}");
    let counts = output.stderr.lines().filter_map(|line| {
        let count = line.strip_prefix("nic-model: DC target executed ")?;
        count.strip_suffix(" requests")?.parse().ok()
    });
    let served = counts.filter(|count: &u32| *count >= 50).count();
    assert_eq!(served, 6, "{output}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn bursts_keep_the_rate() {
    for device in devices() {
        let line = format!("-i {device} -t 1 -m 1K --rate-limit 400KB/s --burst 50 rc_bw");
        // A busy machine can be too slow for the rate.
        let keeps_rate = || {
            let record = &json(&line)[0];
            let summary = &record["outcome"]["measured"]["summary"];
            let bandwidth = summary["bandwidth"].as_f64().expect("a bandwidth");
            assert!(bandwidth < 6e5, "{record:#}");
            bandwidth > 2e5
        };
        assert!((0..5).any(|_| keeps_rate()), "{line}: too slow");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn buffers_in_huge_pages_carry_the_same_bytes() {
    let reserved = "/proc/sys/vm/nr_hugepages";
    for device in devices() {
        let line = format!("-i {device} --huge-pages 2M --verify -n 20 -m 4K rc_bw");
        let Ok(before) = std::fs::read_to_string(reserved) else {
            // The kernel has no huge pages.
            let text = fails(&line, 1);
            assert!(text.contains("reserve 2 MiB pages"), "{text}");
            continue;
        };
        std::fs::write(reserved, "24").expect("huge pages");
        let records = json(&line);
        std::fs::write(reserved, before.trim()).expect("huge pages");
        for record in records {
            let verified = sum_of_both_ends(&record, "/verified");
            assert_eq!(verified, 20 * 4096, "{record:#}");
        }
    }
}
