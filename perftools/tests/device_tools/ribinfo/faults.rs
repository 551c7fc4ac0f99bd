//! Injected faults: each is found, and its remedy works.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use test_support::process::{self, Process};

use super::host_root::HostRoot;
use super::program::{
    apply, assert_finding, check, devices, output, ribinfo_command, roce_devices, wait_for_check,
};
use super::restore::Restore;

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_module_is_found() {
    devices();
    // The devices exist, but not the nodes of ib_uverbs and rdma_ucm.
    let root = HostRoot::without_etc().without(&[
        "sys/class/infiniband_verbs",
        "sys/class/infiniband_mad",
        "sys/class/misc",
        "sys/module",
    ]);
    root.write("/proc/modules", "rdma_rxe 1 0 - Live 0x0\n");
    let (text, status) = root.check(&["modules"]);
    assert_finding(
        &text,
        "fault",
        "modules",
        &["ib_uverbs", "modprobe ib_uverbs"],
    );
    assert_finding(
        &text,
        "fault",
        "modules",
        &["rdma_ucm", "modprobe rdma_ucm"],
    );
    assert_eq!(status, 1);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_that_is_down_is_found() {
    for name in devices() {
        let restore = Restore::new(&name);
        process::run_line(&format!("ip link set {} down", restore.netdev));
        wait_for_check(&["port"], 1);
        let (text, status) = check(&["port"]);
        assert_eq!(status, 1);
        apply(&assert_finding(
            &text,
            "fault",
            &format!("port {name}/1"),
            &["DOWN", "=> ip link set "],
        ));
        wait_for_check(&["port"], 0);
        assert_eq!(check(&["port"]).1, 0, "{name} is not up");
        drop(restore);
        assert_eq!(
            check(&["port", "gid", "iwarp"]).1,
            0,
            "{name} was not restored"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn small_mtu_is_found() {
    for name in roce_devices() {
        let restore = Restore::new(&name);
        process::run_line(&format!("ip link set {} mtu 1500", restore.netdev));
        wait_for_check(&["mtu"], 1);
        let (text, status) = check(&["mtu"]);
        assert_finding(
            &text,
            "warning",
            &format!("mtu {name}/1"),
            &[
                "RDMA MTU is 1024 bytes (maximum 4096)",
                &format!("ip link set {} mtu 4200", restore.netdev),
            ],
        );
        assert_eq!(status, 1);
        // The remedy works.
        process::run_line(&format!("ip link set {} mtu 4200", restore.netdev));
        wait_for_check(&["mtu"], 0);
        assert_eq!(check(&["mtu"]).1, 0);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn small_limit_of_locked_memory_is_found() {
    let names = devices();
    // The lab runs on the files of its machine, which can be a container.
    let is_container = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|file| Path::new(file).exists());
    let raise = if is_container {
        "--ulimit memlock=-1"
    } else {
        "@rdma hard memlock unlimited"
    };
    let mut limited = Command::new("prlimit");
    limited.args([
        "--memlock=65536:65536",
        "setpriv",
        "--bounding-set=-ipc_lock",
        "--inh-caps=-ipc_lock",
    ]);
    let (text, status) = output(
        limited
            .arg(env!("CARGO_BIN_EXE_ribinfo"))
            .args(["check", "-v", "memlock"]),
    );
    for name in names {
        assert_finding(
            &text,
            "fault",
            &format!("memlock {name}"),
            &["registering 16 MiB failed", "hard limit 64 KiB", raise],
        );
    }
    assert_eq!(status, 1);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn small_limit_of_another_process_is_found() {
    devices();
    // Any user may open the device of rdma_cm.
    let script = "exec 3<>/dev/infiniband/rdma_cm; echo ready; exec sleep 600";
    let mut limited = Command::new("prlimit");
    limited
        .args([
            "--memlock=65536:65536",
            "setpriv",
            "--bounding-set=-ipc_lock",
        ])
        .args(["--inh-caps=-ipc_lock", "sh", "-c", script]);
    let program = Process::spawn(&mut limited).wait_for_output("ready");
    let named = format!("sleep ({}, 64 KiB)", program.id());
    let (text, _) = check(&["memlock"]);
    assert!(text.contains(&named), "{named}: {text}");
    assert!(text.contains("set LimitMEMLOCK=infinity"), "{text}");
    program.kill();
    let (text, _) = check(&["memlock"]);
    assert!(!text.contains(&named), "{text}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_gid_is_found() {
    for name in devices() {
        let restore = Restore::new(&name);
        for address in &restore.addresses {
            process::run_line(&format!("ip addr del {address} dev {}", restore.netdev));
        }
        let name_of_check = if roce_devices().contains(&name) {
            "gid"
        } else {
            "iwarp"
        };
        wait_for_check(&[name_of_check], 1);
        let (text, status) = check(&[name_of_check]);
        assert_eq!(status, 1);
        let remedy = assert_finding(
            &text,
            "fault",
            &format!("{name_of_check} {name}/1"),
            &["has no address", "=> ip addr add "],
        );
        apply(&remedy.replace("ADDRESS/BITS", &restore.addresses[0]));
        wait_for_check(&[name_of_check], 0);
        assert_eq!(check(&[name_of_check]).1, 0, "{name} has an address");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_gid_of_an_address_returns_without_a_loss() {
    for name in roce_devices() {
        let restore = Restore::new(&name);
        let ip = |action: &str, bits: u8| {
            let netdev = &restore.netdev;
            process::run_line(&format!("ip addr {action} 10.55.0.7/{bits} dev {netdev}"));
        };
        ip("add", 24);
        // The kernel removes the GID with the second entry of the address.
        ip("add", 32);
        ip("del", 32);
        wait_for_check(&["gid"], 1);
        let remedy = assert_finding(
            &check(&["gid"]).0,
            "fault",
            &format!("gid {name}/1"),
            &["has the address 10.55.0.7", "=> ip addr add 10.55.0.7/32"],
        );
        apply(remedy.split(';').next().unwrap_or_default());
        wait_for_check(&["gid"], 0);
        let (text, status) = check(&["gid", "addresses"]);
        ip("del", 32);
        ip("del", 24);
        assert_eq!(status, 0, "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_permissions_are_found() {
    for name in devices() {
        let uverbs = fs::read_dir("/sys/class/infiniband_verbs")
            .expect("verbs")
            .flatten()
            .find(|entry| {
                fs::read_to_string(entry.path().join("ibdev"))
                    .is_ok_and(|device| device.trim() == name)
            });
        let node = Path::new("/dev/infiniband").join(uverbs.expect("a node").file_name());
        let before = fs::metadata(&node).expect("a node").permissions();
        fs::set_permissions(&node, fs::Permissions::from_mode(0o600)).expect("permissions");
        // The program is started through its descriptor: the unprivileged user may not have access
        // to the directories of its path.
        let unprivileged = [
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "/proc/self/fd/0",
        ];
        let program = fs::File::open(env!("CARGO_BIN_EXE_ribinfo")).expect("the program");
        let (text, status) = output(
            Command::new("setpriv")
                .args(unprivileged)
                .args(["check", "-v", "nodes"])
                .stdin(program),
        );
        let remedy = assert_finding(
            &text,
            "fault",
            &format!("nodes {name}"),
            &["Permission denied", "chmod 0666 "],
        );
        // The lab can have the files of a container.
        let commands = remedy.strip_prefix("on the host: ").unwrap_or(&remedy);
        apply(commands.split("; permanently").next().expect("a command"));
        let mode = fs::metadata(&node).expect("a node").permissions().mode();
        fs::set_permissions(&node, before).expect("permissions");
        assert_eq!((status, mode & 0o777), (1, 0o666));
        // It is no fault that only root may open the nodes for management datagrams.
        assert_eq!(
            text.lines().filter(|line| !line.starts_with("ok ")).count(),
            2,
            "one fault, and the count: {text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wrong_roce_mode_is_found() {
    for name in roce_devices() {
        let (text, status) = HostRoot::with_roce_v1(&name).check(&["roce"]);
        let remedy =
            format!("echo 'RoCE v2' > /sys/kernel/config/rdma_cm/{name}/ports/1/default_roce_mode");
        assert_finding(
            &text,
            "fault",
            &format!("roce {name}/1"),
            &["the GID table has only RoCE v2", &remedy],
        );
        assert_eq!(status, 1);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalid_partitions_conf_is_found() {
    devices();
    let root = HostRoot::without_etc();
    for (text, problem, remedy) in [
        (
            "storage=0x8002, ipoib : ALL=full;\n",
            "no default partition 0x7fff",
            "Default=0x7fff, ipoib : ALL=full;",
        ),
        (
            "Default=0x7fff, ipoib : ALL=full\n a=0x2 : ALL;\n",
            "`;` of line 1 missing",
            "correct this line",
        ),
        (
            "Default=0x7fff, ipoib\n",
            "`:`; opensm stops reading here",
            "correct this line",
        ),
    ] {
        root.write("/etc/rdma/partitions.conf", text);
        let (found, status) = root.check(&["partitions"]);
        assert_finding(
            &found,
            "fault",
            "partitions /etc/rdma/partitions.conf",
            &[problem, remedy],
        );
        assert_eq!(status, 1);
    }
    root.write(
        "/etc/rdma/partitions.conf",
        "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n",
    );
    assert_eq!(root.check(&["partitions"]).1, 0);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_check_that_runs_alone_queries_the_facts_it_uses() {
    for name in roce_devices() {
        let restore = Restore::new(&name);
        process::run_line(&format!("ip link set {} mtu 1500", restore.netdev));
        wait_for_check(&["mtu"], 1);
        // Without this file, the kernel is asked for the MTU of the port.
        let root = HostRoot::without_etc();
        fs::remove_file(root.path().join("probe.json")).expect("a file");
        let port = format!("/sys/class/infiniband/{name}/ports/1");
        root.write(&format!("{port}/link_layer"), "InfiniBand\n")
            .write(&format!("{port}/rate"), "40 Gb/sec (4X QDR)\n")
            .write(
                "/etc/rdma/partitions.conf",
                "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n",
            );
        for checks in [&["partitions"][..], &["partitions", "--skip", "mtu"]] {
            let (text, status) = root.check(checks);
            let partitions = "partitions /etc/rdma/partitions.conf";
            assert_finding(&text, "fault", partitions, &["has 1024 bytes", "set mtu=3"]);
            assert_eq!(status, 1, "{text}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalid_opensm_configuration_is_found() {
    devices();
    let root = HostRoot::without_etc();
    root.write("/etc/rdma/opensm.conf", "guid 0x1\n")
        .write("/etc/rdma/opensm.conf.1", "guid 0x1\nsm_priority 99\n");
    root.write("/etc/rdma/opensm.conf.2", "guid 0x1\n");
    let (text, status) = root.check(&["opensm"]);
    assert_finding(
        &text,
        "ok",
        "opensm /etc/rdma/opensm.conf",
        &["not in use: opensm starts one instance per numbered file"],
    );
    assert_finding(
        &text,
        "fault",
        "opensm /etc/rdma/opensm.conf.1",
        &["sm_priority 99: expected 0 to 15", "=> sm_priority 15"],
    );
    assert_finding(
        &text,
        "fault",
        "opensm /etc/rdma/opensm.conf.2",
        &["guid 0x1: same as in /etc/rdma/opensm.conf.1"],
    );
    assert_eq!(status, 1);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn packet_filter_rule_that_blocks_roce_is_found() {
    roce_devices();
    // A script prints a rule as nft does, because the kernel of the lab has no packet filter. The
    // test `netns_firewall` uses the real one.
    let root = HostRoot::empty();
    let command = root.path().join("nft");
    let script = r#"#!/bin/sh
case $1 in
-j) cat <<'END'
{"nftables": [
{"chain": {"family": "inet", "table": "filter", "name": "input", "hook": "input", "prio": 0, "policy": "accept"}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 2, "expr": [
{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 4791}},
{"drop": null}]}}]}
END
;;
*) printf 'table inet filter { # handle 1\n\tchain input {\n\t\tudp dport 4791 drop # handle 2\n'
esac
"#;
    fs::write(&command, script).expect("a command");
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).expect("permissions");
    let path = format!(
        "{}:{}",
        root.path().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let (text, status) = output(
        ribinfo_command()
            .env("PATH", path)
            .args(["check", "-v", "firewall"]),
    );
    assert_finding(
        &text,
        "fault",
        "firewall udp/4791",
        &[
            "udp dport 4791 drop",
            "=> nft insert rule inet filter input udp dport 4791 accept",
        ],
    );
    assert_eq!(status, 1);
}
