//! Healthy hosts of every driver, and mistakes that are planted in them.
//!
//! The hosts follow the rules of `host_builder.rs`. `tests/reports/planted.mistakes` has the lines
//! that plant each mistake, and the only finding that it may cause.

use std::fmt::Write as _;

use checks::finding::{Finding, Level};
use host::HostFacts;
use host::root::Root;

use super::host_builder::Host;
use super::reports::{Report, entries};
use crate::common::ribinfo;

/// The drivers of rdma-core's providers, with the word of the builder.
const DRIVERS: &[(&str, &str)] = &[
    ("roce", "mlx5_core"),
    ("roce", "mlx4_core"),
    ("roce", "bnxt_en"),
    ("roce", "ice"),
    ("roce", "qede"),
    ("roce", "be2net"),
    ("roce", "ionic"),
    ("roce", "hns3"),
    ("roce", "mana"),
    ("roce", "vmw_pvrdma"),
    ("roce", "none"),
    ("ib", "mlx5_core"),
    ("ib", "mlx4_core"),
    ("ib", "ib_mthca"),
    ("ib", "ib_qib"),
    ("ib", "hfi1"),
    ("iwarp", "cxgb4"),
    ("iwarp", "i40e"),
    ("iwarp", "erdma"),
    ("iwarp", "none"),
    ("efa", "efa"),
];

/// Lines that make other healthy hosts of a driver: the word, the driver or `""`, and the lines.
const VARIANTS: &[(&str, &str, &str)] = &[
    ("", "", "container pod\nno-node umad0\nno-node umad1"),
    ("", "", "/sys/fs/selinux/enforce = 1"),
    ("ib", "", "ipoib ib0 rdma0 2044 10.9.0.1/24 mode=datagram"),
    ("roce", "", "vlan net0.7 net0 9000 10.7.0.1/24"),
    ("roce", "mlx5_core", "virtual rdma0"),
    ("roce", "mlx5_core", "switchdev rdma0 net0 4"),
    ("roce", "mlx5_core", "switchdev rdma0 net0 0"),
    ("roce", "bnxt_en", "virtual rdma0"),
    ("roce", "ice", "virtual rdma0"),
    ("ib", "mlx5_core", "virtual rdma0"),
    (
        "roce",
        "mlx5_core",
        "roce rdma1 net1 10.0.1.1/24\nroce rdma2 net2 10.0.2.1/24\ncontainer pod\nno-node uverbs1\nno-node uverbs2\nno-netdev net1\nno-netdev net2\ndown net0\nstate rdma1 Disabled\n/sys/class/net/net0/flags = 0x1003",
    ),
    (
        "",
        "",
        "container podman\n/proc/self/uid_map = 0 1000 1\nno-node umad0\nno-node umad1",
    ),
];

/// Returns the lines of the healthy hosts of a driver: one device, and two.
pub(super) fn lines(word: &str, driver: &str, count: usize) -> Vec<String> {
    let device = |number: usize| {
        let ip = format!("10.0.{number}.1/24");
        let netdev = match word {
            "roce" | "iwarp" => format!(" net{number} {ip}"),
            _ => String::new(),
        };
        format!("{word} rdma{number}{netdev} driver={driver}")
    };
    (0..count).map(device).collect()
}

/// Returns the name and the lines of every healthy host.
fn hosts() -> Vec<(String, &'static str, &'static str, Vec<String>)> {
    let mut hosts = Vec::new();
    for (word, driver) in DRIVERS {
        for count in [1, 2, 8] {
            let name = format!("{word} {driver} {count}");
            hosts.push((name, *word, *driver, lines(word, driver, count)));
        }
        for (kind, only, added) in VARIANTS {
            let is_for = |filter: &str, value: &str| filter.is_empty() || filter == value;
            if is_for(kind, word) && is_for(only, driver) {
                let mut all = lines(word, driver, 1);
                all.extend(added.lines().map(str::to_owned));
                hosts.push((format!("{word} {driver}: {added}"), *word, *driver, all));
            }
        }
    }
    hosts
}

pub(super) fn findings(name: &str, lines: &[String]) -> Vec<Finding> {
    let host = Host::new(name, lines);
    let root = Root::at(host.path()).expect("a tree");
    let mut findings = checks::check(&HostFacts::read(&root, None), &[]);
    findings.retain(|finding| finding.level >= Level::Warning);
    findings
}

#[test]
fn healthy_hosts_of_every_driver_have_no_finding() {
    let hosts = hosts();
    assert!(hosts.len() >= 60, "{}", hosts.len());
    let mut alarms = String::new();
    for (name, _, _, lines) in &hosts {
        for finding in findings(name, lines) {
            writeln!(alarms, "{name}: {finding}").expect("a string");
        }
    }
    println!("{} healthy hosts", hosts.len());
    assert_eq!(alarms, "");
}

#[test]
fn the_whole_check_of_a_large_host_fits_on_a_screen() {
    let mut large = lines("roce", "mlx5_core", 8);
    large.push("switchdev rdma0 net0 23".to_owned());
    large.push("switchdev rdma1 net1 23".to_owned());
    let of_drivers = DRIVERS.iter();
    let of_drivers = of_drivers.map(|(word, driver)| lines(word, driver, 8));
    for lines in of_drivers.chain([large]) {
        let host = Host::new("a large host", &lines);
        let (text, status) = ribinfo(host.path(), &["check", "-q"]);
        assert_eq!((text.as_str(), status), ("", 0), "{lines:?}");
        let (text, _) = ribinfo(host.path(), &["check"]);
        assert!(text.lines().count() <= 30, "{lines:?}\n{text}");
    }
}

/// Returns the planted mistakes, each with the word of the builder and a driver for which the host
/// is made, and the lines of that host.
pub(super) fn planted(mistakes: &[Report]) -> impl Iterator<Item = (&Report, Vec<String>)> {
    let hosts = DRIVERS.iter().flat_map(move |(word, driver)| {
        let mistakes = mistakes.iter().filter(move |mistake| {
            let of = mistake.source.split_once(' ').expect("a word and a driver");
            ["*", word].contains(&of.0) && ["*", driver].contains(&of.1)
        });
        mistakes.map(move |mistake| (mistake, lines(word, driver, 1)))
    });
    hosts.map(|(mistake, lines)| (mistake, [&lines[..], &mistake.host].concat()))
}

#[test]
fn each_planted_mistake_is_the_only_finding() {
    let mistakes = entries("mistakes");
    let (mut count, mut wrong) = (0, String::new());
    for (mistake, lines) in planted(&mistakes) {
        count += 1;
        let found = findings(&mistake.source, &lines);
        let [expected] = mistake.expected.as_slice() else {
            panic!("{lines:?}: not one finding")
        };
        if found.is_empty() || !found.iter().all(|found| expected.is(found)) {
            writeln!(wrong, "{lines:?}").expect("a string");
            for finding in found {
                writeln!(wrong, "    {finding}").expect("a string");
            }
        }
    }
    println!("{count} mistakes planted, {} kinds", mistakes.len());
    assert_eq!(wrong, "");
    assert!(count >= 400, "{count}");
}
