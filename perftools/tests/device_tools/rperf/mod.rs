//! `rperf` on real drivers.

mod counters;
mod failures;
mod foreign;
mod forged;
mod options;
mod payload;
mod transfers;

use std::fs;

use serde_json::Value;

use crate::common::connects_directly;

/// Returns the options for the connection methods that a device supports. The models of adapters
/// have no datagrams of rdma_cm.
fn connect_options(device: &str) -> Vec<&'static str> {
    let is_model = device.starts_with("mlx5_") || device.starts_with("efa_");
    if connects_directly(device) && !is_model {
        vec!["", "-cm1"]
    } else {
        vec![""]
    }
}

/// Checks the record of a test with a message count and `--verify`.
fn assert_verified(record: &Value, device: &str, messages: u64, size: u64) {
    let m = &record["outcome"]["measured"];
    assert_eq!(m["local"]["device"], device, "{record:#}");
    let test = record["test"].as_str().unwrap();
    let number = |side: &str, path: [&str; 2]| m[side][path[0]][path[1]].as_u64().unwrap();
    let here = if test == "rc_bw" { 0 } else { messages };
    assert_eq!(
        number("remote_stats", ["received", "msgs"]),
        messages,
        "{record:#}"
    );
    assert_eq!(
        number("local_stats", ["received", "msgs"]),
        here,
        "{record:#}"
    );
    assert_eq!(
        number("local_stats", ["sent", "msgs"]),
        messages,
        "{record:#}"
    );
    assert_eq!(
        m["remote_stats"]["verified"].as_u64().unwrap(),
        messages * size,
        "{record:#}"
    );
    assert_eq!(
        m["local_stats"]["verified"].as_u64().unwrap(),
        here * size,
        "{record:#}"
    );
    if test == "rc_lat" {
        assert_eq!(m["latency"]["samples"], messages, "{record:#}");
    }
}

/// Returns the sum of a counter over both ends.
fn sum_of_both_ends(record: &Value, path: &str) -> u64 {
    let m = &record["outcome"]["measured"];
    ["local_stats", "remote_stats"]
        .iter()
        .map(|side| m[*side].pointer(path).unwrap().as_u64().unwrap())
        .sum()
}

/// Changes a kernel parameter. Dropping this restores it.
struct KernelParameter {
    file: &'static str,
    before: String,
}

impl KernelParameter {
    fn set(file: &'static str, value: &str) -> Self {
        let before = fs::read_to_string(file).expect(file);
        fs::write(file, value).expect(file);
        Self { file, before }
    }
}

impl Drop for KernelParameter {
    fn drop(&mut self) {
        let _ = fs::write(self.file, &self.before);
    }
}
