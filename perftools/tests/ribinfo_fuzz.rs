//! Each parser of `ribinfo` gets 20,000 random inputs. None may panic, and the results must
//! satisfy their invariants.
//!
//! An input is a sequence of fragments of the parser's grammar, truncated at random. The seeds are
//! fixed, so the inputs are the same each time. `ci/stress fuzz` generates others.

use std::fs;
use std::path::{Path, PathBuf};

use base::cpus::parse_list;
use clap::Parser;
use host::device::{NamedCode, parse_guid};
use host::eipoib::slave;
use host::filter::{Direction, Family, Packet, Protocol, Ruleset, Verdict};
use host::hwaddr::HwAddr;
use host::limits::{has_ipc_lock, memlock};
use host::nfs::mounts;
use host::opensm::{Conf, Sysconfig};
use host::partitions;
use host::probe::Firewall;
use host::rate::Rate;
use host::root::{number, unsigned};
use perftools::ribinfo::args::Info;
use test_support::random::Random;
use test_support::temp_dir::TempDir;

const INPUTS: u32 = 20_000;

/// Writes up to 12 fragments to `text`, sometimes with a random character between them.
fn write_random(random: &mut Random, fragments: &[&str], text: &mut String) {
    text.clear();
    for _ in 0..random.below(12) {
        match random.below(16) {
            0 => text.push(random_char(random, 0x3000)),
            1 => text.push(random_char(random, 128)),
            _ => text.push_str(fragments[random.below(fragments.len())]),
        }
    }
    if random.below(4) == 0 {
        let mut end = random.below(text.len() + 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

fn random_char(random: &mut Random, limit: usize) -> char {
    let code = u32::try_from(random.below(limit)).expect("a small number");
    char::from_u32(code).unwrap_or('?')
}

fn fuzz(seed: u64, inputs: u32, fragments: &[&str], mut parse: impl FnMut(&str)) {
    let mut random = Random::new(seed);
    let mut text = String::new();
    for _ in 0..inputs {
        write_random(&mut random, fragments, &mut text);
        parse(&text);
    }
}

#[test]
fn partitions_conf() {
    let fragments = [
        "Default",
        "=",
        "0x7fff",
        "0x8002",
        ",",
        ":",
        ";",
        "\n",
        " ",
        "#",
        "ipoib",
        "mtu=",
        "rate=",
        "5",
        "12",
        "0",
        "scope=",
        "defmember=",
        "full",
        "limited",
        "both",
        "ALL",
        "ALL_CAS",
        "SELF",
        "mgid=",
        "ff12:401b::707",
        "sl=",
        "Q_Key=",
        "0xffffffffffffffffff",
        "indx0",
        "\t",
        "\r",
    ];
    fuzz(1, INPUTS, &fragments, |text| {
        let read = partitions::parse(text);
        for definition in &read.definitions {
            assert!(
                definition
                    .pkey
                    .is_none_or(|key| (1..=0x7fff).contains(&key)),
                "{text:?}"
            );
            assert!(
                definition
                    .flags
                    .mtu
                    .is_none_or(|code| partitions::mtu_bytes(code).is_some()),
                "{text:?}"
            );
            assert!(
                definition
                    .flags
                    .rate
                    .is_none_or(|code| partitions::rate_mbps(code).is_some()),
                "{text:?}"
            );
        }
        let stops = read.problems.iter().filter(|problem| problem.fatal).count();
        assert!(stops <= 1, "{text:?}");
    });
}

#[test]
fn hardware_addresses_and_guids() {
    let fragments = [
        "80:00:02:00:",
        "fe:80:",
        "00:",
        "00:02:c9:03:00:31:78:f2",
        ":",
        "f",
        "0002:",
        "c903",
        "0",
        "-",
        "+",
    ];
    fuzz(2, INPUTS, &fragments, |text| {
        if let Ok(address) = text.parse::<HwAddr>() {
            assert_eq!(address.to_string().parse(), Ok(address));
            assert_eq!(address.stable_part().len(), 23);
        }
        if let Some(guid) = parse_guid(text) {
            assert_eq!(parse_guid(&guid.to_string()), Some(guid));
        }
    });
}

#[test]
fn rates_states_and_numbers_of_sysfs() {
    let fragments = [
        "100",
        "2.5",
        "10",
        " Gb/sec",
        " (",
        "4X",
        "1X",
        " EDR",
        " FDR10",
        ")",
        ".",
        ":",
        " ",
        "4: ACTIVE",
        "0x",
        "-",
        "f",
        "99999999999",
    ];
    fuzz(3, INPUTS, &fragments, |text| {
        if let Some(rate) = Rate::parse(text) {
            assert_eq!(Rate::parse(&rate.to_string()), Some(rate), "{text:?}");
            assert_ne!(rate.ibstat(), "");
        }
        let _ = NamedCode::parse(text);
        let _ = (number(text), unsigned(text));
    });
}

#[test]
fn opensm_conf_and_sysconfig() {
    let fragments = [
        "guid",
        " ",
        "0x0002c90300317851",
        "\n",
        "#",
        "sm_priority",
        "15",
        "\"",
        "'",
        "GUIDS=",
        "PRIORITY=",
        "(null)",
        "\t",
        "export ",
    ];
    fuzz(4, INPUTS, &fragments, |text| {
        let conf = Conf::parse("x", text);
        assert_ne!(conf.guid(), Some(0));
        let _ = (
            conf.priority(),
            conf.get("guid"),
            Sysconfig::parse("x", text),
        );
    });
}

/// Returns the verdict for the first packet of RoCE v2.
fn verdict(firewall: &Firewall) -> Option<Verdict> {
    let packet = Packet {
        direction: Direction::Input,
        family: Family::V4,
        protocol: Protocol::Udp,
        netdev: "eth0".into(),
        local: Some([10, 0, 0, 1].into()),
        peer: "10.0.0.0/24".parse().ok(),
        source_port: None,
        destination_port: Some(4791),
        is_reply: false,
    };
    Some(Ruleset::parse(firewall).ok()?.verdict(&packet))
}

#[test]
fn rules_of_iptables_and_sets() {
    let fragments = [
        "*filter\n:INPUT DROP [0:0]\n",
        ":c - [0:0]\n",
        "-A INPUT ",
        "-A c ",
        "-p udp --dport 4791 ",
        "-s 10.0.0.0/255.0.0.0 ",
        "--src-range 10.0.0.1-10.0.0.9 ",
        "--tcp-flags FIN,SYN SYN ",
        "--mark 0x1/0x3 ",
        "-m set --match-set s src,dst ",
        "-j MARK --set-xmark 0x1/0xf\n",
        "-j ACCEPT\n",
        "-j c\n",
        "-g INPUT\n",
        "! ",
        "-m ",
        "\"",
        "COMMIT\n",
        "create s hash:net,port\n",
        "create s list:set\n",
        "add s 10.0.0.0/24,udp:1-9\n",
        "add s ",
        "4791,",
        "nomatch\n",
    ];
    fuzz(5, INPUTS, &fragments, |text| {
        let firewall = Firewall {
            iptables: Some(text.to_owned()),
            ipsets: Some(text.to_owned()),
            ..Firewall::default()
        };
        assert!(verdict(&firewall).is_some());
    });
}

#[test]
fn rules_of_nft() {
    const CHAIN: &str = r#"{"nftables":[{"chain":{"family":"ip","table":"t","name":"c","hook":"input","prio":0,"policy":"drop"}},
{"map":{"family":"ip","table":"t","name":"s","elem":[[4791,{"accept":null}],["*",{"drop":null}]]}},
{"rule":{"family":"ip","table":"t","chain":"c","handle":1,"expr":["#;
    let fragments = [
        r#"{"match":{"op":"=="#,
        r#"","left":{"payload":{"protocol":"udp","field":"dport"}},"right":4791}}"#,
        r#"","left":{"meta":{"key":"mark"}},"right":{"set":[1,{"range":[2,3]}]}}}"#,
        r#"","left":{"ct":{"key":"state"}},"right":["new","established"]}}"#,
        r#"","left":{"concat":[{"meta":{"key":"iifname"}},{"ct":{"key":"mark"}}]},"right":"@s"}}"#,
        r#"{"vmap":{"key":{"payload":{"protocol":"udp","field":"dport"}},"data":"@s"}}"#,
        r#"{"mangle":{"key":{"meta":{"key":"mark"}},"value":{"|":[{"meta":{"key":"mark"}},7]}}}"#,
        r#"{"jump":{"target":"c"}}"#,
        r#"{"accept":null}"#,
        r#"{"xt":null}"#,
        ",",
        "]}},{\"rule\":{\"family\":\"ip\",\"table\":\"t\",\"chain\":\"c\",\"expr\":[",
    ];
    let mut valid = 0;
    fuzz(9, INPUTS / 5, &fragments, |text| {
        let firewall = Firewall {
            nft_json: Some(format!("{CHAIN}{text}]}}}}]}}")),
            nft: Some(text.to_owned()),
            ..Firewall::default()
        };
        valid += u32::from(verdict(&firewall).is_some());
    });
    assert!(valid > 100, "{valid}");
}

#[test]
fn mounts_and_slaves() {
    let fragments = [
        "10.0.0.1:/a",
        " ",
        "/mnt",
        "nfs",
        "nfs4",
        "ext4",
        "proto=rdma",
        "rdma6",
        ",",
        "port=",
        "20049",
        "99999",
        "\n",
        "#",
        "SLAVE=",
        "MAC=",
        "VLAN=",
        "ib0.1",
        "N/A",
        "3",
        "-1",
        "0 0",
    ];
    fuzz(6, INPUTS, &fragments, |text| {
        for mount in mounts(text) {
            assert!(
                !mount.source.starts_with('#') && !mount.target.is_empty(),
                "{text:?}"
            );
        }
        if let Some(slave) = slave(text) {
            assert!(
                slave.vlan.is_none_or(|vlan| (1..4095).contains(&vlan)),
                "{text:?}"
            );
        }
    });
}

#[test]
fn limits_rights_and_processors() {
    let fragments = [
        "Max locked memory",
        " ",
        "unlimited",
        "65536",
        "99999999999999999999",
        "bytes",
        "\n",
        "CapEff:\t",
        "000001ffffffffff",
        "f",
        "0-3",
        ",",
        "-",
        "8",
        "4294967295",
    ];
    fuzz(7, INPUTS, &fragments, |text| {
        let _ = (memlock(text), has_ipc_lock(text));
        assert!(
            parse_list(text).is_none_or(|all| all.len() <= 2 << 16),
            "{text:?}"
        );
    });
}

/// Collects the files of a captured host.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if kind.is_file() && entry.file_name() != "probe.json" {
            found.push(entry.path());
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), to).unwrap();
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Returns `bytes` with ranges removed, duplicated, or replaced by invalid content.
fn damaged(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        let end = at + random.below(bytes.len() - at + 1);
        match random.below(6) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            2 => drop(bytes.splice(at..end, *b"99999999999999999999")),
            3 => drop(bytes.splice(at..end, *b"-1")),
            4 => drop(bytes.splice(at..end, [0, 0xff, 0x1b, b'\n'])),
            _ => bytes
                .iter_mut()
                .skip(at)
                .take(end - at)
                .for_each(|byte| *byte ^= 1),
        }
    }
    bytes
}

#[test]
fn damaged_files_of_a_host_cause_no_panic() {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hosts");
    let copies = TempDir::new();
    let mut random = Random::new(8);
    for host in ["mlx4", "ipoib", "rxe", "siw"] {
        let root = copies.path().join(host);
        copy(&hosts.join(host), &root);
        let mut all = Vec::new();
        files(&root, &mut all);
        assert!(all.len() > 30, "{host}");
        for file in &all {
            let before = fs::read(file).unwrap();
            fs::write(file, damaged(&mut random, &before)).unwrap();
            for command in ["check", "stat", "gids", "links", "devices", "facts"] {
                let info =
                    Info::try_parse_from(["ribinfo", command, "--root", root.to_str().unwrap()])
                        .unwrap();
                let (text, _) = perftools::ribinfo::run(&info).unwrap();
                assert!(
                    !text.contains('\x1b') || command != "check",
                    "{}: {text}",
                    file.display()
                );
            }
            fs::write(file, before).unwrap();
        }
    }
}
