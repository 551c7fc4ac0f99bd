//! Remedies of the planted mistakes, applied to the hosts.

use std::fmt::Write as _;

use super::mistakes::{DRIVERS, MISTAKES, findings, lines};

/// Remedies, and lines that make the host as it is after them.
const APPLIED: &[(&str, &str)] = &[
    (
        "ip link set net0 down && ip link set net0 up",
        "gid rdma0 0 fe80::ff:fe00:77 \"RoCE v2\" net0",
    ),
    ("chmod 0666", "open-node uverbs0"),
    (
        "remount,dev",
        "/proc/mounts = devtmpfs /dev devtmpfs rw 0 0\nopen-node uverbs0",
    ),
    ("DeviceAllow", "open-node uverbs0"),
    ("restorecon", "open-node uverbs0"),
    ("udevadm trigger", "add-node uverbs0"),
    ("modprobe ib_uverbs", "load ib_uverbs"),
    ("modprobe rdma_ucm", "load rdma_ucm"),
    ("modprobe ib_umad", "load ib_umad"),
    ("modprobe xprtrdma", "load rpcrdma"),
    ("modprobe -r rds_tcp", "unload rds_tcp"),
    ("hard memlock unlimited", "memlock 16000000"),
    ("--ulimit", "memlock 16000000"),
    (
        "replace 64 by unlimited",
        "/etc/security/limits.conf = * hard memlock unlimited",
    ),
    (
        "ip link set net0 up",
        "/sys/class/net/net0/flags = 0x1003\nstate rdma0 ACTIVE",
    ),
    (
        "reseat the cable and",
        "/sys/class/net/net0/carrier = 1\nstate rdma0 ACTIVE",
    ),
    ("ibportstate", "state rdma0 ACTIVE"),
    ("ip link set net0.7 mtu 9000", "mtu net0.7 9000"),
    (
        "ip link set net0 mtu 4200",
        "mtu net0 4200\nactive-mtu rdma0 5",
    ),
    ("ip link set ib0 up", "/sys/class/net/ib0/flags = 0x1003"),
    ("ip link set ib0 mtu 65520", "mtu ib0 65520"),
    (
        "infiniband.transport-mode datagram",
        "/etc/NetworkManager/system-connections/a.nmconnection = [connection]\\ntype=infiniband\\ninterface-name=ib0\\n[infiniband]\\ntransport-mode=datagram",
    ),
    (
        "arp_ignore=1",
        "/proc/sys/net/ipv4/conf/all/arp_ignore = 1\n/proc/sys/net/ipv4/conf/all/arp_announce = 2",
    ),
    (
        "cpupower",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor = performance",
    ),
    (
        "default_roce_mode",
        "/sys/kernel/config/rdma_cm/rdma0/ports/1/default_roce_mode = RoCE v2",
    ),
    (
        "rdma,port=20049 in /etc/fstab",
        "/etc/fstab = h:/a /a nfs rdma,port=20049 0 0",
    ),
    ("mkdir /srv/data", "/srv/data/file = x"),
    (
        "defmember=full",
        "/sys/class/infiniband/rdma0/ports/1/pkeys/0 = 0xffff",
    ),
];

#[test]
fn applied_remedies_leave_no_finding() {
    let (mut applied, mut wrong) = (0, String::new());
    for (word, driver) in DRIVERS {
        let is_for = |filter: &str, value: &str| filter.is_empty() || filter == value;
        let mistakes = MISTAKES.iter();
        for mistake in mistakes.filter(|m| is_for(m.word, word) && is_for(m.driver, driver)) {
            let mut all = lines(word, driver, 1);
            all.extend(mistake.lines.lines().map(str::to_owned));
            let remedies = findings(mistake.lines, &all).into_iter();
            let remedies: Vec<String> = remedies.filter_map(|found| found.remedy).collect();
            let by = |remedy: &str| APPLIED.iter().find(|(words, _)| remedy.contains(words));
            let [remedy] = remedies.as_slice() else {
                continue;
            };
            let Some((_, lines)) = by(remedy) else {
                continue;
            };
            applied += 1;
            all.extend(lines.lines().map(str::to_owned));
            for left in findings(remedy, &all) {
                writeln!(wrong, "{word} {driver}: {remedy}\n    {left}").expect("a string");
            }
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
