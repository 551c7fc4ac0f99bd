//! The findings on each tree.

use test_support::text::assert_contains;

use super::host_builder::Host;
use super::tree::{expected, names, unpack};
use crate::common::ribinfo;

#[test]
fn healthy_trees_have_no_problem() {
    let healthy: Vec<String> = names()
        .into_iter()
        .filter(|name| name.starts_with('h'))
        .collect();
    assert!(healthy.len() >= 6, "{healthy:?}");
    for name in healthy {
        let tree = unpack(&name);
        let (text, status) = ribinfo(tree.path(), &["check", "-q"]);
        assert_eq!((text.as_str(), status), ("", 0), "{name}");
    }
}

#[test]
fn each_fault_has_its_cause_and_remedy() {
    for name in names().into_iter().filter(|name| !name.starts_with('h')) {
        let tree = unpack(&name);
        let (text, _) = ribinfo(tree.path(), &["check", "-q"]);
        assert!(text.lines().count() <= 2, "{name}: {text}");
        let expected = expected(&name);
        assert_eq!(expected.is_none(), text.is_empty(), "{name}: {text}");
        let Some((finding, remedy)) = &expected else {
            continue;
        };
        let mut lines = text.lines().filter_map(|line| line.split_once(" => "));
        let is_found = lines.any(|(text, by)| text.contains(finding) && by.contains(remedy));
        assert!(is_found, "{name}: {text}");
    }
}

#[test]
fn no_script_takes_anything_away() {
    for name in names() {
        let tree = unpack(&name);
        let (script, _) = ribinfo(tree.path(), &["check", "--fix-script"]);
        let commands = script
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let safe = ["set -ex", "modprobe ", "ip link set "];
        for command in commands {
            assert!(
                safe.iter().any(|safe| command.starts_with(safe)),
                "{name}: {command}"
            );
            assert!(!command.ends_with(" down"), "{name}: {command}");
        }
    }
}

#[test]
fn virtual_functions_are_set_on_their_host() {
    let tree = unpack("h1-mlx5-ib");
    let device = "sys/class/infiniband/mlx5_0";
    tree.write(&format!("{device}/hca_type"), "MT4124\n");
    tree.write(&format!("{device}/device/current_link_speed"), "Unknown\n");
    tree.write(&format!("{device}/device/current_link_width"), "0\n");
    let (text, status) = ribinfo(tree.path(), &["check", "-q", "link", "port"]);
    assert_eq!((text.as_str(), status), ("", 0));
    tree.write(&format!("{device}/ports/1/state"), "1: DOWN\n");
    tree.write(&format!("{device}/ports/1/phys_state"), "3: Disabled\n");
    let (text, status) = ribinfo(tree.path(), &["check", "-q", "port"]);
    assert!(
        text.contains("virtual function: DOWN") && status == 1,
        "{text}"
    );
    assert!(
        text.contains("ip link set PF vf N") && !text.contains("ibportstate"),
        "{text}"
    );
    // Without the ID, the link to the adapter's physical function shows it.
    tree.write(&format!("{device}/hca_type"), "MT4123\n");
    std::os::unix::fs::symlink(
        "../0000:5e:00.0",
        tree.path().join(format!("{device}/device/physfn")),
    )
    .expect("a link");
    let (text, _) = ribinfo(tree.path(), &["check", "-q", "port"]);
    assert!(text.contains("virtual function: DOWN"), "{text}");
}

#[test]
fn a_container_is_named() {
    let tree = unpack("c01-pod-no-gids");
    tree.write("run/.containerenv", "");
    let (text, _) = ribinfo(tree.path(), &["check", "-q"]);
    assert!(text.contains("because a Podman container runs"), "{text}");
}

#[test]
fn a_missing_verbs_node_is_not_due_to_a_loaded_module() {
    let tree = unpack("h4-bnxt");
    let verbs = "sys/class/infiniband_verbs";
    tree.write(&format!("{verbs}/uverbs0/ibdev"), "bnxt_re7\n");
    let check = || ribinfo(tree.path(), &["check", "-q", "nodes"]).0;
    let text = check();
    assert_contains(&text, &["although module ib_uverbs is loaded"]);
    std::fs::remove_dir_all(tree.path().join(verbs)).expect("a directory");
    tree.write("proc/modules", "bnxt_re 1 0 - Live 0x0\n");
    assert_eq!(check(), "");
    let (text, _) = ribinfo(tree.path(), &["check", "-q", "modules"]);
    assert!(text.contains("modules ib_uverbs: not loaded"), "{text}");
}

#[test]
fn errors_are_compared_with_the_packets() {
    let tree = unpack("c20-hwcounters");
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    tree.write(
        &format!("{port}/counters/port_xmit_packets"),
        "90000000000000\n",
    );
    let (text, _) = ribinfo(tree.path(), &["check", "-q"]);
    assert_eq!(text, "");
}

#[test]
fn interfaces_in_one_subnet_need_both_settings_of_arp() {
    let tree = unpack("h2-mlx5-roce2");
    let probe = std::fs::read_to_string(tree.path().join("probe.json")).expect("the probe");
    // An interface without RDMA.
    let ordinary = r#""addresses":[{"netdev":"eno1","ip":"10.1.0.9","bits":24},"#;
    let probe = probe.replacen(r#""addresses":["#, ordinary, 1);
    tree.write("probe.json", probe);
    let set = |file: &str| tree.write(&format!("proc/sys/net/ipv4/conf/all/{file}"), "2\n");
    let warning = "addresses ens1f0np0: in the same subnet 10.1.0.0/24 as eno1";
    let check = || ribinfo(tree.path(), &["check", "-q", "addresses"]).0;
    assert!(check().contains(warning), "{}", check());
    set("arp_ignore");
    assert!(check().contains(warning), "{}", check());
    set("arp_announce");
    assert_eq!(check(), "");
}

#[test]
fn bond_that_lost_an_interface_is_found() {
    let tree = unpack("h2-mlx5-roce2");
    let net = |file: &str| format!("sys/class/net/{file}");
    tree.write(&net("bond0/type"), "1\n");
    tree.write(&net("bond0/bonding/slaves"), "ens1f0np0 ens1f1np1\n");
    let check = || ribinfo(tree.path(), &["check", "-q", "link"]).0;
    assert_eq!(check(), "");
    tree.write(&net("ens1f1np1/carrier"), "0\n");
    let text = check();
    assert_contains(
        &text,
        &["warning  link mlx5_0/1: ens1f1np1 of the bond bond0 is down"],
    );
}

#[test]
fn misspelled_words_of_every_file_are_found() {
    const FILES: &[(&str, &str, &str)] = &[
        ("etc/sysconfig/opensm", "GUID=\"0x1\"\n", "GUIDS"),
        (
            "etc/security/limits.d/rdma.conf",
            "* soft memlok unlimited\n",
            "memlock",
        ),
        (
            "etc/security/limits.conf",
            "* hard memlock unlimitted\n",
            "unlimited",
        ),
        (
            "etc/infiniband/openib.conf",
            "LOAD_EIPIOB=yes\n",
            "LOAD_EIPOIB",
        ),
        ("etc/exports", "/data *(rw,insecrue)\n", "insecure"),
        (
            "etc/NetworkManager/system-connections/ib0.nmconnection",
            "[connection]\ntype=infiniband\ninterface-name=ib0\n[infiniband]\ntransport-mod=datagram\n",
            "transport-mode",
        ),
    ];
    for (file, text, known) in FILES {
        let tree = unpack("h1-mlx5-ib");
        tree.write(file, text);
        let (text, _) = ribinfo(tree.path(), &["check", "-q"]);
        let expected = format!("=> did you mean {known}?");
        assert!(
            text.contains(&format!("/{file}")) && text.contains(&expected),
            "{text}"
        );
    }
}

#[test]
fn files_of_guids_are_read() {
    let tree = unpack("h1-mlx5-ib");
    tree.write("etc/rdma/opensm.conf", "root_guid_file /etc/rdma/roots\n");
    let check = || ribinfo(tree.path(), &["check", "-q", "opensm"]).0;
    assert!(check().contains("root_guid_file /etc/rdma/roots: the file does not exist"));
    tree.write(
        "etc/rdma/roots",
        "# spines\n0x0002c90300317851\n0002c90300317852\n",
    );
    assert!(check().contains("/etc/rdma/roots, line 3: `0002c90300317852` is not a GUID"));
    tree.write("etc/rdma/roots", "0x0002c90300317851 spine1\n");
    assert_eq!(check(), "");
}

#[test]
fn port_of_a_vpi_adapter_can_be_in_the_wrong_mode() {
    let tree = unpack("h2-mlx5-roce2");
    let probe = std::fs::read_to_string(tree.path().join("probe.json")).expect("the probe");
    tree.write("etc/rdma/opensm.conf", "guid 0x0200000000000010\n");
    let check = || ribinfo(tree.path(), &["check", "-q", "port"]).0;
    assert_eq!(check(), "");
    // An interface with an address is used as Ethernet.
    tree.write("probe.json", probe.replace("10.1.0.1", "169.254.0.1"));
    let text = check();
    let expected = "fault    port mlx5_0/1: the port is in Ethernet mode, but /etc/rdma/opensm.conf configures InfiniBand";
    assert_contains(&text, &[expected, "LINK_TYPE_P1=1"]);
}

#[test]
fn a_rule_of_udev_for_no_interface_is_found() {
    let tree = unpack("h1-mlx5-ib");
    let rule = r#"ACTION=="add", ATTR{type}=="32", ATTR{address}=="?*04:3f:72:03:00:df:3d:ff", NAME="ib0""#;
    tree.write("etc/udev/rules.d/70-persistent-ipoib.rules", rule);
    let (text, _) = ribinfo(tree.path(), &["check", "-q", "ipoib"]);
    assert!(text.contains("which no interface has => "), "{text}");
}

/// Runs checks on a host that the lines describe.
fn check_host(lines: &[&str], args: &[&str]) -> (String, i32) {
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let host = Host::new("a host", &lines);
    ribinfo(host.path(), &[&["check", "-q"], args].concat())
}

#[test]
fn slow_pcie_link_above_the_slot_is_found() {
    let host = |upper: &str| {
        let lines = [
            "ib mlx5_0 slot=0000:31:00.0 speed=16.0 width=16",
            "pci 0000:2d:01.0 - 0x060400 0x8086 link=16.0x16/16.0x16",
            &format!("pci 0000:2e:00.0 0000:2d:01.0 0x060400 0x1000 link={upper}/16.0x16"),
            "pci 0000:2f:00.0 0000:2e:00.0 0x060400 0x1000 link=16.0x16/16.0x16",
            "pci 0000:31:00.0 0000:2f:00.0 0x020700 0x15b3 link=16.0x16/16.0x16",
        ];
        check_host(&lines, &["link"]).0
    };
    assert_eq!(host("16.0x16"), "");
    let text = host("8.0x16");
    let expected = "warning  link mlx5_0: the PCIe link below 0000:2d:01.0 is 8.0 GT/s PCIe x16, but both of its ends support 16 GT/s x16";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn alarms_of_transceivers_are_reported() {
    let host = |alarm: &str| {
        let transceiver = format!("transceiver ens1f0 \"71.50 degrees C\"{alarm}");
        check_host(&["roce mlx5_0 ens1f0 10.0.0.1/24", &transceiver], &["link"]).0
    };
    assert_eq!(host(""), "");
    let text = host(" \"Module temperature high alarm\"");
    let expected = "the transceiver of ens1f0 reports: Module temperature high alarm (temperature 71.50 degrees C) => check the airflow";
    assert!(text.contains(expected), "{text}");
    let text = host(" \"Laser rx power low alarm (Channel 1)\"");
    assert!(text.contains("=> clean the fiber"), "{text}");
}

#[test]
fn a_port_with_translated_requests_needs_no_other_acs() {
    let host = |adapter: &str, acs: &str| {
        let lines = [
            "ib mlx5_0 slot=0000:31:00.0",
            "load nvidia_peermem",
            "pci 0000:2e:00.0 - 0x060400 0x1000",
            &format!("pci 0000:2f:00.0 0000:2e:00.0 0x060400 0x1000 acs={acs}"),
            "pci 0000:2f:01.0 0000:2e:00.0 0x060400 0x1000 acs=0",
            &format!("pci 0000:31:00.0 0000:2f:00.0 0x020700 0x15b3 {adapter}"),
            "pci 0000:32:00.0 0000:2f:01.0 0x030200 0x10de driver=nvidia",
        ];
        check_host(&lines, &["gpu"]).0
    };
    assert_eq!(host("ats=off", "0"), "");
    assert!(host("ats=off", "1d").contains("redirects"));
    assert!(host("ats=on", "1d").contains("redirects"));
    assert_eq!(host("ats=on", "5d"), "");
}

#[test]
fn host_is_compared_with_the_manifest_of_a_good_one() {
    let good: &[&str] = &["ib mlx5_0 fw=28.39.1002", "ib mlx5_1 fw=28.39.1002"];
    let lines: Vec<String> = good.iter().map(ToString::to_string).collect();
    let host = Host::new("a host", &lines);
    let (manifest, _) = ribinfo(host.path(), &["expect"]);
    assert_contains(
        &manifest,
        &["host devices 2\n0000:10:00.0 firmware 28.39.1002\n"],
    );
    let directory = test_support::temp_dir::TempDir::new();
    let file = directory.write("manifest", manifest);
    let file = file.to_str().expect("a path");
    let check = |lines: &[&str]| check_host(lines, &["port", "--expect", file]);
    assert_eq!(check(good), (String::new(), 0));
    let (text, status) = check(&["ib mlx5_0 fw=28.38.1002"]);
    assert_eq!(status, 1);
    for expected in [
        "expect host: devices is 1, but the manifest has 2 => lspci",
        "expect 0000:10:00.0: firmware is 28.38.1002, but the manifest has 28.39.1002",
        "expect 0000:11:00.0/1: rate is missing, but the manifest has 100 Gb/sec (4X EDR)",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    directory.write("manifest", "0000:10:00.0 firmware\n");
    let (text, status) = check(good);
    assert!(
        text.contains("line 1: `0000:10:00.0 firmware`") && status == 2,
        "{text}"
    );
}
