//! Checks on a correctly configured host.

use serde_json::Value;
use test_support::process;

use super::program::{assert_finding, check, devices, ribinfo, roce_devices};

/// Returns `true` for a finding that is not ok. The last line is the number of findings.
fn is_problem(line: &str) -> bool {
    ["fault ", "warning ", "unknown "]
        .iter()
        .any(|level| line.starts_with(level))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn healthy_host_has_no_faults() {
    let names = devices();
    let (text, status) = check(&[]);
    assert!(!text.lines().any(is_problem) && status == 0, "{text}");
    for name in &names {
        for check in ["nodes", "memlock", "port", "mtu"] {
            assert_finding(&text, "ok", check, &[name]);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn output_agrees_with_the_classic_tools() {
    devices();
    let (theirs, (ours, status)) = (process::run_line("rdma link"), ribinfo(&["links"]));
    for wanted in ours.lines() {
        assert!(
            theirs.lines().any(|line| line == wanted),
            "rdma link does not print {wanted:?}"
        );
    }
    assert_eq!(status, 0);
    // Each attribute that both print has the same value. ibv_devinfo prints some numbers as words.
    let pairs = |text: &str| -> Vec<(String, String)> {
        let pair = |line: &str| {
            line.split_once(':')
                .map(|(a, b)| (a.trim().to_owned(), b.trim().to_owned()))
        };
        text.lines().filter_map(pair).collect()
    };
    for name in devices() {
        let theirs = pairs(&process::run_line(&format!("ibv_devinfo -v -d {name}")));
        let (ours, status) = ribinfo(&["devices", "-v", "-d", &name]);
        let ours = pairs(&ours);
        assert_eq!(status, 0);
        let is_same = |ours: &str, theirs: &str| {
            let number = |text: &str| match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => text.parse::<u64>().ok(),
            };
            ours == theirs
                || number(ours).is_some_and(|n| Some(n) == number(theirs))
                || theirs.ends_with(&format!("({ours})"))
        };
        let mut compared = 0;
        for (attribute, value) in theirs
            .iter()
            .filter(|(a, _)| a.starts_with("max_") || a.contains("guid"))
        {
            let Some((_, own)) = ours.iter().find(|(own, _)| own == attribute) else {
                continue;
            };
            assert!(
                is_same(own, value),
                "{name} {attribute}: {own}, ibv_devinfo: {value}"
            );
            compared += 1;
        }
        assert!(compared > 20, "{name}: {compared}");
    }
    for name in roce_devices() {
        assert_eq!(
            ribinfo(&["stat", &name]).0,
            process::run_line(&format!("ibstat {name}"))
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn json_and_text_have_the_same_findings() {
    devices();
    let text = check(&[]).0;
    let report: Value = serde_json::from_str(&check(&["--json"]).0).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    assert_eq!(findings.len() + 1, text.lines().count());
    for (line, finding) in text.lines().zip(findings) {
        assert!(
            line.starts_with(finding["level"].as_str().expect("a level")),
            "{line}: {finding}"
        );
        assert!(
            line.contains(finding["text"].as_str().expect("a text")),
            "{line}: {finding}"
        );
    }
}
