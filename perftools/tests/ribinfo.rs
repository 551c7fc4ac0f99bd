//! `ribinfo` on captured trees: mlx4 with both link layers, a host with IPoIB in connected mode and
//! much that is wrong, rxe and siw. What it prints is held by snapshots.

use assert_cmd::Command;

const TREES: [&str; 4] = ["mlx4", "ipoib", "rxe", "siw"];

/// What `ribinfo --root tests/fixtures/hosts/TREE ARGS` prints, and its exit status.
fn ribinfo(tree: &str, args: &[&str]) -> (String, i32) {
    let root = format!("{}/tests/fixtures/hosts/{tree}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::cargo_bin("ribinfo")
        .unwrap()
        .args(args)
        .args(["--root", &root])
        .output()
        .unwrap();
    let text =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text, output.status.code().unwrap())
}

fn shown(name: &str, args: &[&str]) {
    for tree in TREES {
        let (text, status) = ribinfo(tree, args);
        insta::assert_snapshot!(
            format!("{name}_{tree}"),
            format!("{text}exit status {status}")
        );
    }
}

#[test]
fn devices() {
    shown("devices", &["devices"]);
}

#[test]
fn devinfo() {
    shown("devinfo", &["devinfo"]);
    shown("devinfo_verbose", &["devinfo", "-v"]);
}

#[test]
fn stat() {
    shown("stat", &["stat"]);
}

#[test]
fn gids_and_links() {
    shown("gids", &["gids"]);
    shown("links", &["links"]);
}

#[test]
fn sm() {
    shown("sm", &["sm"]);
}

#[test]
fn check() {
    shown("check", &["check"]);
    let (json, status) = ribinfo("mlx4", &["check", "--json"]);
    assert_eq!(status, 0);
    insta::assert_snapshot!("check_json_mlx4", json);
}

#[test]
fn every_command_prints_json_that_reads_back() {
    for tree in TREES {
        for args in [
            &["devices"][..],
            &["devinfo"],
            &["devinfo", "-v"],
            &["stat"],
            &["gids"],
            &["links"],
            &["sm"],
            &["check"],
            &["check", "--list"],
            &["facts"],
        ] {
            let (text, _) = ribinfo(tree, &[args, &["--json"]].concat());
            let value: serde_json::Value = serde_json::from_str(&text)
                .unwrap_or_else(|e| panic!("{tree} {args:?}: {e}: {text}"));
            assert!(value.is_array() || value.is_object());
        }
    }
    insta::assert_snapshot!("stat_json_mlx4", ribinfo("mlx4", &["stat", "--json"]).0);
    insta::assert_snapshot!("sm_json_ipoib", ribinfo("ipoib", &["sm", "--json"]).0);
    insta::assert_snapshot!("facts_mlx4", ribinfo("mlx4", &["facts"]).0);
}

#[test]
fn one_device_and_one_port_are_picked_as_the_old_tools_do() {
    let (text, status) = ribinfo("mlx4", &["stat", "mlx4_0", "2"]);
    assert!(
        text.starts_with("CA: 'mlx4_0'\nPort 2:\nState: Active\n") && status == 0,
        "{text}"
    );
    let (text, status) = ribinfo("mlx4", &["devinfo", "-d", "mlx4_0", "-i", "2"]);
    assert!(
        text.contains("\t\tport:\t2\n") && !text.contains("\t\tport:\t1\n") && status == 0,
        "{text}"
    );
    for (args, says) in [
        (&["stat", "mlx4_7"][..], "this host has: mlx4_0"),
        (&["stat", "mlx4_0", "3"], "has no port 3"),
        (&["devinfo", "-d", "mlx4_7"], "this host has: mlx4_0"),
        (&["devinfo", "-i", "3"], "has no port 3"),
        (&["check", "memlok"], "did you mean memlock?"),
        (&["chek"], "check"),
    ] {
        let (text, status) = ribinfo("mlx4", args);
        assert!(text.contains(says) && status == 3, "{args:?}: {text}");
    }
}

#[test]
fn a_subject_can_be_asked_alone_and_quietly() {
    let (text, status) = ribinfo("ipoib", &["check", "port", "--quiet"]);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.starts_with("fault    port mlx4_1/1: INIT: no subnet manager") && status == 2,
        "{text}"
    );
}

#[test]
fn a_peer_with_another_roce_mode_is_a_fault_that_names_both_ways() {
    let facts = ribinfo("rxe", &["facts"]).0;
    let directory = tempfile();
    let same = directory.join("same.json");
    std::fs::write(&same, &facts).unwrap();
    let (text, status) = ribinfo(
        "rxe",
        &[
            "check",
            "roce",
            "peer",
            "--peer-facts",
            same.to_str().unwrap(),
        ],
    );
    assert_eq!(status, 0, "{text}");
    let other = directory.join("other.json");
    std::fs::write(
        &other,
        facts.replace(
            "\"roce_mode\": \"RoCE v2\"",
            "\"roce_mode\": \"IB/RoCE v1\"",
        ),
    )
    .unwrap();
    let (text, status) = ribinfo(
        "rxe",
        &["check", "roce", "--peer-facts", other.to_str().unwrap()],
    );
    assert!(
        text.contains("they must match")
            && text.contains("on rxe-host: mkdir -p /sys/kernel/config/rdma_cm/rxe0"),
        "{text}"
    );
    assert_eq!(status, 2);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_peer_that_does_not_answer_is_a_fault_that_says_how() {
    let (text, status) = ribinfo(
        "rxe",
        &["check", "peer", "--peer", "127.0.0.1", "--peer-port", "1"],
    );
    assert!(
        text.contains("cannot connect to port 1") && text.contains("ribinfo serve") && status == 2,
        "{text}"
    );
}

#[test]
fn a_captured_tree_says_what_the_host_said() {
    let directory = tempfile();
    let copy = directory.join("copy");
    for tree in TREES {
        let (text, status) = ribinfo(tree, &["capture", copy.to_str().unwrap()]);
        assert_eq!(status, 0, "{text}");
        for args in [&["check"][..], &["stat"], &["gids"], &["facts"]] {
            let again = Command::cargo_bin("ribinfo")
                .unwrap()
                .args(args)
                .arg("--root")
                .arg(&copy)
                .output()
                .unwrap();
            assert_eq!(
                String::from_utf8(again.stdout).unwrap(),
                ribinfo(tree, args).0,
                "{tree} {args:?}"
            );
        }
        std::fs::remove_dir_all(&copy).unwrap();
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_help_names_every_command() {
    let output = Command::cargo_bin("ribinfo")
        .unwrap()
        .arg("--help")
        .output()
        .unwrap();
    insta::assert_snapshot!("help", String::from_utf8(output.stdout).unwrap());
    let output = Command::cargo_bin("ribinfo")
        .unwrap()
        .args(["check", "--help"])
        .output()
        .unwrap();
    insta::assert_snapshot!("help_check", String::from_utf8(output.stdout).unwrap());
    insta::assert_snapshot!("subjects", ribinfo("rxe", &["check", "--list"]).0);
}

/// A directory of its own.
fn tempfile() -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("ribinfo-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}
