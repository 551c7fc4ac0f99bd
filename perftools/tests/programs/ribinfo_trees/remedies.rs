//! Remedies of the planted mistakes, applied to the hosts.

use std::fmt::Write as _;

use super::mistakes::{findings, lines, planted};
use super::reports::entries;

#[test]
fn applied_remedies_leave_no_finding() {
    let (mistakes, remedies) = (entries("mistakes"), entries("remedies"));
    let (mut applied, mut wrong) = (0, String::new());
    for (mistake, mut lines) in planted(&mistakes) {
        let found = findings(&mistake.source, &lines).into_iter();
        let found: Vec<String> = found.filter_map(|found| found.remedy).collect();
        let [remedy] = found.as_slice() else {
            continue;
        };
        let known = remedies.iter().find(|known| remedy.contains(&known.source));
        let Some(known) = known else {
            continue;
        };
        applied += 1;
        lines.extend_from_slice(&known.host);
        for left in findings(remedy, &lines) {
            writeln!(wrong, "{}: {remedy}\n    {left}", mistake.source).expect("a string");
        }
    }
    println!("{applied} remedies applied");
    assert_eq!(wrong, "");
    assert!(applied >= 300, "{applied}");
}

#[test]
fn remedies_that_interrupt_something_have_a_condition() {
    const INTERRUPTING: [&str; 7] = [
        "addr del",
        " down && ",
        "link delete",
        "umount",
        "modprobe -r",
        " reset",
        "openibd restart",
    ];
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/checks/src");
    let mut found = 0;
    for file in std::fs::read_dir(sources).expect("the checks").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("a source");
        for line in text.lines().filter(|line| !line.trim().starts_with("//")) {
            if INTERRUPTING.iter().any(|word| line.contains(word)) {
                found += 1;
                let has_condition = line.contains("when nothing uses") || line.contains("{when}");
                assert!(has_condition, "{}: {line}", file.path().display());
            }
        }
    }
    assert!(found >= 8, "{found}");
}

#[test]
fn settings_of_ipv4_do_not_separate_addresses_of_ipv6() {
    let mut all = lines("roce", "mlx5_core", 1);
    let same = "address net0 fd97::1/64\ngid rdma0 4 fd97::1 \"RoCE v2\" net0\nnetdev net9 1500 fd97::2/64";
    all.extend(same.lines().map(str::to_owned));
    let found = |all: &[String]| findings("one subnet", all).len();
    assert_eq!(found(&all), 1);
    for name in ["arp_ignore", "arp_announce"] {
        all.push(format!("/proc/sys/net/ipv4/conf/all/{name} = 2"));
    }
    assert_eq!(found(&all), 1);
    // One of both may keep the route of the main table.
    all.push("source-rule fd97::2/128".to_owned());
    assert_eq!(found(&all), 0);
}
