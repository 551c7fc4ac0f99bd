//! `ribinfo check firewall` against the packet filter of the kernel.
//!
//! Each test runs in network namespaces of its own, in which it is root. It installs rules with the
//! real commands, sends real packets between two namespaces, and compares what arrives with the
//! verdict.

use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use host::filter::{Direction, Family, NeighborMessage, Packet, Protocol, Ruleset, Verdict};
use host::probe::Probe;
use ipnet::IpNet;
use nix::sched::{CloneFlags, setns};
use test_support::process::{self, Process};
use test_support::temp_dir::TempDir;

const RIBINFO: &str = env!("CARGO_BIN_EXE_ribinfo");
/// Variable that is set in the namespaces.
const INSIDE: &str = "NETNS_INSIDE";
const ROCE: u16 = 4791;
const CONTROL: u16 = 19765;

/// Rules, and the line before them in the file.
struct Case {
    kind: &'static str,
    script: String,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let lines = include_str!("fixtures/firewall_rules.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line {
            "decided" | "undecided" | "neighbor" => cases.push(Case {
                kind: line,
                script: String::new(),
            }),
            _ => {
                let script = &mut cases.last_mut().expect("a kind").script;
                script.push_str(line);
                script.push('\n');
            }
        }
    }
    cases
}

/// Runs a test of this program in new namespaces, in which it is root.
fn run_inside(test: &str) {
    let exe = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--net", "--mount"])
        .arg(exe)
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env(INSIDE, "1");
    let output = process::output(&mut command);
    assert!(output.success(), "{output}");
    print!("{}", output.stdout);
}

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn shell(script: &str) -> String {
    process::run(Command::new("sh").args(["-ec", script]))
}

/// Connects this namespace to another one, named `peer`.
///
/// The neighbor entries are permanent: rules that drop neighbor discovery would otherwise decide,
/// at the moment when an entry expires, whether a packet to the peer is sent.
fn connect_namespaces() {
    shell(
        "mount -t tmpfs none /run; mount -t sysfs none /sys
        ip link set lo up; ip netns add peer
        ip link add rnet address 02:00:00:00:00:01 type veth \
            peer name pnet address 02:00:00:00:00:02 netns peer
        ip addr add 10.55.0.1/24 dev rnet; ip addr add fd77::1/64 dev rnet nodad; ip link set rnet up
        ip -n peer addr add 10.55.0.2/24 dev pnet; ip -n peer addr add fd77::2/64 dev pnet nodad
        ip -n peer link set pnet up
        for peer in 10.55.0.2 fd77::2; do
            ip neigh add $peer lladdr 02:00:00:00:00:02 dev rnet nud permanent
        done
        for host in 10.55.0.1 fd77::1; do
            ip -n peer neigh add $host lladdr 02:00:00:00:00:01 dev pnet nud permanent
        done",
    );
}

fn install(script: &str) {
    if script.starts_with("table") {
        let dir = TempDir::new();
        let path = dir.path().join("rules");
        std::fs::write(&path, script).expect("a file");
        process::run(Command::new("nft").arg("-f").arg(path));
    } else {
        shell(script);
    }
}

fn remove_rules() {
    shell(
        "nft flush ruleset; iptables-legacy -P INPUT ACCEPT; iptables-legacy -F
        ipset destroy",
    );
}

/// Runs a function in the namespace `peer`.
fn in_peer<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(move || {
        let namespace = File::open("/run/netns/peer").expect("the namespace");
        setns(namespace, CloneFlags::CLONE_NEWNET).expect("entering the namespace");
        run()
    })
    .join()
    .expect("the thread in the namespace")
}

/// Returns whether a datagram arrives. Packets that are dropped are sent three times.
fn datagram_arrives(to: SocketAddr, is_input: bool) -> bool {
    let receiver = move || {
        let socket = UdpSocket::bind(to).expect("a socket");
        let timeout = Some(Duration::from_millis(150));
        socket.set_read_timeout(timeout).expect("a timeout");
        socket
    };
    let send = move || {
        let any: IpAddr = if to.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let socket = UdpSocket::bind((any, 0)).expect("a socket");
        // The packet filter of this host can make this fail.
        let _ = socket.send_to(b"x", to);
    };
    let socket = if is_input {
        receiver()
    } else {
        in_peer(receiver)
    };
    (0..3).any(|_| {
        if is_input {
            in_peer(send);
        } else {
            send();
        }
        socket.recv(&mut [0; 8]).is_ok()
    })
}

/// Returns whether a connection can be made.
fn connects(to: SocketAddr, is_input: bool) -> bool {
    let listen = move || TcpListener::bind(to).expect("a listener");
    let connect = move || TcpStream::connect_timeout(&to, Duration::from_millis(400)).is_ok();
    let _listener = if is_input { listen() } else { in_peer(listen) };
    if is_input {
        in_peer(connect)
    } else {
        connect()
    }
}

fn packet(direction: Direction, protocol: Protocol, is_ipv6: bool, is_reply: bool) -> Packet {
    let (family, local, peer): (_, IpAddr, IpNet) = if is_ipv6 {
        (
            Family::V6,
            "fd77::1".parse().expect("an address"),
            "fd77::/64".parse().expect("a network"),
        )
    } else {
        (
            Family::V4,
            "10.55.0.1".parse().expect("an address"),
            "10.55.0.0/24".parse().expect("a network"),
        )
    };
    let port = if protocol == Protocol::Udp {
        ROCE
    } else {
        CONTROL
    };
    Packet {
        direction,
        family,
        protocol,
        netdev: "rnet".into(),
        local: Some(local),
        peer: Some(peer),
        source_port: is_reply.then_some(port),
        destination_port: (!is_reply).then_some(port),
        is_reply,
    }
}

#[test]
#[ignore = "needs nft, iptables, ipset and network namespaces: run by ci/test tools"]
fn verdicts_are_those_of_the_kernel() {
    if !is_inside() {
        return run_inside("verdicts_are_those_of_the_kernel");
    }
    connect_namespaces();
    let mut wrong = Vec::new();
    let mut compared = 0;
    let mut cases = cases();
    cases.retain(|case| case.kind != "neighbor");
    for Case { kind, script } in &cases {
        install(script);
        let firewall = Probe::of_host("/dev".into()).firewall;
        let ruleset = Ruleset::parse(&firewall).expect("rules");
        let mut has_unknown = false;
        for is_ipv6 in [false, true] {
            for is_input in [true, false] {
                let (there, back) = if is_input {
                    (Direction::Input, Direction::Output)
                } else {
                    (Direction::Output, Direction::Input)
                };
                let host = match (is_ipv6, is_input) {
                    (false, true) => "10.55.0.1",
                    (false, false) => "10.55.0.2",
                    (true, true) => "[fd77::1]",
                    (true, false) => "[fd77::2]",
                };
                let to = |port| format!("{host}:{port}").parse().expect("an address");
                for protocol in [Protocol::Udp, Protocol::Tcp] {
                    let mut verdicts =
                        vec![ruleset.verdict(&packet(there, protocol, is_ipv6, false))];
                    if protocol == Protocol::Tcp {
                        verdicts.push(ruleset.verdict(&packet(back, protocol, is_ipv6, true)));
                    }
                    if verdicts
                        .iter()
                        .any(|verdict| matches!(verdict, Verdict::Unknown { .. }))
                    {
                        has_unknown = true;
                        continue;
                    }
                    let expected = verdicts.iter().all(|verdict| *verdict == Verdict::Accept);
                    let arrives = if protocol == Protocol::Udp {
                        datagram_arrives(to(ROCE), is_input)
                    } else {
                        connects(to(CONTROL), is_input)
                    };
                    compared += 1;
                    if arrives != expected {
                        wrong.push(format!(
                            "{script}\n  {protocol:?} to {host}: arrives: {arrives}, verdicts: {verdicts:?}\n"
                        ));
                    }
                }
            }
        }
        if has_unknown == (*kind == "decided") {
            wrong.push(format!(
                "{script}\n  has an unknown verdict: {has_unknown}\n"
            ));
        }
        remove_rules();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} rulesets, {compared} kinds of packets", cases.len());
    assert!(compared > 250, "{compared}");
}

/// Removes the neighbor entries of both namespaces.
fn forget_neighbors() {
    shell(
        "ip neigh del fd77::2 dev rnet 2>/dev/null || true
        ip -n peer neigh del fd77::1 dev pnet 2>/dev/null || true",
    );
}

/// Returns whether the peer finds the hardware address of this host, or this host that of the peer.
/// The kernel needs a second for each of its three attempts, so a resolution that is expected to
/// fail is only watched for a while.
fn resolves(is_input: bool, is_expected: bool) -> bool {
    let send = |from: &'static str, to: &'static str| {
        move || {
            let socket = UdpSocket::bind((from, 0)).expect("a socket");
            // The packet filter of this host can make this fail.
            let _ = socket.send_to(b"x", (to, ROCE));
        }
    };
    forget_neighbors();
    let entry = if is_input {
        in_peer(send("fd77::2", "fd77::1"));
        "ip -n peer neigh show fd77::1 dev pnet"
    } else {
        send("fd77::1", "fd77::2")();
        "ip neigh show fd77::2 dev rnet"
    };
    let limit = Duration::from_millis(if is_expected { 10_000 } else { 300 });
    process::wait_until(limit, || shell(entry).contains("REACHABLE"))
}

#[test]
#[ignore = "needs nft, ip6tables and network namespaces: run by ci/test tools"]
fn neighbor_discovery_needs_what_the_verdicts_say() {
    use NeighborMessage::{Advertisement, Solicitation};

    if !is_inside() {
        return run_inside("neighbor_discovery_needs_what_the_verdicts_say");
    }
    connect_namespaces();
    let mut wrong = Vec::new();
    let mut compared = [0; 2];
    for Case { script, .. } in cases() {
        install(&script);
        let firewall = Probe::of_host("/dev".into()).firewall;
        let ruleset = Ruleset::parse(&firewall).expect("rules");
        let verdict = |direction, protocol, is_reply| {
            ruleset.verdict(&packet(direction, protocol, true, is_reply))
        };
        for is_input in [true, false] {
            let (there, back) = if is_input {
                (Direction::Input, Direction::Output)
            } else {
                (Direction::Output, Direction::Input)
            };
            let verdicts = [
                verdict(there, Protocol::Icmpv6(Solicitation), false),
                verdict(back, Protocol::Icmpv6(Advertisement), true),
            ];
            let is_unknown = |verdict: &Verdict| matches!(verdict, Verdict::Unknown { .. });
            // Without a packet to the peer, this host resolves nothing.
            let sends = is_input || verdict(there, Protocol::Udp, false) == Verdict::Accept;
            if !sends || verdicts.iter().any(is_unknown) {
                continue;
            }
            let expected = verdicts.iter().all(|verdict| *verdict == Verdict::Accept);
            compared[usize::from(expected)] += 1;
            if resolves(is_input, expected) != expected {
                wrong.push(format!(
                    "{script}\n  the peer resolves this host: {is_input}, verdicts: {verdicts:?}\n"
                ));
            }
        }
        remove_rules();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} blocked and {} accepted", compared[0], compared[1]);
    assert!(compared[0] > 15 && compared[1] > 40, "{compared:?}");
}

/// The configuration of a message bus on which every user can provide every service.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>
<auth>EXTERNAL</auth><policy context="default"><allow user="*"/><allow own="*"/>
<allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>"#;

/// Returns the output of `ribinfo check firewall`.
fn check_firewall() -> String {
    process::output(Command::new(RIBINFO).args(["check", "-v", "firewall"])).stdout
}

#[test]
#[ignore = "needs firewalld and network namespaces: run by ci/test tools"]
fn firewalld_zone_that_rejects_is_found_and_opened() {
    if !is_inside() {
        return run_inside("firewalld_zone_that_rejects_is_found_and_opened");
    }
    connect_namespaces();
    // The changes that `firewall-cmd --permanent` makes stay in this namespace.
    shell("mkdir -p /run/dbus /run/firewalld; mount -t tmpfs none /etc/firewalld");
    std::fs::write("/run/bus.conf", BUS).expect("a file");
    shell("dbus-daemon --config-file=/run/bus.conf --fork --nopidfile");
    let _firewalld = Process::spawn(Command::new("firewalld").args(["--nofork", "--nopid"]));
    let is_running = || process::output(Command::new("firewall-cmd").arg("--state")).success();
    assert!(process::wait_until(Duration::from_secs(60), is_running));

    let control: SocketAddr = format!("10.55.0.1:{CONTROL}").parse().expect("an address");
    assert!(
        !connects(control, true),
        "the default zone rejects the packet"
    );
    let text = check_firewall();
    let line = text
        .lines()
        .find(|line| line.contains("firewall tcp/19765:"))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.starts_with("ok") && line.contains("on rnet are blocked by: reject with icmpx"),
        "{line}"
    );
    // With a server on the port, the same rule is a fault.
    let listener = TcpListener::bind(("0.0.0.0", CONTROL)).expect("a listener");
    assert!(check_firewall().contains("fault    firewall tcp/19765:"));
    drop(listener);

    let (_, remedy) = line.split_once(" => ").expect("a remedy");
    shell(remedy);
    assert!(connects(control, true), "{remedy}");
    let text = check_firewall();
    let line_of = |text: &str, port: &str| {
        let mut lines = text.lines();
        lines.find(|line| line.contains(port)).map(str::to_owned)
    };
    let is_blocked = |text: &str, port: &str| {
        line_of(text, port).is_some_and(|line| line.contains("are blocked by"))
    };
    assert!(!is_blocked(&text, "tcp/19765:"), "{text}");
    assert!(is_blocked(&text, "tcp/18515:"), "{text}");

    // The zone `trusted` accepts everything.
    shell("firewall-cmd --zone=trusted --change-interface=rnet");
    let text = check_firewall();
    assert!(!is_blocked(&text, "tcp/18515:"), "{text}");
}
