//! `ribinfo check` on captured hosts whose configuration was changed, and `ribinfo` on a host
//! without RDMA.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use test_support::temp_dir::TempDir;

use crate::common::ribinfo;

/// A copy of a captured host.
struct Host {
    directory: TempDir,
}

impl Host {
    fn new(name: &str) -> Self {
        let host = Self {
            directory: TempDir::new(),
        };
        let original = format!("{}/tests/fixtures/hosts/{name}", env!("CARGO_MANIFEST_DIR"));
        let (text, status) = ribinfo(
            Path::new(&original),
            &["capture", host.root().to_str().unwrap()],
        );
        assert_eq!(status, 0, "{text}");
        host
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("copy")
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Sets a value of the facts that are not in files.
    fn set_probe(&self, key: &str, value: Value) {
        let text = fs::read_to_string(self.root().join("probe.json")).unwrap();
        let mut probe: Value = serde_json::from_str(&text).unwrap();
        probe[key] = value;
        self.write("probe.json", &probe.to_string());
    }

    /// Returns the output and the exit code of `ribinfo check`.
    fn check(&self, args: &[&str]) -> (String, i32) {
        ribinfo(&self.root(), &[&["check"], args].concat())
    }

    #[track_caller]
    fn expect(&self, args: &[&str], expected: &[&str], code: i32) {
        let (text, status) = self.check(args);
        for expected in expected {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(status, code, "{text}");
    }
}

#[test]
fn mtu_of_eipoib_must_fit_into_ipoib() {
    let host = Host::new("ipoib");
    let (text, _) = host.check(&["eipoib"]);
    assert!(!text.contains("larger packets are lost"), "{text}");
    host.write("sys/class/net/mlx4_ib0/mtu", "1400\n");
    host.expect(
        &["eipoib"],
        &[
            "fault    eipoib eth4: MTU 1500 bytes, but mlx4_ib0 below it has only 1400 bytes",
            "=> ip link set eth4 mtu 1400",
        ],
        1,
    );
}

#[test]
fn limits_of_running_programs_are_reported() {
    let host = Host::new("mlx4");
    let (text, _) = host.check(&["memlock"]);
    assert!(!text.contains("running programs"), "{text}");
    host.set_probe("limited_processes", json!(["rperf (4711, 64 KiB)"]));
    host.expect(
        &["memlock"],
        &[
            "running programs with an RDMA device open have a small limit: rperf (4711, 64 KiB)",
            "=> set LimitMEMLOCK=infinity in the unit (systemctl edit UNIT)",
        ],
        0,
    );
}

/// Returns the result of `check roce` on a host with these versions in its GID table, against a
/// peer with other ones. Both use the first of them.
fn check_versions(ours: &[&str], theirs: &[&str]) -> (String, i32) {
    let host = Host::new("mlx4");
    let port = "sys/class/infiniband/mlx4_0/ports/2";
    let types = host.root().join(port).join("gid_attrs/types");
    let entries = fs::read_dir(&types).unwrap().count();
    for index in 0..entries {
        let version = ours[index.min(ours.len() - 1)];
        host.write(
            &format!("{port}/gid_attrs/types/{index}"),
            &format!("{version}\n"),
        );
    }
    let mode = "sys/kernel/config/rdma_cm/mlx4_0/ports/2/default_roce_mode";
    host.write(mode, &format!("{}\n", ours[0]));
    let (facts, _) = ribinfo(&host.root(), &["facts"]);
    let mut facts: Value = serde_json::from_str(&facts).unwrap();
    let peer = &mut facts["ports"][1];
    peer["roce_mode"] = theirs[0].into();
    peer["kinds"] = json!(theirs);
    facts["host"] = "node2".into();
    let file = host.directory.write("peer.json", facts.to_string());
    host.check(&["roce", "--peer-facts", file.to_str().unwrap()])
}

#[test]
fn remedy_for_roce_versions_exists_on_both_hosts() {
    const V1: &str = "IB/RoCE v1";
    const V2: &str = "RoCE v2";
    let set = |mode: &str| {
        let directory = "/sys/kernel/config/rdma_cm/mlx4_0";
        format!("mkdir -p {directory} && echo '{mode}' > {directory}/ports/2/default_roce_mode")
    };
    for (ours, theirs, remedy) in [
        // Both have v2: the one that uses v1 changes.
        (
            &[V2, V1][..],
            &[V1, V2][..],
            format!("=> on node2: {}", set(V2)),
        ),
        (&[V1, V2], &[V2, V1], format!("=> {}", set(V2))),
        // One lacks v2: the other one changes to v1.
        (&[V2, V1], &[V1], format!("=> {}", set(V1))),
        (&[V1], &[V2, V1], format!("=> on node2: {}", set(V1))),
        // They have none in common.
        (&[V2], &[V1], "=> update the driver or firmware".to_owned()),
    ] {
        let (text, status) = check_versions(ours, theirs);
        let line = text.lines().find(|line| line.contains("they must match"));
        let line = line.unwrap_or_else(|| panic!("{ours:?} {theirs:?}: {text}"));
        assert!(line.contains(&remedy), "{ours:?} {theirs:?}: {line}");
        assert_eq!(status, 1);
    }
}

#[test]
fn unused_ports_are_no_fault() {
    let host = Host::new("mlx4");
    let port = "sys/class/infiniband/mlx4_0/ports/2";
    host.write(&format!("{port}/state"), "1: DOWN\n");
    host.write(&format!("{port}/phys_state"), "3: Disabled\n");
    // An address shows that the port should be connected.
    let (text, status) = host.check(&["port"]);
    assert!(
        text.contains("fault    port mlx4_0/2: DOWN") && status == 1,
        "{text}"
    );
    host.set_probe(
        "addresses",
        json!([{"netdev": "mlx4_ib0", "ip": "198.51.100.1"}]),
    );
    host.expect(&["port"], &["ok       port mlx4_0/2: not in use (DOWN"], 0);
    host.expect(
        &["port", "--expect", "ports=2"],
        &["fault    expect: 1 port is ACTIVE, 2 are expected"],
        1,
    );
}

#[test]
fn split_links_are_no_fault() {
    let host = Host::new("ipoib");
    let rate = "sys/class/infiniband/mlx4_0/ports/1/rate";
    for (text, is_split) in [
        ("100 Gb/sec (2X HDR)", true),
        ("200 Gb/sec (2X NDR)", true),
        ("20 Gb/sec (2X QDR)", false),
    ] {
        host.write(rate, &format!("{text}\n"));
        let (checked, _) = host.check(&["link"]);
        let line = checked
            .lines()
            .find(|line| line.contains(&format!("link mlx4_0/1: {text}")));
        let line = line.unwrap_or_else(|| panic!("{text}: {checked}"));
        let is_narrow = line.contains("lanes are up") || line.contains("settings enable only");
        assert_eq!(is_narrow, !is_split, "{line}");
    }
}

#[test]
fn standby_subnet_managers_are_listed() {
    let host = Host::new("mlx4");
    let probe = fs::read_to_string(host.root().join("probe.json")).unwrap();
    let probe: Value = serde_json::from_str(&probe).unwrap();
    let mut sms = probe["sms"].clone();
    let mut standby = sms[0]["sm"]["Ok"].clone();
    standby["lid"] = 9.into();
    standby["priority"] = 3.into();
    standby["state"] = 2.into();
    sms[0]["standby"] = json!({"Ok": [standby]});
    host.set_probe("sms", sms);
    host.expect(&["sm"], &["MASTER; standby: LID 9 with priority 3"], 0);
}

#[test]
fn failed_gsi_queue_pair_is_a_fault() {
    let host = Host::new("rxe");
    let gsi_qp = |state: u8| json!([{"device": "rxe0", "port": 1, "state": state}]);
    host.set_probe("gsi_qps", gsi_qp(3));
    host.expect(&["port"], &["ACTIVE, Ethernet on v0"], 0);
    host.set_probe("gsi_qps", gsi_qp(6));
    let remedy = "rdma link delete rxe0 && rdma link add rxe0 type rxe netdev v0";
    host.expect(&["port"], &["queue pair 1 (GSI)", remedy], 1);
}

#[test]
fn a_host_without_rdma_says_so() {
    let directory = TempDir::new();
    // The error of libibverbs without ib_uverbs.
    let error = "ibv_get_device_list: Function not implemented (ENOSYS)";
    let probe = format!(r#"{{"verbs": {{"devices": [], "error": "{error}"}}}}"#);
    directory.write("probe.json", &probe);
    for args in [
        "devices",
        "devices --json",
        "stat",
        "stat mlx5_0",
        "gids",
        "links",
        "links --json",
        "counters",
        "counters --watch",
        "sm",
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let (text, status) = ribinfo(directory.path(), &args);
        assert!(text.contains("no RDMA device on this host;"), "{text}");
        assert!(!text.contains("ENOSYS") && status == 1, "{text}");
    }
    let (text, status) = ribinfo(directory.path(), &["check", "port", "mtu"]);
    assert!(
        text.starts_with("fault    modules: no RDMA device on this host => ") && status == 1,
        "{text}"
    );
    // With a device of the kernel, the error is the reason.
    fs::create_dir_all(directory.path().join("sys/class/infiniband/rxe0")).unwrap();
    let (text, status) = ribinfo(directory.path(), &["devices"]);
    assert!(text.contains("ENOSYS") && status == 1, "{text}");
    // libibverbs omits devices whose nodes a container lacks.
    directory.write("probe.json", r#"{"verbs": {"devices": []}}"#);
    let (text, status) = ribinfo(directory.path(), &["devices"]);
    assert!(text.contains("`ribinfo check nodes`"), "{text}");
    assert_eq!(status, 1, "{text}");
}

#[test]
fn words_of_other_tools_and_endless_files_are_refused() {
    for (args, expected, code) in [
        (&["show_gids"][..], "run `ribinfo gids`", 2),
        (&["stat", "-l"], "`ribinfo devices` lists the devices", 2),
        (&["foo"], "'foo'; help: see `ribinfo --help`", 2),
        (
            &["facts", "-l"],
            "ribinfo: unexpected argument '-l' found; help: see `ribinfo --help`\n",
            2,
        ),
        (
            &["check", "--peer-facts", "/dev/zero"],
            "longer than 64 MiB",
            1,
        ),
        (&["check", "--expect", "/dev/zero"], "longer than 64 MiB", 2),
    ] {
        let (text, status) = ribinfo(Path::new("/"), args);
        assert!(
            text.contains(expected) && status == code,
            "{args:?}: {text}"
        );
    }
}
