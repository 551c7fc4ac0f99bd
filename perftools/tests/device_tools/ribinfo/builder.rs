//! The rules of the tree builder (`host_builder.rs`), compared with what the kernel shows.

use std::process::Command;
use std::time::Duration;

use host::HostFacts;
use host::root::Root;
use test_support::lab::report_device;
use test_support::process::wait_until;

#[allow(dead_code, reason = "the trees use all of it")]
#[path = "../../programs/ribinfo_trees/host_builder.rs"]
mod host_builder;
#[allow(dead_code, reason = "the trees use all of it")]
#[path = "../../programs/ribinfo_trees/host_modes.rs"]
mod host_modes;

/// Hosts: the commands that make them, and the lines of the builder. The first device of the
/// builder has the MAC 02:00:00:00:00:00.
const HOSTS: &[(&str, &str)] = &[
    (
        "rdma link add rdma9 type rxe netdev dm9",
        "roce rdma9 dm9 10.66.0.1/24 driver=none",
    ),
    (
        "rdma link add rdma9 type siw netdev dm9",
        "iwarp rdma9 dm9 10.66.0.1/24 driver=none",
    ),
    (
        "rdma link add rdma9 type rxe netdev dm9\nip link add upper9 type bridge\nip link set dm9 master upper9\nip addr add 10.67.0.1/24 dev upper9\nip link set upper9 up",
        "roce rdma9 dm9 10.66.0.1/24 driver=none\nbridge upper9 dm9 10.67.0.1/24",
    ),
    (
        "rdma link add rdma9 type rxe netdev dm9\nip link add link dm9 name upper9 type vlan id 7\nip addr add 10.67.0.1/24 dev upper9\nip link set upper9 up",
        "roce rdma9 dm9 10.66.0.1/24 driver=none\nvlan upper9 dm9 9000 10.67.0.1/24",
    ),
];

/// Runs a command of iproute2. Returns `false` if it fails.
fn run(line: &str) -> bool {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("a command"));
    let output = command.args(words).output().expect("a command");
    output.status.success()
}

/// The interfaces of a host, which are removed when it is dropped.
struct Interfaces;

impl Drop for Interfaces {
    fn drop(&mut self) {
        for name in ["upper9", "dm9"] {
            run(&format!("ip link delete {name}"));
        }
    }
}

/// Returns the facts that the rules of the builder determine, one in each line.
fn facts(root: &Root) -> Vec<String> {
    let facts = HostFacts::read(root, None);
    let mut lines = Vec::new();
    for device in facts.devices.iter().filter(|device| device.name == "rdma9") {
        lines.push(format!(
            "{:?} guid {:?} driver {:?} slot {:?} virtual {}",
            device.node_type, device.node_guid, device.driver, device.slot, device.is_virtual
        ));
        for port in &device.ports {
            lines.push(format!(
                "{} {} {} {:?} umad {} lid {} keys {:?}",
                port.link_layer,
                port.state,
                port.phys_state,
                port.netdev,
                port.umad.is_some(),
                port.lid,
                port.pkeys
            ));
            let gid =
                |row: &host::device::GidRow| format!("{} {:?} {:?}", row.gid, row.kind, row.netdev);
            let mut gids: Vec<String> = port.gids.iter().map(gid).collect();
            gids.sort();
            lines.extend(gids);
        }
    }
    let named = |name: &str| ["dm9", "upper9"].contains(&name);
    for netdev in facts.netdevs.iter().filter(|netdev| named(&netdev.name)) {
        lines.push(format!(
            "{} type {} mtu {:?} up {} carrier {:?} address {} master {:?} lower {:?}",
            netdev.name,
            netdev.kind,
            netdev.mtu,
            netdev.up,
            netdev.carrier,
            netdev.address,
            netdev.master,
            netdev.lower
        ));
    }
    lines
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn tree_builder_shows_what_the_kernel_shows() {
    let mut compared = 0;
    for (commands, lines) in HOSTS {
        let _interfaces = Interfaces;
        let dummy = "ip link add dm9 address 02:00:00:00:00:00 mtu 9000 type dummy\nip addr add 10.66.0.1/24 dev dm9\nip link set dm9 up";
        let commands = dummy.lines().chain(commands.lines());
        // The kernel can lack a driver, for example that of VLANs.
        if let Some(failed) = commands
            .map(|line| (line, run(line)))
            .find(|(_, done)| !done)
        {
            println!("not possible here: {}", failed.0);
            continue;
        }
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        let host = host_builder::Host::new("a host", &lines);
        let expected = facts(&Root::at(host.path()).expect("a tree"));
        // Link-local addresses appear after the detection of duplicates.
        wait_until(Duration::from_secs(10), || facts(&Root::host()) == expected);
        assert_eq!(facts(&Root::host()), expected, "{lines:?}");
        report_device("rdma9");
        compared += 1;
    }
    println!("{compared} hosts compared");
    assert!(compared >= 1);
}
