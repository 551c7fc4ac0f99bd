//! A capture has the same findings as its host, and nothing secret.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use host::device;
use host::root::Root;
use test_support::temp_dir::TempDir;

use super::tree::{hosts, names, unpack};
use crate::common::ribinfo;

/// Facts of the packet filter with a secret.
const FIREWALL: &str = r#"{
    "iptables": "*filter\n:INPUT ACCEPT [0:0]\n# SECRET\n-A INPUT -p tcp -m tcp --dport 22 -m comment --comment \"SECRET a\" -j ACCEPT\n-A INPUT -m string --string SECRET --algo bm -j DROP\n-A INPUT -j LOG --log-prefix \"SECRET \"\n-A INPUT -j ACCEPT -m comment --comment SECRET\n-A INPUT -j NFLOG --nflog-prefix SECRET\nSECRET\nCOMMIT\n# SECRET (nf_tables)\n",
    "nft": "table inet t {\n comment \"SECRET\"\n chain c {\n log prefix \"SECRET\" drop comment \"SECRET b\" # handle 2\n iif \"lo\" accept # handle 3\n}\n}\n",
    "nft_json": "{\"nftables\": [{\"rule\": {\"family\": \"inet\", \"table\": \"t\", \"chain\": \"c\", \"handle\": 2, \"comment\": \"SECRET\", \"expr\": [{\"log\": {\"prefix\": \"SECRET\"}}, {\"drop\": null}]}}]}"
}"#;

/// Returns the paths and texts of all files below a directory.
fn files(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let metadata = fs::symlink_metadata(entry.path()).expect("metadata");
        if metadata.is_dir() {
            assert_eq!(metadata.mode() & 0o777, 0o700, "{}", entry.path().display());
            found.extend(files(&entry.path()));
        } else if metadata.is_symlink() {
            let target = fs::read_link(entry.path()).expect("a target");
            found.push((
                entry.path().display().to_string(),
                target.display().to_string(),
            ));
        } else {
            assert_eq!(metadata.mode() & 0o777, 0o600, "{}", entry.path().display());
            let text = fs::read_to_string(entry.path()).expect("a text");
            found.push((entry.path().display().to_string(), text));
        }
    }
    found
}

#[test]
fn capture_has_no_secrets() {
    let tree = unpack("../secrets");
    tree.write("proc/self/environ", "TOKEN=SECRET\0");
    tree.write("proc/1/cmdline", "server\0--password=SECRET\0");
    let probe = fs::read_to_string(tree.path().join("probe.json")).expect("the probe");
    let mut probe: serde_json::Value = serde_json::from_str(&probe).expect("JSON");
    probe["firewall"] = serde_json::from_str(FIREWALL).expect("JSON");
    tree.write("probe.json", probe.to_string());
    // Links inside of the tree, to files that have a secret.
    symlink("../shadow", tree.path().join("etc/exports.d/b.exports")).expect("a link");
    let node_desc = tree.path().join("sys/class/infiniband/mlx5_0/node_desc");
    fs::remove_file(&node_desc).expect("a file");
    symlink("../../../../etc/shadow", node_desc).expect("a link");
    let target = TempDir::new();
    let copy = target.path().join("copy");
    let (list, status) = ribinfo(tree.path(), &["capture", copy.to_str().expect("a path")]);
    assert_eq!(status, 0, "{list}");
    let captured = files(&copy);
    for (path, text) in &captured {
        assert!(!text.contains("SECRET"), "{path}: {text}");
        let relative = path
            .strip_prefix(copy.to_str().expect("a path"))
            .expect("below");
        let relative = relative.trim_end_matches("/.keep");
        let is_listed = list
            .lines()
            .any(|line| line.trim_start_matches('/') == relative.trim_start_matches('/'));
        assert!(is_listed, "{relative}: {list}");
    }
    // What is checked is there.
    let has = |path: &str, words: &str| {
        let mut found = captured.iter().filter(|(file, _)| file.ends_with(path));
        assert!(
            found.any(|(_, text)| text.contains(words)),
            "{path}: {words}"
        );
    };
    has("ib.nmconnection", "transport-mode=datagram");
    has("opensm.conf", "guid 0x1");
    has("proc/net/tcp", ":4E2D");
    has("probe.json", "--dport 22");
    has("70-persistent-ipoib.rules", "NAME=\"ib0\"");
    let (host, _) = ribinfo(tree.path(), &["check"]);
    assert_eq!(ribinfo(&copy, &["check"]).0, host);
    assert!(!host.contains("SECRET"), "{host}");
}

#[test]
fn check_of_a_capture_equals_check_of_the_tree() {
    let target = TempDir::new();
    let copy = target.path().join("copy");
    let trees: Vec<TempDir> = names().iter().map(|name| unpack(name)).collect();
    let roots = trees
        .iter()
        .map(|tree| tree.path().to_owned())
        .chain(hosts());
    for root in roots {
        let (text, status) = ribinfo(&root, &["capture", copy.to_str().expect("a path")]);
        assert_eq!(status, 0, "{text}");
        for args in [
            &["check"][..],
            &["facts"],
            &["stat"],
            &["gids"],
            &["links"],
            &["devices", "-v"],
            &["counters", "--all"],
        ] {
            assert_eq!(
                ribinfo(&copy, args),
                ribinfo(&root, args),
                "{} {args:?}",
                root.display()
            );
        }
        fs::remove_dir_all(&copy).expect("a directory");
    }
}

#[test]
fn capture_follows_no_link_and_replaces_nothing() {
    let tree = unpack("h6-efa");
    let target = TempDir::new();
    let (real, link) = (target.path().join("real"), target.path().join("link"));
    fs::create_dir(&real).expect("a directory");
    symlink(&real, &link).expect("a link");
    target.write("full/file", "x");
    for name in ["link", "full"] {
        let directory = target.path().join(name);
        let (text, status) = ribinfo(
            tree.path(),
            &["capture", directory.to_str().expect("a path")],
        );
        assert!(
            text.contains("the directory is not empty") && status == 2,
            "{text}"
        );
    }
    assert_eq!(fs::read_dir(&real).expect("a directory").count(), 0);
    assert_eq!(
        fs::read_dir(target.path().join("full"))
            .expect("a directory")
            .count(),
        1
    );
    let (text, status) = ribinfo(tree.path(), &["capture", real.to_str().expect("a path")]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(fs::metadata(&real).expect("metadata").mode() & 0o777, 0o700);
}

#[test]
fn names_of_a_tree_do_not_leave_the_capture() {
    let tree = TempDir::new();
    tree.write(
        "etc/opensm/opensm.conf",
        "root_guid_file ../../victim/nologin\ncn_guid_file /etc/../victim/nologin\n\
         io_guid_file //etc/./guids\nguid_routing_order_file /probe.json\n\
         partition_config_file ../../../victim/nologin\n",
    );
    for file in ["victim/nologin", "etc/guids"] {
        tree.write(file, "0x0002c90300000001\n");
    }
    tree.write("probe.json", "{}");
    let outside = TempDir::new();
    outside.write("victim/file", "");
    let copy = outside.path().join("out/capture");
    fs::create_dir(outside.path().join("out")).expect("a directory");
    let (text, status) = ribinfo(tree.path(), &["capture", copy.to_str().expect("a path")]);
    assert_eq!(status, 0, "{text}");
    let captured = files(&copy);
    let paths = captured.iter().map(|(path, _)| Path::new(path));
    let mut names: Vec<_> = paths
        .map(|path| path.strip_prefix(&copy).expect("below"))
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["etc/guids", "etc/opensm/opensm.conf", "probe.json"].map(Path::new)
    );
    for directory in ["", "out", "victim"] {
        let entries = fs::read_dir(outside.path().join(directory)).expect("a directory");
        assert_eq!(entries.count(), if directory.is_empty() { 2 } else { 1 });
    }
}

#[test]
fn devices_without_tables_lack_only_the_tables() {
    let trees: Vec<_> = names().iter().map(|name| unpack(name)).collect();
    let paths = trees.iter().map(|tree| tree.path().to_owned());
    for path in paths.chain(hosts()) {
        let root = Root::at(&path).expect("a tree");
        let mut expected = device::all(&root);
        for port in expected.iter_mut().flat_map(|device| &mut device.ports) {
            port.gids.clear();
            port.pkeys.clear();
        }
        assert_eq!(
            device::all_without_tables(&root),
            expected,
            "{}",
            path.display()
        );
    }
}
