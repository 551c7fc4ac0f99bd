//! Checks on a correctly configured host.

use serde_json::Value;
use test_support::process;

use super::host_root::HostRoot;
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
    // The lab loads the modules directly, so they would not be loaded after a reboot.
    let found: Vec<&str> = text.lines().filter(|line| is_problem(line)).collect();
    let allowed =
        |line: &&str| line.starts_with("warning  modules") && line.contains("after a reboot");
    assert!(found.iter().all(allowed) && status < 2, "{text}");
    for name in &names {
        for check in ["nodes", "memlock", "port", "mtu"] {
            assert_finding(&text, "ok", check, &[name]);
        }
    }
    // The remaining warnings disappear when the files are written that the remedies name.
    let root = HostRoot::without_etc();
    let (text, _) = root.check(&[]);
    let found: Vec<&str> = text.lines().filter(|line| is_problem(line)).collect();
    assert!(found.iter().all(allowed), "{text}");
    for line in found {
        root.apply(line.split_once(" => ").expect("a remedy").1);
    }
    let (text, status) = root.check(&[]);
    assert!(
        text.lines()
            .all(|line| line.starts_with("ok ") || line.starts_with("0 faults, 0 warnings"))
            && status == 0,
        "{text}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn output_agrees_with_the_classic_tools() {
    devices();
    let pairs: [(&str, &[&str]); 4] = [
        ("ibv_devices", &["devices"]),
        ("ibv_devinfo", &["devinfo"]),
        ("ibv_devinfo -v", &["devinfo", "-v"]),
        ("rdma link", &["links"]),
    ];
    for (line, args) in pairs {
        let (theirs, (ours, status)) = (process::run_line(line), ribinfo(args));
        // A newer version of the tool may print additional lines.
        for wanted in ours.lines() {
            assert!(
                theirs.lines().any(|line| line == wanted),
                "{line} does not print {wanted:?}"
            );
        }
        assert_eq!(status, 0);
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
