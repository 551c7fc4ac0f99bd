//! Trees that another user wrote. No command blocks, reads outside of the tree, or prints control
//! characters.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use test_support::temp_dir::TempDir;

use super::tree::unpack;
use crate::common::ribinfo;

/// The commands that read a tree.
const COMMANDS: &[&[&str]] = &[
    &["check"],
    &["check", "--fix-script"],
    &["check", "--status"],
    &["devices", "-v"],
    &["stat"],
    &["devices"],
    &["links"],
    &["gids"],
    &["sm"],
    &["facts"],
    &["counters", "--all"],
    &["export"],
    &["check", "--json"],
    &["stat", "--json"],
    &["gids", "--json"],
    &["links", "--json"],
    &["devices", "--json"],
    &["counters", "--json"],
];

/// Files that some command reads.
const FILES: &[&str] = &[
    "etc/fstab",
    "etc/rdma/opensm.conf",
    "etc/rdma/partitions.conf",
    "etc/security/limits.conf",
    "etc/NetworkManager/system-connections/a.nmconnection",
    "proc/mounts",
    "proc/modules",
    "proc/net/tcp",
    "sys/class/infiniband/mlx5_0/node_desc",
    "sys/class/infiniband/mlx5_0/ports/1/state",
    "sys/class/infiniband/mlx5_0/ports/1/gids/0",
    "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error",
    "sys/class/net/ib0/mtu",
];

/// Replaces a file of a tree.
fn replace(tree: &TempDir, file: &str, create: impl FnOnce(&Path)) {
    let path = tree.path().join(file);
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    let _ = fs::remove_file(&path);
    create(&path);
}

/// Runs all commands. Their status is 0 or 1, and no output has control characters or `SECRET`.
fn run_all(root: &Path) {
    for args in COMMANDS {
        let (text, status) = ribinfo(root, args);
        assert!(status < 2, "{args:?}: {text}");
        let is_unsafe = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
        assert_eq!(text.chars().find(is_unsafe), None, "{args:?}: {text}");
        assert!(!text.contains("SECRET"), "{args:?}: {text}");
        if args.contains(&"--json") && status == 0 {
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
    }
}

#[test]
fn special_files_and_links_are_not_read() {
    let outside = TempDir::new();
    let secret = outside.write("secret", "SECRET\n");
    let fifo = |path: &Path| mkfifo(path, Mode::S_IRWXU).expect("a FIFO");
    let zero = |path: &Path| symlink("/dev/zero", path).expect("a link");
    let leaving = |path: &Path| symlink(&secret, path).expect("a link");
    let looping = |path: &Path| symlink(path, path).expect("a link");
    let upwards = format!("{}{}", "../".repeat(40), secret.display());
    let upwards = |path: &Path| symlink(&upwards, path).expect("a link");
    let kinds: [&dyn Fn(&Path); 5] = [&fifo, &zero, &leaving, &looping, &upwards];
    for create in kinds {
        let tree = unpack("h1-mlx5-ib");
        for file in FILES {
            replace(&tree, file, create);
        }
        run_all(tree.path());
        replace(&tree, "probe.json", create);
        let (text, status) = ribinfo(tree.path(), &["check"]);
        assert!(
            text.contains("probe.json is not a regular file") && status == 1,
            "{text}"
        );
    }
}

#[test]
fn times_and_numbers_of_a_probe_have_any_size() {
    let tree = unpack("h2-mlx5-roce2");
    let (slot, netdev) = ("0000:12:00.0", "ens1f0np0");
    let text = fs::read_to_string(tree.path().join("probe.json")).expect("a file");
    let mut probe: Value = serde_json::from_str(&text).expect("JSON");
    for time in [1 << 20, 1 << 50, u64::MAX] {
        let down = json!({"netdev": netdev, "at": time - 60, "up": false});
        let up = json!({"netdev": netdev, "at": time, "up": true});
        let link = json!({"current_speed": "1e38 GT/s", "current_width": u32::MAX,
            "max_speed": "1e39 GT/s", "max_width": u32::MAX});
        // A function that is its own bridge.
        let function = json!({"slot": slot, "class": "0x0302", "vendor": "0x10de",
            "parent": slot, "link": link, "acs": u16::MAX});
        probe["pci"] = json!([function]);
        probe["link_log"] = json!({"boot": 0, "read": time, "changes": [down, up]});
        replace(&tree, "probe.json", |path| {
            fs::write(path, probe.to_string()).expect("a file");
        });
        run_all(tree.path());
        let (text, _) = ribinfo(tree.path(), &["check", "link"]);
        assert!(!text.contains("cannot read"), "{text}");
        assert!(text.contains("ens1f0np0 was down for 60 s"), "{text}");
    }
}

#[test]
fn directories_that_are_links_stay_in_the_tree() {
    let outside = TempDir::new();
    outside.write("mlx5_7/node_desc", "SECRET\n");
    outside.write("mlx5_7/node_type", "1: CA\n");
    let tree = unpack("h1-mlx5-ib");
    let devices = tree.path().join("sys/class/infiniband");
    symlink(outside.path().join("mlx5_7"), devices.join("mlx5_7")).expect("a link");
    // A device that contains itself.
    symlink("../..", devices.join("mlx5_0/ports/2")).expect("a link");
    symlink(".", devices.join("mlx5_8")).expect("a link");
    run_all(tree.path());
    let (text, _) = ribinfo(tree.path(), &["stat", "mlx5_0"]);
    assert!(text.contains("Port 1:"), "{text}");
}

#[test]
fn giant_files_and_directories_have_limits() {
    let tree = unpack("h1-mlx5-ib");
    for file in FILES {
        replace(&tree, file, |path| {
            let file = fs::File::create(path).expect("a file");
            // A sparse file of 1 TiB.
            file.set_len(1 << 40).expect("a length");
        });
    }
    let gids = tree.path().join("sys/class/infiniband/mlx5_0/ports/1/gids");
    for index in 0..20_000 {
        fs::write(gids.join(format!("{index}")), "").expect("a file");
    }
    let mut deep = tree.path().join("sys/class/net/ib0");
    for _ in 0..500 {
        deep.push("d");
    }
    let _ = fs::create_dir_all(deep);
    run_all(tree.path());
    replace(&tree, "probe.json", |path| {
        fs::File::create(path)
            .and_then(|file| file.set_len(1 << 40))
            .expect("a file");
    });
    let (text, status) = ribinfo(tree.path(), &["check"]);
    assert!(text.contains("cannot read") && status == 1, "{text}");
    replace(&tree, "probe.json", |path| {
        fs::write(path, "[".repeat(1 << 20)).expect("a file");
    });
    let (text, status) = ribinfo(tree.path(), &["check"]);
    assert!(text.contains("cannot read") && status == 1, "{text}");
}

#[test]
fn escape_sequences_are_not_printed() {
    const SEQUENCES: [&str; 4] = ["\x1b]0;T\x07\x1b[2J", "\u{9b}31m", "\u{202e}x", "a\rb\x08"];
    for sequence in SEQUENCES {
        let tree = unpack("h8-mlx4-dual");
        let device = "sys/class/infiniband/mlx4_1";
        for (file, value) in [
            ("node_desc", "h"),
            ("fw_ver", "1"),
            ("hca_type", "t"),
            ("board_id", "b"),
            ("node_type", "1: CA"),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/phys_state", "5: LinkUp"),
            ("ports/1/rate", "40 Gb/sec (4X QDR)"),
            ("ports/1/link_layer", "InfiniBand"),
            ("ports/2/gid_attrs/types/0", "RoCE v2"),
            ("ports/2/gid_attrs/ndevs/0", "v0"),
        ] {
            tree.write(&format!("{device}/{file}"), format!("{value}{sequence}\n"));
        }
        tree.write(&format!("{device}/ports/1/counters/x{sequence}"), "7\n");
        tree.write(
            &format!("sys/class/infiniband/e{sequence}v/node_type"),
            "1: CA\n",
        );
        tree.write(&format!("sys/class/net/n{sequence}v/type"), "32\n");
        tree.write("proc/sys/kernel/hostname", format!("h{sequence}\n"));
        tree.write(
            "etc/fstab",
            format!("s{sequence}:/x /m{sequence} nfs rdma 0 0\n"),
        );
        tree.write(
            "etc/rdma/opensm.conf",
            format!("guid 0x{sequence}\nsm_priority {sequence}9\n"),
        );
        tree.write("etc/rdma/modules/rdma.conf", format!("ib{sequence}\n"));
        let probe = fs::read_to_string(tree.path().join("probe.json")).expect("the probe");
        let mut probe: serde_json::Value = serde_json::from_str(&probe).expect("JSON");
        let text = format!("x{sequence}");
        probe["limited_processes"] = serde_json::json!([text]);
        probe["registrations"][0]["result"] = serde_json::json!({"Err": text});
        probe["addresses"][0]["netdev"] = text.clone().into();
        probe["verbs"]["devices"][0]["hca_id"] = text.clone().into();
        probe["nodes"][0]["open"] = serde_json::json!({"Err": text});
        probe["firewall"]["iptables"] =
            format!("*filter\n:INPUT DROP [0:0]\n-A INPUT -s {text} -j DROP\n").into();
        tree.write("probe.json", probe.to_string());
        run_all(tree.path());
    }
}

#[test]
fn names_never_become_part_of_a_script() {
    let tree = unpack("h8-mlx4-dual");
    let name = "$(touch x);`y`&z";
    tree.write(&format!("sys/class/infiniband/{name}/node_type"), "1: CA\n");
    tree.write(
        &format!("sys/class/infiniband/{name}/ports/1/link_layer"),
        "Ethernet\n",
    );
    tree.write(&format!("sys/class/net/{name}/type"), "32\n");
    tree.write(
        "sys/class/infiniband/mlx4_1/ports/2/gid_attrs/ndevs/0",
        name,
    );
    tree.write("sys/class/infiniband/mlx4_1/ports/2/state", "1: DOWN\n");
    let (script, _) = ribinfo(tree.path(), &["check", "--fix-script"]);
    assert!(!script.contains("touch"), "{script}");
}
