//! Injected faults: each is found, and its remedy works.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::here::{check, devices, finds, mend, output, ribinfo, roce, run, wait};
use super::place::{Restore, Tree, with_roce_v1};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_module_is_found() {
    devices();
    // The devices exist, but not the nodes of ib_uverbs and rdma_ucm.
    let tree = Tree::new(&["/sys/class/infiniband", "/sys/class/net"]);
    tree.put("/proc/modules", "rdma_rxe 1 0 - Live 0x0\n");
    let (text, status) = tree.check(&["modules"]);
    finds(
        &text,
        "fault",
        "modules",
        &["ib_uverbs", "=> modprobe ib_uverbs"],
    );
    finds(
        &text,
        "fault",
        "modules",
        &["rdma_ucm", "=> modprobe rdma_ucm"],
    );
    assert_eq!(status, 2);
    // Both modules are loaded, but only one of them will be after a reboot.
    tree.put("/proc/modules", "ib_uverbs 1 0\nrdma_ucm 1 0\n")
        .put("/etc/rdma/modules/rdma.conf", "ib_uverbs\n# rdma_ucm\n");
    let (text, status) = tree.check(&["modules"]);
    assert_eq!(status, 1, "{text}");
    tree.mend(&finds(
        &text,
        "warning",
        "modules rdma_ucm",
        &["=> sed -i", "rdma-load-modules@rdma.service"],
    ));
    assert_eq!(tree.check(&["modules"]).1, 0);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_that_is_down_is_found() {
    for name in devices() {
        let restore = Restore::of(&name);
        run(&format!("ip link set {} down", restore.netdev));
        wait(|| check(&["port"]).1 == 2);
        let (text, status) = check(&["port"]);
        assert_eq!(status, 2);
        mend(&finds(
            &text,
            "fault",
            &format!("port {name}/1"),
            &["DOWN", "=> ip link set "],
        ));
        wait(|| check(&["port"]).1 == 0);
        assert_eq!(check(&["port"]).1, 0, "{name} is not up");
        drop(restore);
        assert_eq!(
            check(&["port", "gid", "iwarp"]).1,
            0,
            "{name} is not as it was"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn small_mtu_is_found() {
    for name in roce() {
        let restore = Restore::of(&name);
        run(&format!("ip link set {} mtu 1500", restore.netdev));
        wait(|| check(&["mtu"]).1 == 1);
        let (text, status) = check(&["mtu"]);
        finds(
            &text,
            "warning",
            &format!("mtu {name}/1"),
            &[
                "RDMA MTU 1024 of 4096",
                &format!("ip link set {} mtu 4200", restore.netdev),
            ],
        );
        assert_eq!(status, 1);
        // The remedy works.
        run(&format!("ip link set {} mtu 4200", restore.netdev));
        wait(|| check(&["mtu"]).1 == 0);
        assert_eq!(check(&["mtu"]).1, 0);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn small_limit_of_locked_memory_is_found() {
    let names = devices();
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
            .args(["check", "memlock"]),
    );
    finds(
        &text,
        "warning",
        "memlock",
        &[
            "soft limit 64 KiB, hard limit 64 KiB",
            "/etc/security/limits.conf",
        ],
    );
    for name in names {
        finds(
            &text,
            "fault",
            &format!("memlock {name}"),
            &[
                "16 MiB cannot be registered",
                "@rdma hard memlock unlimited",
            ],
        );
    }
    assert_eq!(status, 2);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_gid_is_found() {
    for name in devices() {
        let restore = Restore::of(&name);
        for address in &restore.addresses {
            run(&format!("ip addr del {address} dev {}", restore.netdev));
        }
        let subject = if roce().contains(&name) {
            "gid"
        } else {
            "iwarp"
        };
        wait(|| check(&[subject]).1 == 2);
        let (text, status) = check(&[subject]);
        assert_eq!(status, 2);
        let remedy = finds(
            &text,
            "fault",
            &format!("{subject} {name}/1"),
            &["has no address", "=> ip addr add "],
        );
        mend(&remedy.replace("ADDRESS/BITS", &restore.addresses[0]));
        wait(|| check(&[subject]).1 == 0);
        assert_eq!(check(&[subject]).1, 0, "{name} has an address");
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
        fs::set_permissions(&node, fs::Permissions::from_mode(0o600)).expect("rights");
        // The program is started through its descriptor: the unprivileged user may not have access
        // to the directories of its path.
        let nobody = [
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "/proc/self/fd/0",
        ];
        let program = fs::File::open(env!("CARGO_BIN_EXE_ribinfo")).expect("the program");
        let (text, status) = output(
            Command::new("setpriv")
                .args(nobody)
                .args(["check", "nodes"])
                .stdin(program),
        );
        let remedy = finds(
            &text,
            "fault",
            &format!("nodes {name}"),
            &["Permission denied", "=> chmod 0666 "],
        );
        mend(remedy.split("; and for good").next().expect("a command"));
        let mended = fs::metadata(&node).expect("a node").permissions().mode();
        fs::set_permissions(&node, before).expect("rights");
        assert_eq!((status, mended & 0o777), (2, 0o666));
        // It is no fault that only root may open the nodes for management datagrams.
        assert_eq!(
            text.lines().filter(|line| !line.starts_with("ok ")).count(),
            1,
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wrong_roce_mode_is_found() {
    for name in roce() {
        let (text, status) = with_roce_v1(&name).check(&["roce"]);
        let remedy =
            format!("echo 'RoCE v2' > /sys/kernel/config/rdma_cm/{name}/ports/1/default_roce_mode");
        finds(
            &text,
            "fault",
            &format!("roce {name}/1"),
            &["the GID table has only RoCE v2", &remedy],
        );
        assert_eq!(status, 2);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalid_partitions_conf_is_found() {
    devices();
    let tree = Tree::whole();
    for (text, says, mends) in [
        (
            "storage=0x8002, ipoib : ALL=full;\n",
            "no default partition 0x7fff",
            "Default=0x7fff, ipoib : ALL=full;",
        ),
        (
            "Default=0x7fff, ipoib : ALL=full\n a=0x2 : ALL;\n",
            "`;` of line 1 missing",
            "correct the line",
        ),
        (
            "Default=0x7fff, ipoib\n",
            "there is no `:`: opensm reads no further",
            "correct the line",
        ),
    ] {
        tree.put("/etc/rdma/partitions.conf", text);
        let (found, status) = tree.check(&["partitions"]);
        finds(
            &found,
            "fault",
            "partitions /etc/rdma/partitions.conf",
            &[says, mends],
        );
        assert_eq!(status, 2);
    }
    tree.put(
        "/etc/rdma/partitions.conf",
        "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n",
    );
    assert_eq!(tree.check(&["partitions"]).1, 0);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalid_opensm_configuration_is_found() {
    devices();
    let tree = Tree::whole();
    tree.put("/etc/rdma/opensm.conf", "guid 0x1\n")
        .put("/etc/rdma/opensm.conf.1", "guid 0x1\nsm_priority 99\n");
    tree.put("/etc/rdma/opensm.conf.2", "guid 0x1\n")
        .put("/etc/rdma/opensm.conf.rpmnew", "");
    let (text, status) = tree.check(&["opensm"]);
    finds(
        &text,
        "warning",
        "opensm /etc/rdma/opensm.conf",
        &["it is ignored", "rm /etc/rdma/opensm.conf"],
    );
    finds(
        &text,
        "warning",
        "opensm /etc/rdma/opensm.conf.rpmnew",
        &["=> diff"],
    );
    finds(
        &text,
        "fault",
        "opensm /etc/rdma/opensm.conf.1",
        &["sm_priority 99", "=> sm_priority 15"],
    );
    finds(
        &text,
        "fault",
        "opensm /etc/rdma/opensm.conf.2",
        &["guid 0x1: /etc/rdma/opensm.conf.1 has the same"],
    );
    assert_eq!(status, 2);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn packet_filter_rule_that_blocks_roce_is_found() {
    roce();
    // A script prints the rules as nft would, because the kernel may have no packet filter.
    let tree = Tree::new(&[]);
    let rules = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t\tudp dport 4791 drop\n\t}\n}\n";
    let command = tree.0.join("nft");
    fs::write(&command, format!("#!/bin/sh\ncat <<'END'\n{rules}END\n")).expect("a command");
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).expect("rights");
    let path = format!(
        "{}:{}",
        tree.0.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let (text, status) = output(ribinfo().env("PATH", path).args(["check", "firewall"]));
    finds(
        &text,
        "fault",
        "firewall udp/4791",
        &[
            "udp dport 4791 drop",
            "=> nft insert rule inet filter input udp dport 4791 accept",
        ],
    );
    assert_eq!(status, 2);
}
