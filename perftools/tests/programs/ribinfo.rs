//! `ribinfo` on the captured hosts in `fixtures/hosts`. Snapshots hold the expected output.

use std::path::Path;
use std::process::Command;

use test_support::process;
use test_support::temp_dir::TempDir;
use test_support::text::assert_contains;

use crate::common::ribinfo as ribinfo_at;

const HOSTS: [&str; 4] = ["mlx4", "ipoib", "rxe", "siw"];

/// Returns the output and the exit code of `ribinfo` on a host.
fn ribinfo(host: &str, line: &str) -> (String, i32) {
    let root = format!("{}/tests/fixtures/hosts/{host}", env!("CARGO_MANIFEST_DIR"));
    let args: Vec<&str> = line.split(' ').collect();
    ribinfo_at(Path::new(&root), &args)
}

/// Asserts the exit code of `ribinfo` on a host, and parts of its output.
#[track_caller]
fn prints(host: &str, line: &str, code: i32, parts: &[&str]) {
    let (text, status) = ribinfo(host, line);
    assert_contains(&text, parts);
    assert_eq!(status, code, "{line}: {text}");
}

/// Returns the output of `ribinfo` without `--root`.
fn help(args: &[&str]) -> String {
    process::run(Command::new(env!("CARGO_BIN_EXE_ribinfo")).args(args))
}

fn shown(name: &str, line: &str) {
    for host in HOSTS {
        let (text, status) = ribinfo(host, line);
        insta::assert_snapshot!(
            format!("{name}_{host}"),
            format!("{text}exit status {status}")
        );
    }
}

#[test]
fn devices() {
    shown("devices", "devices");
    shown("devices_verbose", "devices -v");
}

#[test]
fn stat() {
    shown("stat", "stat");
}

#[test]
fn gids_and_links() {
    shown("gids", "gids");
    shown("links", "links");
}

#[test]
fn sm() {
    shown("sm", "sm");
}

#[test]
fn check() {
    shown("check", "check");
    let (json, status) = ribinfo("mlx4", "check --json");
    assert_eq!(status, 0);
    insta::assert_snapshot!("check_json_mlx4", json);
}

#[test]
fn counters() {
    shown("counters", "counters");
    let (text, _) = ribinfo("mlx4", "counters mlx4_0/2 --all");
    assert!(text.contains("mlx4_0/2  counters/symbol_error"), "{text}");
    assert!(!text.contains("mlx4_0/1"), "{text}");
    prints(
        "mlx4",
        "counters mlx4_7",
        1,
        &["available: mlx4_0/1, mlx4_0/2"],
    );
    prints(
        "mlx4",
        "counters --watch --json",
        2,
        &["cannot be used with"],
    );
}

#[test]
fn watched_counters_are_printed_when_they_increase() {
    let directory = TempDir::new();
    let copy = directory.path().join("copy");
    let (text, status) = ribinfo("mlx4", &format!("capture {}", copy.display()));
    assert_eq!(status, 0, "{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
    command.args(["counters", "--watch", "--interval", "100ms", "--root"]);
    let watch = process::Process::spawn(command.arg(&copy));
    let file = copy.join("sys/class/infiniband/mlx4_0/ports/1/counters/symbol_error");
    // The first value is read at an unknown time.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 3.. {
                std::fs::write(&file, value.to_string()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(50));
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        });
        let line = watch.next_stdout_line("symbol_error");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(
            line.starts_with("mlx4_0/1 ") && line.ends_with("/s"),
            "{line}"
        );
    });
    watch.interrupt();
    assert_eq!(watch.wait().code(), Some(0));
}

#[test]
fn export() {
    shown("export", "export --no-check");
    let (text, status) = ribinfo("mlx4", "export --check port,link --expect ports=3,rate=40");
    let findings = |name: &str| -> Vec<&str> {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.collect()
    };
    assert_eq!(status, 0);
    assert_eq!(
        findings("ribinfo_check_findings{level=\"fault\"}"),
        ["ribinfo_check_findings{level=\"fault\"} 1.0"],
        "{text}"
    );
    assert_eq!(
        findings("ribinfo_check_level{check=\"expect\",object=\"\"}"),
        ["ribinfo_check_level{check=\"expect\",object=\"\"} 3.0"]
    );
    assert_eq!(
        findings("rdma_port_expected_rate"),
        [1, 2].map(|port| format!(
            "rdma_port_expected_rate_bytes_per_second{{device=\"mlx4_0\",port=\"{port}\"}} 5000000000.0"
        ))
    );
    for (line, expected) in [
        ("export --check prot", "did you mean port?"),
        ("export --listen node1", "expected PORT"),
        ("export --allow 10.0.0.0/8", "--listen"),
        ("export --no-check --skip port", "--no-check"),
    ] {
        prints("mlx4", line, 2, &[expected]);
    }
}

#[test]
fn all_commands_print_valid_json() {
    for host in HOSTS {
        for line in [
            "devices",
            "devices -v",
            "stat",
            "gids",
            "links",
            "sm",
            "check",
            "check --list",
            "facts",
            "counters",
        ] {
            let (text, _) = ribinfo(host, &format!("{line} --json"));
            let value: serde_json::Value = serde_json::from_str(&text)
                .unwrap_or_else(|e| panic!("{host} {line}: {e}: {text}"));
            assert!(value.is_array() || value.is_object());
        }
    }
    insta::assert_snapshot!("stat_json_mlx4", ribinfo("mlx4", "stat --json").0);
    insta::assert_snapshot!("sm_json_ipoib", ribinfo("ipoib", "sm --json").0);
    insta::assert_snapshot!("facts_mlx4", ribinfo("mlx4", "facts").0);
}

#[test]
fn device_and_port_are_selected_as_in_the_classic_tools() {
    prints(
        "mlx4",
        "stat mlx4_0 2",
        0,
        &["CA: 'mlx4_0'\nPort 2:\nState: Active\n"],
    );
    // The options are those of ibv_devinfo.
    let (text, status) = ribinfo("mlx4", "devinfo -d mlx4_0 -i 2");
    assert!(
        text.contains("  port 2  ") && !text.contains("  port 1  ") && status == 0,
        "{text}"
    );
    // ibv_devinfo ignores a name without -d, and ibstat has no -d. Both are accepted here.
    for same in ["stat -d mlx4_0", "devinfo mlx4_0 -v"] {
        prints("mlx4", same, 0, &["mlx4_0"]);
    }
    for (line, expected, code) in [
        ("stat mlx4_7", "available: mlx4_0", 1),
        ("stat -d mlx4_7", "available: mlx4_0", 1),
        ("stat mlx4_0 3", "has no port 3", 1),
        ("devinfo -d mlx4_7", "available: mlx4_0", 1),
        ("devinfo mlx4_7", "available: mlx4_0", 1),
        ("devinfo -i 3", "has no port 3", 1),
        ("check memlok", "did you mean memlock?", 2),
        ("check --skip memlok", "did you mean memlock?", 2),
        ("check --expect ports=x", "expected ports=N", 2),
        ("sm 0", "expected 1 to 49151", 2),
        ("chek", "did you mean check?", 2),
    ] {
        prints("mlx4", line, code, &[expected]);
    }
}

#[test]
fn quiet_check_of_one_check_prints_only_its_fault() {
    let (text, status) = ribinfo("ipoib", "check port --quiet");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.starts_with("fault    port mlx4_1/1: INIT: no subnet manager") && status == 1,
        "{text}"
    );
}

#[test]
fn peer_with_another_roce_mode_is_a_fault() {
    let facts = ribinfo("rxe", "facts").0;
    let directory = TempDir::new();
    let same = directory.path().join("same.json");
    std::fs::write(&same, &facts).unwrap();
    let facts_of = |file: &Path| format!("--peer-facts {}", file.display());
    prints(
        "rxe",
        &format!("check roce peer {}", facts_of(&same)),
        0,
        &[],
    );
    let other = directory.path().join("other.json");
    let text = facts.replace(r#"roce_mode": "RoCE v2""#, r#"roce_mode": "IB/RoCE v1""#);
    std::fs::write(&other, text).unwrap();
    let line = format!("check roce {}", facts_of(&other));
    let remedy = "on rxe-host: mkdir -p /sys/kernel/config/rdma_cm/rxe0";
    prints("rxe", &line, 1, &["they must match", remedy]);
}

#[test]
fn unreachable_peer_is_a_fault_with_a_remedy() {
    let (text, status) = ribinfo("rxe", "check peer --peer 127.0.0.1 --port 1");
    assert!(
        text.contains("cannot connect to port 1")
            && text.contains("run rperf on the peer")
            && status == 1,
        "{text}"
    );
}

#[test]
fn captured_copy_gives_the_same_output_as_the_host() {
    let directory = TempDir::new();
    let copy = directory.path().join("copy");
    for host in HOSTS {
        let (text, status) = ribinfo(host, &format!("capture {}", copy.display()));
        assert_eq!(status, 0, "{text}");
        for line in ["check", "stat", "gids", "facts"] {
            let original = ribinfo(host, line);
            assert_eq!(ribinfo_at(&copy, &[line]), original, "{host} {line}");
        }
        std::fs::remove_dir_all(&copy).unwrap();
    }
}

#[test]
fn help_lists_all_commands_and_checks() {
    assert!(help(&["-h"]).lines().count() <= 40);
    insta::assert_snapshot!("help", help(&["--help"]));
    insta::assert_snapshot!("help_check", help(&["check", "--help"]));
    insta::assert_snapshot!("checks", ribinfo("rxe", "check --list").0);
}

#[test]
fn capture_refuses_a_directory_that_is_not_empty() {
    let directory = TempDir::new();
    directory.write("file", "x");
    let path = directory.path().to_str().unwrap();
    let line = format!("capture {path}");
    prints("rxe", &line, 2, &["the directory is not empty"]);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn findings_are_sorted_skipped_and_expected() {
    let (text, status) = ribinfo("ipoib", "check");
    let levels: Vec<&str> = text
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let rank = |level: &&&str| {
        ["fault", "warning", "unknown", "ok"]
            .iter()
            .position(|l| l == *level)
    };
    let ranks: Vec<_> = levels[..levels.len() - 1]
        .iter()
        .map(|level| rank(&level))
        .collect();
    assert!(ranks.is_sorted() && status == 1, "{text}");
    let count = text.lines().last().unwrap();
    assert!(
        count.contains(" faults, ") && count.ends_with(" ok"),
        "{count}"
    );

    let (text, _) = ribinfo("ipoib", "check --skip firewall,mlx4_1 --skip opensm");
    assert!(
        !text.contains("mlx4_1/1:") && !text.contains(" firewall "),
        "{text}"
    );
    assert!(
        !text.contains(" opensm ") && text.contains(" partitions "),
        "{text}"
    );
    prints(
        "mlx4",
        "check mtu --expect ports=2,rate=40",
        0,
        &["ok       expect: 2 ports are ACTIVE"],
    );
    prints(
        "mlx4",
        "check mtu --expect ports=3,rate=400",
        1,
        &[
            "fault    expect: 2 ports are ACTIVE, 3 are expected",
            "at least 400 Gb/sec are expected",
        ],
    );
    let (text, status) = ribinfo("ipoib", "check --status");
    assert!(
        text.starts_with("ribinfo: fault: ") && status == 1,
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    let (_, status) = ribinfo("mlx4", "check modules");
    let (_, strict) = ribinfo("mlx4", "check modules --strict");
    assert_eq!((status, strict), (0, 1));
}

#[test]
fn fix_script_is_valid_shell() {
    for host in HOSTS {
        let (text, _) = ribinfo(host, "check --fix-script");
        let directory = TempDir::new();
        directory.write("fix", &text);
        let path = directory.path().join("fix");
        process::run(Command::new("sh").arg("-n").arg(path));
        assert!(text.starts_with("#!/bin/sh\n"), "{text}");
    }
}

#[test]
fn contradicting_configuration_is_found() {
    let directory = TempDir::new();
    let copy = directory.path().join("copy");
    let (text, status) = ribinfo("ipoib", &format!("capture {}", copy.display()));
    assert_eq!(status, 0, "{text}");
    let write = |file: &str, text: &str| {
        let path = copy.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let read = |file: &str| std::fs::read_to_string(copy.join(file)).unwrap();
    let lines = |check: &str| ribinfo_at(&copy, &["check", "-v", check]).0;
    let expect = |check: &str, texts: &[&str]| {
        let text = lines(check);
        for expected in texts {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    };
    let address = read("sys/class/net/mlx4_ib0/address");
    let mode = read("sys/class/net/mlx4_ib0/mode");
    let other = if mode.trim() == "connected" {
        "datagram"
    } else {
        "connected"
    };
    write(
        "etc/NetworkManager/system-connections/ib0.nmconnection",
        &format!(
            "[connection]\ntype=infiniband\ninterface-name=mlx4_ib0\n[infiniband]\ntransport-mode={other}\n"
        ),
    );
    write(
        "etc/udev/rules.d/70-persistent-ipoib.rules",
        &format!(
            "ATTR{{address}}==\"{}\", NAME=\"mlx4_ib0\"\n",
            address.trim()
        ),
    );
    expect(
        "ipoib",
        &[
            &format!("sets {other} mode at the next activation"),
            "compares all 20 bytes, and only the last 8 are stable",
        ],
    );
    write("sys/class/net/mlx4_ib0/flags", "0x1002\n");
    expect(
        "ipoib",
        &[
            "warning  ipoib mlx4_ib0: the interface is down",
            "=> ip link set mlx4_ib0 up",
        ],
    );
    write("etc/security/limits.conf", "* hard memlock 65536\n");
    expect(
        "memlock",
        &["limits locked memory to 64 MiB at the next login"],
    );
    let modules = read("etc/rdma/modules/rdma.conf");
    write(
        "etc/rdma/modules/rdma.conf",
        &format!("{modules}\nib_missing\n"),
    );
    expect(
        "modules",
        &["names modules that are not loaded: ", "ib_missing"],
    );

    write("sys/class/net/mlx4_ib0/flags", "0x1003\n");
    // Duplicate addresses, a common subnet, and an interface without address.
    let probe = read("probe.json");
    let mut value: serde_json::Value = serde_json::from_str(&probe).unwrap();
    let row = |netdev: &str, ip: &str| serde_json::json!({"netdev": netdev, "ip": ip, "bits": 24});
    value["addresses"] = serde_json::json!([
        row("mlx4_ib0", "10.1.1.1"),
        row("mlx4_ib0.8002", "10.1.1.2"),
        row("eth9", "10.1.1.1"),
    ]);
    write("probe.json", &value.to_string());
    expect(
        "addresses",
        &[
            "fault    addresses mlx4_ib0: eth9 also has the address 10.1.1.1",
            "warning  addresses mlx4_ib0: in the same subnet 10.1.1.0/24 as mlx4_ib0.8002",
        ],
    );
    write("sys/class/net/mlx4_ib0/flags", "0x1003\n");
    value["addresses"] = serde_json::json!([]);
    write("probe.json", &value.to_string());
    std::fs::remove_file(copy.join("sys/class/net/eth_ipoib_interfaces")).unwrap();
    expect(
        "ipoib",
        &["warning  ipoib mlx4_ib0.8002: the interface has no address"],
    );
}

#[test]
fn flow_control_of_roce_is_checked() {
    let directory = TempDir::new();
    let copy = directory.path().join("copy");
    let (text, status) = ribinfo("mlx4", &format!("capture {}", copy.display()));
    assert_eq!(status, 0, "{text}");
    let write = |file: &str, text: &str| {
        let path = copy.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let probe: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(copy.join("probe.json")).unwrap()).unwrap();
    let pfc = |priority: Option<usize>| {
        let flags: Vec<bool> = (0..8).map(|n| Some(n) == priority).collect();
        let pfc = serde_json::json!({"pfc_cap": 8, "prio_pfc": flags}).to_string();
        let mut probe = probe.clone();
        probe["dcb"] = serde_json::json!([{"netdev": "mlx4_roce", "pfc": pfc}]);
        write("probe.json", &probe.to_string());
    };
    let tos = "sys/kernel/config/rdma_cm/mlx4_0/ports/2/default_roce_tos";
    let net = |file: &str| format!("sys/class/net/mlx4_roce/{file}");
    let expect = |expected: &str, remedy: &str| {
        let (text, _) = ribinfo_at(&copy, &["check", "dcb"]);
        assert!(
            text.contains(expected) && text.contains(remedy),
            "{expected}: {text}"
        );
    };
    expect(
        "unknown  dcb mlx4_0/2: PFC and ECN of mlx4_roce are not known",
        "",
    );
    for point in ["roce_np", "roce_rp"] {
        for priority in 0..8 {
            write(&net(&format!("ecn/{point}/enable/{priority}")), "0\n");
        }
    }
    pfc(None);
    expect(
        "neither PFC nor ECN is enabled",
        "dcb pfc set dev mlx4_roce",
    );
    pfc(Some(3));
    write(&net("qos/trust"), "pcp\n");
    write(tos, "0\n");
    expect("mlx4_roce trusts PCP", "mlnx_qos -i mlx4_roce --trust dscp");
    write(&net("qos/trust"), "dscp\n");
    expect(
        "RDMA packets have DSCP 0 and priority 0, but PFC is on for priority 3",
        "echo 96 > /sys/kernel/config/rdma_cm/mlx4_0/ports/2/default_roce_tos",
    );
    write(tos, "106\n");
    expect(
        "ECN (roce_np) is off for priority 3",
        "ecn/roce_np/enable/3",
    );
    write(&net("ecn/roce_np/enable/3"), "1\n");
    expect(
        "ECN (roce_rp) is off for priority 3",
        "ecn/roce_rp/enable/3",
    );
    write(&net("ecn/roce_rp/enable/3"), "1\n");
    write(&net("ecn/roce_np/cnp_dscp"), "24\n");
    expect("CNPs have the priority 3 of the data", "echo 48 >");
    write(&net("ecn/roce_np/cnp_dscp"), "48\n");
    expect("ok       dcb mlx4_0/2: PFC is on for priority 3", "");
    // The driver's traffic class takes precedence over that of rdma_cm.
    write(
        "sys/class/infiniband/mlx4_0/tc/2/traffic_class",
        "Global tclass=32\n",
    );
    expect("RDMA packets have DSCP 8 and priority 1", "");
}

#[test]
fn peer_in_another_subnet_is_found() {
    let directory = TempDir::new();
    let copy = directory.path().join("copy");
    let (text, status) = ribinfo("rxe", &format!("capture {}", copy.display()));
    assert_eq!(status, 0, "{text}");
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let mut probe = parse(&std::fs::read_to_string(copy.join("probe.json")).unwrap());
    for address in probe["addresses"].as_array_mut().unwrap() {
        address["bits"] = 24.into();
    }
    std::fs::write(copy.join("probe.json"), probe.to_string()).unwrap();
    let mut facts = parse(&ribinfo("rxe", "facts").0);
    let mut check = |addresses: Option<&str>| {
        for port in facts["ports"].as_array_mut().unwrap() {
            if let Some(address) = addresses {
                port["addresses"] = serde_json::json!([address]);
            }
        }
        let path = directory.write("peer.json", facts.to_string());
        let args = ["check", "peer", "--peer-facts", path.to_str().unwrap()];
        ribinfo_at(&copy, &args).0
    };
    let (near, far) = (check(None), check(Some("203.0.113.7")));
    assert!(!near.contains("common subnet"), "{near}");
    assert!(far.contains("have no address in a common subnet"), "{far}");
}
