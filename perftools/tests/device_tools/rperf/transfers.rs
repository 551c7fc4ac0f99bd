//! Data transfers of all tests, and their results.

use measure::spec::plan::{Service, Verb};
use measure::spec::test::Test;
use serde_json::Value;
use test_support::lab::{ip_addresses, netdev};

use super::{assert_verified, connect_options, sum_of_both_ends};
use crate::common::{Server, connects_directly, devices, fails, json, records, run};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_command_runs_both_ends_and_verifies_all_bytes() {
    for device in devices() {
        let tests = json(&format!(
            "-i {device} --verify -n 30 -m 64K rc_bw rc_lat rc_bi_bw"
        ));
        assert_eq!(tests.len(), 3);
        for record in &tests {
            assert_verified(record, &device, 30, 65536);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn client_and_server_run_with_each_connection_method() {
    for device in devices() {
        let server = Server::start();
        for connect in connect_options(&device) {
            for size in [1, 200_001] {
                let n = if size > 100_000 { 3 } else { 50 };
                let line = format!(
                    "{} -i {device} {connect} --verify -n {n} -m {size} rc_bw rc_lat rc_bi_bw",
                    server.target()
                );
                for record in json(&line) {
                    assert_verified(&record, &device, n, size);
                    let cm = &record["outcome"]["measured"]["local"]["cm"];
                    assert_eq!(
                        *cm,
                        !connect.is_empty() || !connects_directly(&device),
                        "{record:#}"
                    );
                }
            }
        }
    }
}

/// Returns the names of the RDMA tests whose verb is atomic, so that messages have 8 bytes, or of
/// the other ones.
fn rdma_tests(atomic: bool) -> impl Iterator<Item = &'static str> {
    Test::names().filter(move |name| {
        let plan = Test::from_name(name).unwrap().plan();
        plan.is_some_and(|plan| plan.verb.is_atomic() == atomic)
    })
}

/// Returns a part of the message with which `rperf` refuses a test that the device does not
/// support, or `None` for a supported test. `connect` is the option that selects the connection
/// method.
fn missing_feature(device: &str, test: &str, connect: &str) -> Option<String> {
    let Ok(Some(plan)) = Test::from_name(test).map(Test::plan) else {
        return None; // `-m 4001`
    };
    if connect == "-cm1" && !plan.service.uses_cm() {
        return Some("it is for tests over RC and UD".to_owned());
    }
    let services: &[Service] = match device {
        _ if device.starts_with("mlx5_") => &[
            Service::Rc,
            Service::Uc,
            Service::Ud,
            Service::Xrc,
            Service::Dc,
        ],
        _ if device.starts_with("efa_") => &[Service::Ud, Service::Srd],
        _ if connects_directly(device) => &[Service::Rc, Service::Uc, Service::Ud],
        _ => &[Service::Rc],
    };
    // libefa of rdma-core 44 has no writes.
    let has_writes = plan.service != Service::Srd;
    let missing = match plan.verb {
        _ if !services.contains(&plan.service) => plan.service.to_string(),
        Verb::Write | Verb::WriteImm if !has_writes => "RDMA writes".to_owned(),
        verb if verb.is_atomic() && !connects_directly(device) => "atomics".to_owned(),
        _ => return None,
    };
    Some(format!("does not support {missing}"))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn all_tests_verify_their_bytes_or_name_a_missing_feature() {
    for device in devices() {
        let server = Server::start();
        for connect in connect_options(&device) {
            // The two words of `-m 4001` are among `supported`, so they keep their position between
            // the tests.
            let (supported, unsupported): (Vec<_>, Vec<_>) = rdma_tests(true)
                .chain(["-m", "4001"])
                .chain(rdma_tests(false))
                .partition(|test| missing_feature(&device, test, connect).is_none());
            let n = 14;
            let line = format!(
                "{} -i {device} {connect} --verify -n {n} {}",
                server.target(),
                supported.join(" ")
            );
            let records = json(&line);
            assert_eq!(records.len(), supported.len() - 2);
            for record in records {
                let m = &record["outcome"]["measured"];
                let sum = |path: [&str; 2]| -> u64 {
                    ["local_stats", "remote_stats"]
                        .iter()
                        .map(|side| m[side][path[0]][path[1]].as_u64().unwrap())
                        .sum()
                };
                let verified: u64 = ["local_stats", "remote_stats"]
                    .iter()
                    .map(|side| m[side]["verified"].as_u64().unwrap())
                    .sum();
                let lost: u64 = ["local_stats", "remote_stats"]
                    .iter()
                    .map(|s| m[s]["lost"].as_u64().unwrap())
                    .sum();
                let (sent, received) = (sum(["sent", "msgs"]), sum(["received", "msgs"]));
                let directions = if record["test"].as_str().unwrap().contains("_bi_") {
                    2
                } else {
                    1
                };
                assert!(
                    sent + received >= n * directions && sent + received + lost >= n,
                    "{record:#}"
                );
                assert!(verified > 0, "{record:#}");
            }
            // Tests that rperf never runs with rdma_cm make the command line invalid.
            let (refused, unsupported): (Vec<_>, Vec<_>) =
                unsupported.into_iter().partition(|test| {
                    let feature = missing_feature(&device, test, connect);
                    feature.is_some_and(|feature| feature.starts_with("it is for"))
                });
            for test in refused {
                let text = fails(&format!("-i {device} {connect} {test}"), 2);
                let feature = missing_feature(&device, test, connect).unwrap();
                assert!(text.contains(&feature), "{test}: {text}");
            }
            if unsupported.is_empty() {
                continue;
            }
            let line = format!(
                "{} -i {device} {connect} -n {n} --keep-going {}",
                server.target(),
                unsupported.join(" ")
            );
            let output = run(&line);
            let text = output.stderr.clone();
            assert_eq!(output.code(), Some(1), "{line}: {output}");
            // A line for each test, and their number if there are several.
            let summary = usize::from(unsupported.len() > 1);
            assert_eq!(text.lines().count(), unsupported.len() + summary, "{text}");
            for test in unsupported {
                let prefixes = [format!("rperf: {test}: "), format!("rperf: {test} ")];
                let line = text
                    .lines()
                    .find(|line| prefixes.iter().any(|s| line.starts_with(s)));
                assert!(
                    line.unwrap_or_default()
                        .contains(&missing_feature(&device, test, connect).unwrap()),
                    "{test}: {text}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn timed_test_prints_the_lines_of_qperf_and_the_path() {
    for device in devices() {
        let output = run(&format!("-i {device} -t 200ms rc_bw rc_lat"));
        let text = output.stdout.clone();
        assert!(output.success(), "{text}");
        for line in [
            "rc_bw:\n    bw ",
            "rc_lat:\n    latency ",
            "    p99.9 ",
            &format!("  =  {device}:1 "),
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn all_wait_modes_and_depths_deliver_all_messages() {
    for device in devices() {
        for wait in ["-cp0", "-cp1", ""] {
            for depth in [1, 50] {
                let tests = json(&format!(
                    "-i {device} {wait} --depth {depth} -n 60 -m 2K rc_bi_bw"
                ));
                for record in &tests {
                    let received =
                        &record["outcome"]["measured"]["remote_stats"]["received"]["msgs"];
                    assert_eq!(*received, 60, "{record:#}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn two_clients_run_at_the_same_time() {
    for device in devices() {
        let server = Server::start();
        let line = format!(
            "{} -i {device} --verify -n 200 -m 4K rc_bw rc_bi_bw",
            server.target()
        );
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for record in json(&line) {
                        assert_verified(&record, &device, 200, 4096);
                    }
                });
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn server_address_selects_the_device_and_gid() {
    let server = Server::start();
    for device in devices() {
        let netdev = netdev(&device);
        let addresses = ip_addresses(&netdev);
        assert!(!addresses.is_empty(), "{netdev} has no address");
        for address in addresses.iter().map(ToString::to_string) {
            for connect in connect_options(&device) {
                for record in json(&format!(
                    "-lp {} {address} {connect} --verify -n 5 -m 4K rc_bw",
                    server.port
                )) {
                    assert_verified(&record, &device, 5, 4096);
                    let local_address = record["outcome"]["measured"]["local"]["address"]
                        .as_str()
                        .unwrap();
                    assert!(local_address.ends_with(&address), "{address}: {record:#}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn access_received_reads_all_messages() {
    for device in devices() {
        for record in json(&format!(
            "-i {device} -ar1 -n 40 -m 3000 rc_bw rc_lat rc_rdma_read_bw"
        )) {
            assert!(
                sum_of_both_ends(&record, "/received/msgs") >= 40,
                "{record:#}"
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn all_multicast_receivers_get_each_datagram() {
    for device in devices() {
        let line = format!("-i {device} --multicast 3 --verify -n 50 -m 1000 ud_bw");
        if !connects_directly(&device) {
            let text = fails(&line, 1);
            assert!(
                text.contains("does not support UD") && text.lines().count() == 1,
                "{text}"
            );
            continue;
        }
        for record in json(&line) {
            let m = &record["outcome"]["measured"];
            let arrived = m["remote_stats"]["received"]["msgs"].as_u64().unwrap();
            let lost = m["remote_stats"]["lost"].as_u64().unwrap();
            assert_eq!(m["local_stats"]["sent"]["msgs"], 50, "{record:#}");
            assert_eq!(arrived + lost, 150, "{record:#}");
            assert!(
                arrived > 75 && m["remote_stats"]["verified"] == arrived * 1000,
                "{record:#}"
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn sweep_runs_one_test_per_value() {
    for device in devices() {
        let records = json(&format!(
            "-i {device} -n 5 --sizes 2..16 -oo depth:1:2:1 rc_bw"
        ));
        let sizes: Vec<u64> = records
            .iter()
            .map(|r| {
                r["outcome"]["measured"]["spec"]["msg_size"]
                    .as_u64()
                    .unwrap()
            })
            .collect();
        assert_eq!(sizes, [2, 4, 8, 16, 2, 4, 8, 16]);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn intervals_add_up_to_the_totals() {
    for device in devices() {
        let mut records = json(&format!(
            "-i {device} -n 300 -m 1K --interval 20ms rc_bw rc_bi_bw rc_lat"
        ));
        records.extend(json(&format!(
            "-i {device} -n 300 -m 1K --interval 20ms --threads 3 rc_bw rc_bi_bw"
        )));
        for record in records {
            let m = &record["outcome"]["measured"];
            let intervals = m["intervals"].as_array().unwrap();
            let number = |interval: &Value, field: &str| interval[field].as_u64().unwrap();
            let msgs: u64 = intervals
                .iter()
                .map(|interval| number(interval, "msgs"))
                .sum();
            let expected = if record["test"] == "rc_bi_bw" {
                600
            } else {
                300
            };
            assert_eq!(msgs, expected, "{record:#}");
            assert_eq!(number(&intervals[0], "from"), 0, "{record:#}");
            assert!(
                intervals
                    .windows(2)
                    .all(|pair| pair[0]["to"] == pair[1]["from"]),
                "{record:#}"
            );
            let mut busy = intervals
                .iter()
                .filter(|interval| number(interval, "msgs") > 0);
            let latency = record["test"] == "rc_lat";
            assert!(
                busy.all(|interval| interval["latency_max"].is_u64() == latency),
                "{record:#}"
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn tune_reports_the_limits_as_text_and_json() {
    let names = devices();
    let server = Server::start();
    let line = |device: &str| format!("tune -n 100 {} -i {device}", server.target());
    for device in &names {
        let output = run(&format!("{} --json", line(device)));
        let last = output.stdout.lines().last().expect("a line");
        let auto: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(auto["type"], "tune");
        assert!(
            auto["path"]
                .as_str()
                .is_some_and(|path| path.contains(device)),
            "{auto:#}"
        );
        let measurements = auto["measurements"].as_u64().expect("a number");
        assert!((3..=60).contains(&measurements), "{auto:#}");
        let refused = auto["refused"].as_array().expect("refused settings");
        assert_eq!(
            (records(&output.stdout).len() + refused.len()) as u64,
            measurements,
            "{auto:#}"
        );
        let findings = auto["findings"].as_array().expect("findings");
        let goals: Vec<_> = findings
            .iter()
            .map(|finding| finding["goal"].as_str().unwrap_or("?"))
            .collect();
        assert_eq!(goals, ["latency", "rate", "bandwidth"]);
        for finding in findings {
            assert!(
                finding["best"].as_f64() > Some(0.0) && finding["start"].as_f64() > Some(0.0),
                "{finding:#}"
            );
            assert!(
                finding["why"].as_str().is_some_and(|why| why.len() > 20),
                "{finding:#}"
            );
            assert_eq!(
                finding["bound"].is_null(),
                finding["goal"] == "latency",
                "{finding:#}"
            );
        }
    }
    // Without --json, the same findings are printed as text.
    let output = run(&line(&names[0]));
    let text = output.stdout.clone();
    assert!(output.success() && text.starts_with(&names[0]), "{text}");
    for goal in [
        "latency, messages of 1 byte",
        "message rate, messages of 64 bytes",
        "bandwidth, messages of 64 KiB",
    ] {
        let after = text
            .split(goal)
            .nth(1)
            .unwrap_or_else(|| panic!("{goal}: {text}"));
        let mut lines = after.lines().skip(1).map(str::trim);
        assert!(
            lines
                .next()
                .is_some_and(|limit| limit.starts_with("limit: ") && limit.len() > 20),
            "{text}"
        );
        let mut rest_of_finding = lines.take_while(|line| !line.is_empty());
        assert!(
            rest_of_finding.any(|line| line.starts_with("rperf ")),
            "{text}"
        );
    }
}
