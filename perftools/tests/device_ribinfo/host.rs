//! Checks on a correctly configured host.

use std::process::Command;

use serde_json::Value;

use super::here::{check, devices, finds, roce, said};
use super::place::Tree;

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn healthy_host_has_no_faults() {
    let names = devices();
    let (text, status) = check(&[]);
    // The lab loads the modules directly, so they would not be loaded after a reboot.
    let found: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("ok "))
        .collect();
    let allowed =
        |line: &&str| line.starts_with("warning  modules") && line.contains("after a reboot");
    assert!(found.iter().all(allowed) && status < 2, "{text}");
    for name in &names {
        for subject in ["nodes", "memlock", "port", "mtu"] {
            finds(&text, "ok", subject, &[name]);
        }
    }
    // The remaining warnings disappear when the files are written that the remedies name.
    let tree = Tree::whole();
    let (text, _) = tree.check(&[]);
    let found: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("ok "))
        .collect();
    assert!(found.iter().all(allowed), "{text}");
    for line in found {
        tree.mend(line.split_once(" => ").expect("a remedy").1);
    }
    let (text, status) = tree.check(&[]);
    assert!(
        text.lines().all(|line| line.starts_with("ok ")) && status == 0,
        "{text}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn output_agrees_with_the_classic_tools() {
    devices();
    let old = |line: &str| {
        let mut words = line.split_whitespace();
        let said = Command::new(words.next().unwrap()).args(words).output();
        let said = said.unwrap_or_else(|error| {
            panic!(
                "{line}: {error}; wanted are: apt install ibverbs-utils infiniband-diags iproute2"
            )
        });
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let pairs: [(&str, &[&str]); 4] = [
        ("ibv_devices", &["devices"]),
        ("ibv_devinfo", &["devinfo"]),
        ("ibv_devinfo -v", &["devinfo", "-v"]),
        ("rdma link", &["links"]),
    ];
    for (line, new) in pairs {
        let (theirs, (ours, status)) = (old(line), said(new));
        // A newer version of the tool may print additional lines.
        for wanted in ours.lines() {
            assert!(
                theirs.lines().any(|line| line == wanted),
                "{line} does not say {wanted:?}"
            );
        }
        assert_eq!(status, 0);
    }
    for name in roce() {
        assert_eq!(said(&["stat", &name]).0, old(&format!("ibstat {name}")));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn json_and_text_have_the_same_findings() {
    devices();
    let text = check(&[]).0;
    let report: Value = serde_json::from_str(&check(&["--json"]).0).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), text.lines().count());
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
