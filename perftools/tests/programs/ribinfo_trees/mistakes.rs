//! Healthy hosts of every driver, and mistakes that are planted in them.
//!
//! The hosts follow the rules of `host_builder.rs`. The table of mistakes has the line that plants
//! each one, and the only finding that it may cause.

use std::fmt::Write as _;

use checks::finding::{Finding, Level};
use host::HostFacts;
use host::root::Root;

use super::host_builder::Host;
use crate::common::ribinfo;

/// The drivers of rdma-core's providers, with the word of the builder.
pub(super) const DRIVERS: &[(&str, &str)] = &[
    ("roce", "mlx5_core"),
    ("roce", "mlx4_core"),
    ("roce", "bnxt_en"),
    ("roce", "ice"),
    ("roce", "qede"),
    ("roce", "be2net"),
    ("roce", "ionic"),
    ("roce", "hns3"),
    ("roce", "mana"),
    ("roce", "vmw_pvrdma"),
    ("roce", "none"),
    ("ib", "mlx5_core"),
    ("ib", "mlx4_core"),
    ("ib", "ib_mthca"),
    ("ib", "ib_qib"),
    ("ib", "hfi1"),
    ("iwarp", "cxgb4"),
    ("iwarp", "i40e"),
    ("iwarp", "erdma"),
    ("iwarp", "none"),
    ("efa", "efa"),
];

/// Lines that make other healthy hosts of a driver: the word, the driver or `""`, and the lines.
const VARIANTS: &[(&str, &str, &str)] = &[
    ("", "", "container pod\nno-node umad0\nno-node umad1"),
    ("", "", "/sys/fs/selinux/enforce = 1"),
    ("ib", "", "ipoib ib0 rdma0 2044 10.9.0.1/24 mode=datagram"),
    ("roce", "", "vlan net0.7 net0 9000 10.7.0.1/24"),
    ("roce", "mlx5_core", "virtual rdma0"),
    ("roce", "mlx5_core", "switchdev rdma0 net0 4"),
    ("roce", "mlx5_core", "switchdev rdma0 net0 0"),
    ("roce", "bnxt_en", "virtual rdma0"),
    ("roce", "ice", "virtual rdma0"),
    ("ib", "mlx5_core", "virtual rdma0"),
    (
        "roce",
        "mlx5_core",
        "roce rdma1 net1 10.0.1.1/24\nroce rdma2 net2 10.0.2.1/24\ncontainer pod\nno-node uverbs1\nno-node uverbs2\nno-netdev net1\nno-netdev net2\ndown net0\nstate rdma1 Disabled\n/sys/class/net/net0/flags = 0x1003",
    ),
    (
        "",
        "",
        "container podman\n/proc/self/uid_map = 0 1000 1\nno-node umad0\nno-node umad1",
    ),
];

/// Returns the lines of the healthy hosts of a driver: one device, and two.
pub(super) fn lines(word: &str, driver: &str, count: usize) -> Vec<String> {
    let device = |number: usize| {
        let ip = format!("10.0.{number}.1/24");
        let netdev = match word {
            "roce" | "iwarp" => format!(" net{number} {ip}"),
            _ => String::new(),
        };
        format!("{word} rdma{number}{netdev} driver={driver}")
    };
    (0..count).map(device).collect()
}

/// Returns the name and the lines of every healthy host.
fn hosts() -> Vec<(String, &'static str, &'static str, Vec<String>)> {
    let mut hosts = Vec::new();
    for (word, driver) in DRIVERS {
        for count in [1, 2, 8] {
            let name = format!("{word} {driver} {count}");
            hosts.push((name, *word, *driver, lines(word, driver, count)));
        }
        for (kind, only, added) in VARIANTS {
            let is_for = |filter: &str, value: &str| filter.is_empty() || filter == value;
            if is_for(kind, word) && is_for(only, driver) {
                let mut all = lines(word, driver, 1);
                all.extend(added.lines().map(str::to_owned));
                hosts.push((format!("{word} {driver}: {added}"), *word, *driver, all));
            }
        }
    }
    hosts
}

pub(super) fn findings(name: &str, lines: &[String]) -> Vec<Finding> {
    let host = Host::new(name, lines);
    let root = Root::at(host.path()).expect("a tree");
    let mut findings = checks::check(&HostFacts::read(&root, None), &[]);
    findings.retain(|finding| finding.level >= Level::Warning);
    findings
}

#[test]
fn healthy_hosts_of_every_driver_have_no_finding() {
    let hosts = hosts();
    assert!(hosts.len() >= 60, "{}", hosts.len());
    let mut alarms = String::new();
    for (name, _, _, lines) in &hosts {
        for finding in findings(name, lines) {
            writeln!(alarms, "{name}: {finding}").expect("a string");
        }
    }
    println!("{} healthy hosts", hosts.len());
    assert_eq!(alarms, "");
}

#[test]
fn the_whole_check_of_a_large_host_fits_on_a_screen() {
    let mut large = lines("roce", "mlx5_core", 8);
    large.push("switchdev rdma0 net0 23".to_owned());
    large.push("switchdev rdma1 net1 23".to_owned());
    let of_drivers = DRIVERS.iter();
    let of_drivers = of_drivers.map(|(word, driver)| lines(word, driver, 8));
    for lines in of_drivers.chain([large]) {
        let host = Host::new("a large host", &lines);
        let (text, status) = ribinfo(host.path(), &["check", "-q"]);
        assert_eq!((text.as_str(), status), ("", 0), "{lines:?}");
        let (text, _) = ribinfo(host.path(), &["check"]);
        assert!(text.lines().count() <= 30, "{lines:?}\n{text}");
    }
}

/// A mistake in a host with one device `rdma0` and, over Ethernet, the interface `net0`.
pub(super) struct Mistake {
    /// The word of the builder, or `""` for every host.
    pub(super) word: &'static str,
    /// The driver, or `""` for every driver.
    pub(super) driver: &'static str,
    /// The lines that plant it.
    pub(super) lines: &'static str,
    /// The check that finds it.
    check: &'static str,
    /// Words of the finding.
    text: &'static str,
    /// Words of the remedy.
    remedy: &'static str,
}

const fn mistake(
    [word, driver]: [&'static str; 2],
    lines: &'static str,
    [check, text, remedy]: [&'static str; 3],
) -> Mistake {
    Mistake {
        word,
        driver,
        lines,
        check,
        text,
        remedy,
    }
}

pub(super) const MISTAKES: &[Mistake] = &[
    mistake(
        ["", ""],
        "closed-node uverbs0 600",
        ["nodes", "cannot open", "chmod 0666"],
    ),
    mistake(
        ["", ""],
        "no-node uverbs0",
        ["nodes", "is missing", "udevadm trigger"],
    ),
    mistake(
        ["", ""],
        "/sys/fs/selinux/enforce = 1\ndenied-node uverbs0 \"Permission denied (os error 13)\"",
        ["nodes", "cannot open", "SELinux denies it"],
    ),
    mistake(
        ["", ""],
        "/proc/mounts = devtmpfs /dev devtmpfs rw,nodev 0 0\ndenied-node uverbs0 \"Permission denied (os error 13)\"",
        ["nodes", "cannot open", "remount,dev"],
    ),
    mistake(
        ["", ""],
        "denied-node uverbs0 \"Operation not permitted (os error 1)\"",
        ["nodes", "cannot open", "DeviceAllow"],
    ),
    mistake(
        ["", ""],
        "container docker\ndenied-node uverbs0 \"Operation not permitted (os error 1)\"",
        ["nodes", "cannot open", "--device /dev/infiniband/uverbs0"],
    ),
    mistake(
        ["", ""],
        "no-provider rdma0",
        ["nodes", "does not list it", "ibverbs-providers"],
    ),
    mistake(
        ["roce", "bnxt_en"],
        "no-provider rdma0\n/sys/class/infiniband_verbs/uverbs0/abi_version = 6",
        ["nodes", "has ABI 6", "modinfo bnxt_re"],
    ),
    mistake(
        ["", ""],
        "unload ib_uverbs",
        ["modules", "programs cannot use verbs", "modprobe ib_uverbs"],
    ),
    mistake(
        ["roce", ""],
        "unload rdma_ucm",
        ["modules", "cannot use rdma_cm", "modprobe rdma_ucm"],
    ),
    mistake(
        ["ib", ""],
        "unload rdma_ucm",
        ["modules", "cannot use rdma_cm", "modprobe rdma_ucm"],
    ),
    mistake(
        ["ib", ""],
        "unload ib_umad",
        ["modules", "management datagrams", "modprobe ib_umad"],
    ),
    mistake(["", ""], "memlock 64", ["memlock", "", "limits.conf"]),
    mistake(
        ["", ""],
        "container docker\nmemlock 64",
        ["memlock", "", "--ulimit memlock=-1"],
    ),
    mistake(
        ["", ""],
        "container podman\n/proc/self/uid_map = 0 1000 1\nmemlock 64",
        ["memlock", "", "--ulimit host"],
    ),
    mistake(
        ["", ""],
        "/etc/security/limits.conf = * hard memlock 64",
        ["memlock", "at the next login", "replace 64 by unlimited"],
    ),
    mistake(
        ["", ""],
        "process \"server (7): 64 KiB\"",
        ["memlock", "running programs", "LimitMEMLOCK"],
    ),
    mistake(
        ["ib", ""],
        "state rdma0 INIT",
        ["port", "INIT", "enable --now"],
    ),
    mistake(["ib", ""], "state rdma0 ARMED", ["port", "ARMED", "opensm"]),
    mistake(
        ["ib", ""],
        "state rdma0 Polling",
        ["port", "Polling", "reseat"],
    ),
    mistake(
        ["ib", ""],
        "state rdma0 Disabled",
        ["port", "Disabled", "ibportstate"],
    ),
    mistake(
        ["roce", ""],
        "state rdma0 Disabled\ndown net0",
        ["port", "net0 is down", "ip link set net0 up"],
    ),
    mistake(
        ["roce", ""],
        "state rdma0 Polling\nno-carrier net0",
        ["port", "no carrier", "reseat the cable"],
    ),
    mistake(
        ["ib", ""],
        "/sys/class/infiniband/rdma0/ports/1/sm_lid = 0x0",
        ["sm", "SM LID 0", "start"],
    ),
    mistake(
        ["ib", ""],
        "sm rdma0 standby",
        ["sm", "no subnet manager is the master", "start"],
    ),
    mistake(
        ["ib", "mlx5_core"],
        "/sys/class/infiniband/rdma0/ports/1/pkeys/0 = 0x7fff",
        ["partitions", "limited member", "defmember=full"],
    ),
    mistake(
        ["roce", ""],
        "no-address net0",
        [
            "gid",
            "no address that a peer can connect to",
            "ip addr add",
        ],
    ),
    mistake(
        ["roce", ""],
        "address net0 10.44.0.1/24",
        ["gid", "no entry for it", "ip addr add 10.44.0.1/32"],
    ),
    mistake(
        ["roce", "none"],
        "/sys/class/net/net0/type = 65534",
        ["gid", "no hardware address", "type siw"],
    ),
    mistake(
        ["roce", "none"],
        "/sys/class/net/net0/address = 02:00:00:00:00:77",
        ["gid", "an earlier MAC", "ip link set net0 down"],
    ),
    mistake(
        ["roce", ""],
        "vlan net0.7 net0 1500 10.7.0.1/24",
        [
            "mtu",
            "the MTU of the VLAN net0.7",
            "ip link set net0.7 mtu 9000",
        ],
    ),
    mistake(
        ["roce", ""],
        "mtu net0 1500\nactive-mtu rdma0 3",
        ["mtu", "RDMA MTU is 1024", "mtu 4200"],
    ),
    mistake(
        ["ib", ""],
        "active-mtu rdma0 3",
        ["mtu", "RDMA MTU is 1024", "iblinkinfo"],
    ),
    mistake(
        ["iwarp", ""],
        "no-address net0",
        ["iwarp", "net0 has no address", "ip addr add"],
    ),
    mistake(
        ["iwarp", ""],
        "load rds_tcp",
        ["iwarp", "16385", "modprobe -r rds_tcp"],
    ),
    mistake(
        ["roce", ""],
        "netdev eno9 1500 10.0.0.9/24",
        ["addresses", "same subnet", "arp_ignore=1"],
    ),
    mistake(
        ["roce", ""],
        "netdev eno9 1500 10.0.0.1/24",
        ["addresses", "also has the address", "another"],
    ),
    mistake(
        ["roce", ""],
        "/sys/class/infiniband/rdma0/node_guid = 0000:0000:0000:0000",
        ["nodes", "the node GUID is zero", "GUID"],
    ),
    mistake(
        ["ib", "mlx5_core"],
        "pcie rdma0 8.0 8",
        ["link", "slot: 8.0", "use another slot"],
    ),
    mistake(
        ["roce", "mlx5_core"],
        "roce rdma1 net1 10.0.1.1/24\n/sys/class/infiniband/rdma1/node_guid = 0200:00ff:fe00:0000",
        ["nodes", "the GUIDs are also those of rdma1", "another GUID"],
    ),
    mistake(
        ["roce", "mlx5_core"],
        "roce rdma1 net1 - slot=0000:99:00.0\n/sys/class/net/bond0/type = 1\n/sys/class/net/bond0/flags = 0x1003\n/sys/class/net/bond0/bonding/slaves = net0 net1\naddress net1 10.0.1.1/24\ngid rdma1 3 ::ffff:a00:101 \"RoCE v2\" net1",
        [
            "link",
            "is over two adapters (rdma0 and rdma1)",
            "two ports of one adapter",
        ],
    ),
    mistake(
        ["ib", "mlx5_core"],
        "/sys/class/infiniband/rdma0/ports/1/gids/0 = fe80:0000:0000:0000:0000:0000:0000:0000",
        ["nodes", "the port GUID is zero", "port_guid"],
    ),
    mistake(
        ["ib", "mlx5_core"],
        "ib rdma1\nstate rdma1 INIT\n/etc/rdma/opensm.conf = guid 0x0",
        [
            "port",
            "opensm serves one port",
            "opensm -B -g 0x020000fffe000001",
        ],
    ),
    mistake(
        ["roce", "hns3"],
        "pcie rdma0 8.0 8",
        ["link", "slot: 8.0", "BIOS"],
    ),
    mistake(
        ["ib", ""],
        "counter rdma0 counters/symbol_error 5000",
        ["counters", "", ""],
    ),
    mistake(
        ["roce", "none"],
        "iptables \"*filter\\n:INPUT DROP [0:0]\\nCOMMIT\\n\"",
        ["firewall", "software RoCE v2", "--dport 4791"],
    ),
    mistake(
        ["roce", "mlx5_core"],
        "iptables \"*filter\\n:INPUT DROP [0:0]\\nCOMMIT\\n\"\n/proc/net/tcp = sl\\n 0: 00000000:4853 00000000:0000 0A 0:0 0:0 0 0 0 7 1",
        ["firewall", "perftest", "--dport 18515"],
    ),
    mistake(
        ["ib", ""],
        "ipoib ib0 rdma0 2044 10.9.0.1/24 mode=datagram\ndown ib0",
        ["ipoib", "the interface is down", "ip link set ib0 up"],
    ),
    mistake(
        ["ib", ""],
        "ipoib ib0 rdma0 2044 mode=datagram",
        ["ipoib", "no address", "ip addr add"],
    ),
    mistake(
        ["ib", ""],
        "ipoib ib0 rdma0 2044 10.9.0.1/24 mode=connected",
        ["ipoib", "up to 65520", "mtu 65520"],
    ),
    mistake(
        ["ib", ""],
        "ipoib ib0 rdma0 65520 10.9.0.1/24 mode=datagram",
        ["ipoib", "the maximum is", "ip link set ib0 mtu"],
    ),
    mistake(
        ["ib", ""],
        "ipoib ib0 rdma0 2044 10.9.0.1/24\n/etc/NetworkManager/system-connections/a.nmconnection = [connection]\\ntype=infiniband\\ninterface-name=ib0\\n[infiniband]\\ntransport-mode=connected",
        ["ipoib", "does not have", "transport-mode datagram"],
    ),
    mistake(
        ["ib", ""],
        "ipoib ib0 rdma0 2044 10.9.0.1/24 mode=datagram\n/etc/NetworkManager/system-connections/a.nmconnection = [connection]\\ntype=infiniband\\ninterface-name=ib0\\n[ipv4]\\naddress1=10.9.0.1/24,10.8.0.254",
        ["ipoib", "gateway 10.8.0.254 is outside", "ipv4.gateway"],
    ),
    mistake(
        ["ib", ""],
        "ipoib ib0 rdma0 2044 10.9.0.1/24 mode=datagram\n/etc/NetworkManager/system-connections/a.nmconnection = [connection]\\ntype=infiniband\\ninterface-name=ib1.8002\\n[infiniband]\\np-key=0x8002\\nparent=ib1",
        [
            "ipoib",
            "the parent ib1, which does not exist",
            "infiniband.parent ib0",
        ],
    ),
    mistake(
        ["ib", "mlx5_core"],
        "ipoib ib0 rdma0 2044 10.9.0.1/24 mode=datagram\nib rdma1\nipoib ib1 rdma1 2044 10.8.0.1/24 mode=datagram\n/etc/NetworkManager/system-connections/a.nmconnection = [connection]\\ntype=infiniband\\ninterface-name=ib0.8002\\n[infiniband]\\np-key=0x8002\\nparent=ib1",
        [
            "ipoib",
            "the parent ib1, which is not that of ib0.8002",
            "infiniband.parent ib0",
        ],
    ),
    mistake(
        ["", ""],
        "/etc/rdma/opensm.conf1 = guid 0x0",
        ["opensm", "opensm does not read this file", "rename it"],
    ),
    mistake(
        ["", ""],
        "/etc/exports = /srv/data *(rw,insecure)\n/srv/other/file = x",
        [
            "nfs",
            "exports /srv/data, which does not exist",
            "exportfs -ra",
        ],
    ),
    mistake(
        ["", ""],
        "load rpcrdma\n/etc/fstab = h:/a /a nfs rdma,port=2049 0 0",
        ["nfs", "with port=2049", "port=20049"],
    ),
    mistake(
        ["", ""],
        "/etc/fstab = h:/a /a nfs rdma 0 0",
        ["nfs", "xprtrdma is not loaded", "modprobe xprtrdma"],
    ),
    mistake(
        ["", ""],
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor = powersave",
        ["governor", "powersave", "cpupower"],
    ),
    mistake(
        ["roce", "mlx5_core"],
        "transceiver net0 80 \"Module temperature high alarm\"",
        ["link", "transceiver of net0", "airflow"],
    ),
    mistake(
        ["roce", "ice"],
        "change net0 5000 down\nchange net0 5100 up",
        ["link", "was down for 100 s", "cable"],
    ),
    mistake(
        ["roce", ""],
        "/sys/kernel/config/rdma_cm/rdma0/ports/1/default_roce_mode = IB/RoCE v1",
        ["roce", "rdma_cm uses IB/RoCE v1", "RoCE v2"],
    ),
];

impl Mistake {
    /// Returns `true` if the finding has the cause and the remedy.
    fn is(&self, finding: &Finding) -> bool {
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        finding.check == self.check
            && finding.text.contains(self.text)
            && remedy.contains(self.remedy)
    }
}

#[test]
fn each_planted_mistake_is_the_only_finding() {
    let (mut planted, mut wrong) = (0, String::new());
    for (word, driver) in DRIVERS {
        let is_for = |filter: &str, value: &str| filter.is_empty() || filter == value;
        let mistakes = MISTAKES.iter();
        for mistake in mistakes.filter(|m| is_for(m.word, word) && is_for(m.driver, driver)) {
            planted += 1;
            let mut all = lines(word, driver, 1);
            all.extend(mistake.lines.lines().map(str::to_owned));
            let found = findings(mistake.lines, &all);
            let is_right = !found.is_empty() && found.iter().all(|found| mistake.is(found));
            if !is_right {
                writeln!(wrong, "{word} {driver}: {}", mistake.lines).expect("a string");
                for finding in found {
                    writeln!(wrong, "    {finding}").expect("a string");
                }
            }
        }
    }
    println!(
        "{planted} mistakes planted, {} kinds\n{wrong}",
        MISTAKES.len()
    );
    assert_eq!(wrong, "");
}
