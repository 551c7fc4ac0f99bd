//! Tests over several devices at the same time. This test has a program of its own because it
//! creates devices and disturbs them.

use serde_json::Value;
use test_support::lab::LinkDown;
use test_support::text::assert_contains;

use crate::common::second_device::SecondDevice;
use crate::common::{Server, connects_directly, devices, fails, json, spawn};

/// Returns lists of devices: each device of the lab with a second one, and all devices of the lab.
fn lists(seconds: &[SecondDevice], devices: &[String]) -> Vec<Vec<String>> {
    let pairs = devices.iter().zip(seconds);
    let pairs = pairs.map(|(device, second)| vec![device.clone(), second.name.clone()]);
    let all = (devices.len() > 1).then(|| devices.to_vec());
    pairs.chain(all).collect()
}

fn seconds(devices: &[String]) -> Vec<SecondDevice> {
    let devices = devices.iter().enumerate();
    devices
        .map(|(number, device)| SecondDevice::new(device, number))
        .collect()
}

fn number(value: &Value, path: &str) -> f64 {
    let found = value.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{path}: {value:#}"))
}

/// Returns the results of a test and those of its devices, whose names must be those of the list.
fn measured<'a>(record: &'a Value, list: &[String]) -> (&'a Value, &'a Vec<Value>) {
    let m = &record["outcome"]["measured"];
    let devices = m["devices"].as_array().expect("devices");
    let names: Vec<&Value> = devices.iter().map(|d| &d["device"]).collect();
    assert_eq!(names, list.iter().collect::<Vec<_>>());
    for (device, name) in devices.iter().zip(list) {
        assert_eq!(device["measured"]["local"]["device"], **name);
        assert_eq!(device["measured"]["remote"]["device"], **name);
    }
    (m, devices)
}

/// Returns the sum of a number over all devices.
fn sum(devices: &[Value], path: &str) -> f64 {
    devices.iter().map(|d| number(&d["measured"], path)).sum()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn devices_are_measured_at_the_same_time() {
    let devices = devices();
    let seconds = seconds(&devices);
    for list in lists(&seconds, &devices) {
        let records = json(&format!("-i {} -t 3 rc_bw rc_lat", list.join(",")));
        for record in &records {
            let (m, devices) = measured(record, &list);
            // Each session measures for three seconds after its start, which is late on a busy
            // machine.
            let starts = devices.iter().map(|d| number(d, "/start_offset"));
            let ends = devices
                .iter()
                .map(|d| number(d, "/start_offset") + number(&d["measured"], "/local_stats/nanos"));
            let common = ends.fold(f64::MAX, f64::min) - starts.fold(0.0, f64::max);
            assert!(common > 0.5e9, "{common} ns in common: {record:#}");
            for end in ["local_stats", "remote_stats"] {
                let path = format!("/{end}/received/msgs");
                assert!((number(m, &path) - sum(devices, &path)).abs() < 0.5);
            }
            if record["test"] == "rc_lat" {
                let latencies = devices
                    .iter()
                    .map(|d| number(d, "/measured/summary/latency"));
                let worst = latencies.fold(0.0, f64::max);
                assert!(
                    (number(m, "/summary/latency") - worst).abs() < 1e-6,
                    "{record:#}"
                );
                continue;
            }
            for path in ["/summary/bandwidth", "/summary/msg_rate"] {
                let sum = sum(devices, path);
                assert!(
                    sum > 0.0 && (number(m, path) / sum - 1.0).abs() < 1e-9,
                    "{record:#}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn each_device_moves_and_verifies_its_own_messages() {
    let devices = devices();
    let seconds = seconds(&devices);
    for list in lists(&seconds, &devices) {
        let server = Server::start();
        let names = list.join(",");
        for options in [
            "--interval 100ms",
            "--threads 2 --flip on",
            "--cpu-affinity 0 --min-bw 1kB/s --max-lost 0",
        ] {
            let line = format!(
                "{} -i {names} {options} --verify -n 300 -m 3001 rc_bw",
                server.target()
            );
            let record = &json(&line)[0];
            let (m, devices) = measured(record, &list);
            for device in devices {
                let m = &device["measured"];
                let verified = ["/local_stats/verified", "/remote_stats/verified"];
                let verified: f64 = verified.iter().map(|path| number(m, path)).sum();
                assert!(
                    (verified - 300.0 * 3001.0).abs() < 0.5,
                    "{line}: {record:#}"
                );
            }
            if options.contains("interval") {
                let intervals = m["intervals"].as_array().expect("intervals");
                let msgs: f64 = intervals.iter().map(|i| number(i, "/msgs")).sum();
                let expected = 300 * list.len();
                assert_eq!(format!("{msgs}"), expected.to_string(), "{record:#}");
            }
        }
        let text = fails(
            &format!(
                "{} -i {names} -t 300ms rc_lat --max-lat 1ns",
                server.target()
            ),
            3,
        );
        for name in &list {
            assert!(text.contains(&format!("{name}: mean latency of")), "{text}");
        }
        server.assert_responds();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failure_of_one_device_ends_the_test_and_names_it() {
    for (number, device) in devices().iter().enumerate() {
        let second = SecondDevice::new(device, number);
        let server = Server::with_options(&["-v"]);
        let text = fails(
            &format!("{} -i {device},nosuch0 -t 60 rc_bw", server.target()),
            1,
        );
        assert_contains(&text, &["nosuch0: no RDMA device named `nosuch0`"]);
        // Within one host, Soft-iWARP sends through the loopback interface, which stays up.
        if !connects_directly(device) {
            continue;
        }
        let line = format!(
            "{} -i {device},{} -to 6 -t 60 rc_bw",
            server.target(),
            second.name
        );
        let client = spawn(&line);
        server.wait_for_log("begins");
        server.wait_for_log("begins");
        let _down = LinkDown::new(&second.netdev);
        let output = client.wait();
        assert_eq!(output.code(), Some(1), "{output}");
        assert!(
            output.stderr.contains(&format!("rc_bw: {}: ", second.name)),
            "{output}"
        );
        server.assert_responds();
    }
}
