//! Removal of a device in use, and migration of an address to another interface. Every affected
//! object reports an error.
//!
//! The kernel notifies its RDMA clients in the reverse order of their registration. For drivers
//! without disassociation support, such as rxe and siw, uverbs waits until the device is closed. If
//! uverbs is notified before the connection manager, the removal waits and no object reports an
//! error, which the test also checks.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{Device, ErrorKind, device::TransportType};
use rdmacm::datagram::ServiceListener;
use rdmacm::datagram::multicast::{JoinAs, Membership};
use rdmacm::{CmEventType, ListenOptions, Listener, Resolver};
use test_support::process;

use crate::lab::{self, Endpoint, TIMEOUT, devices};

const TASK: &str = "RDMACM_TEST_REMOVAL";

/// Not a test: the process that uses the device. librdmacm keeps a device open as long as its
/// process lives, and a removal waits for that.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn device_user_process() {
    let Ok(task) = std::env::var(TASK) else {
        return println!("device: none (helper process of other tests)");
    };
    let [device, ip, change] = task.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{task}")
    };
    let context = Device::by_name(device)
        .expect("device")
        .open()
        .expect("open");
    let endpoint = Endpoint {
        context,
        ip: ip.parse().expect("an address"),
    };
    let mut users = Users::new(&endpoint);
    println!("in use");
    let listener_result = users.listener.next_request(Some(if change == "removed" {
        Duration::from_secs(5)
    } else {
        TIMEOUT
    }));
    let Err(listener_result) =
        listener_result.map(|request| assert!(request.is_none(), "an unexpected request"))
    else {
        // The kernel waits for the user of the verbs before it notifies the connection manager.
        println!("not notified");
        return;
    };
    for (object, error) in std::iter::once(("listener", listener_result)).chain(users.errors()) {
        // Connections and memberships may continue on the old path. Listeners cannot.
        let is_port_only = change == "moved" && !matches!(object, "listener" | "service");
        let expected = if is_port_only {
            ErrorKind::PortDown
        } else {
            ErrorKind::NotFound
        };
        assert_eq!(error.kind(), expected, "{object}: {error}");
        assert!(error.to_string().contains(change), "{object}: {error}");
    }
    let disconnected =
        [&users.active, &users.passive].map(|peer| peer.connection.is_disconnected());
    assert_eq!(disconnected, [change == "removed"; 2]);
    println!("all notified");
    std::io::stdout().flush().expect("flush");
    // The kernel waits until the identifiers are destroyed.
    drop(users);
}

/// Objects of a process that use a device.
struct Users {
    listener: Listener,
    service: Option<ServiceListener>,
    active: lab::Peer,
    passive: lab::Peer,
    member: Option<Membership>,
}

impl Users {
    fn new(endpoint: &Endpoint) -> Self {
        let is_iwarp = endpoint.is_iwarp();
        let listener = endpoint.listen();
        let service = (!is_iwarp).then(|| {
            ListenOptions::new()
                .bind_datagram(SocketAddr::new(endpoint.ip, 0))
                .expect("listen")
        });
        let (active, passive) = endpoint.pair();
        let member = (!is_iwarp).then(|| {
            let group =
                Resolver::new(SocketAddr::new(IpAddr::from([239, 5, 5, 5]), 0)).source(endpoint.ip);
            group.join(JoinAs::FULL_MEMBER).expect("join")
        });
        Self {
            listener,
            service,
            active,
            passive,
            member,
        }
    }

    /// Returns the errors of all objects other than the listener.
    fn errors(&mut self) -> Vec<(&'static str, ibverbs::Error)> {
        let limit = Some(TIMEOUT);
        let mut results = vec![
            ("active", connection_error(&mut self.active)),
            ("passive", connection_error(&mut self.passive)),
        ];
        results.extend(
            self.service
                .as_ref()
                .map(|service| ("service", service.next_request(limit).map(drop))),
        );
        results.extend(
            self.member
                .as_mut()
                .map(|member| ("member", member.wait_event(limit).map(drop))),
        );
        results
            .into_iter()
            .map(|(object, result)| (object, result.expect_err(object)))
            .collect()
    }
}

fn run(line: &str) -> bool {
    let mut words = line.split_whitespace();
    Command::new(words.next().expect("a program"))
        .args(words)
        .status()
        .expect("a command")
        .success()
}

/// Returns the error of a connection. The peer may have received its error earlier and
/// disconnected.
fn connection_error(resources: &mut lab::Peer) -> ibverbs::Result<()> {
    while let Some(event) = resources.connection.wait_event(Some(TIMEOUT))? {
        assert!(
            matches!(
                event.event_type,
                CmEventType::DISCONNECTED | CmEventType::TIMEWAIT_EXIT
            ),
            "{event:?}"
        );
    }
    Ok(())
}

/// Runs the lines with `ip -batch` in one process, because starting processes is slow under
/// emulation.
fn batch(lines: &[String]) -> bool {
    let mut command = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("ip of iproute2");
    command
        .stdin
        .take()
        .expect("piped")
        .write_all(lines.join("\n").as_bytes())
        .expect("read");
    command.wait().expect("a child").success()
}

/// Returns the kind of the device and a name for another device of this kind.
fn second_device(context: &ibverbs::Context, number: u8) -> (&'static str, String) {
    let kind = if context.device().transport() == TransportType::IWARP {
        "siw"
    } else {
        "rxe"
    };
    (kind, format!("{kind}{number}"))
}

/// Starts the process that uses a device, and returns its output after the device is in use.
fn user(device: &str, ip: &str, change: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut user = process::ignored_test("removal::device_user_process")
        .env(TASK, format!("{device} {ip} {change}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the device user process");
    let mut lines = BufReader::new(user.stdout.take().expect("piped")).lines();
    assert!(
        lines
            .by_ref()
            .any(|line| line.expect("text").ends_with("in use"))
    );
    (user, lines)
}

fn wait_exit(user: &mut Child) {
    let started = Instant::now();
    let status = loop {
        match user.try_wait().expect("a child") {
            Some(status) => break status,
            None if started.elapsed() > TIMEOUT => panic!("the process does not exit"),
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success());
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn device_removal_is_reported_by_every_object() {
    for (index, context) in devices().iter().enumerate() {
        let (kind, device) = second_device(context, 9);
        let (netdev, ip) = (format!("doom{index}"), format!("10.97.{index}.1"));
        println!(
            "device: {} (a second one of its kind, {device})",
            context.device_name()
        );
        let commands = [
            format!("link add {netdev} type veth peer name {netdev}b"),
            format!("address add {ip}/24 dev {netdev}"),
            format!("link set {netdev} up"),
            format!("link set {netdev}b up"),
        ];
        assert!(batch(&commands), "veth");
        assert!(run(&format!(
            "rdma link add {device} type {kind} netdev {netdev}"
        )));
        let (mut user, mut lines) = user(&device, &ip, "removed");
        // The command blocks until the device is no longer used.
        let removal = thread::spawn(move || run(&format!("rdma link delete {device}")));
        let outcome = lines
            .by_ref()
            .map(|line| line.expect("text"))
            .find(|line| line.ends_with("notified"))
            .expect("an outcome");
        println!("{}: {outcome}", context.device_name());
        if outcome == "not notified" {
            assert!(!removal.is_finished(), "the removal waits for the user");
        }
        wait_exit(&mut user);
        assert!(removal.join().expect("thread"), "the device is removed");
        assert!(batch(&[format!("link delete {netdev}")]));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn address_migration_is_reported_by_every_object() {
    for (index, context) in devices().iter().enumerate() {
        let (kind, device) = second_device(context, 8);
        let (bond, ip) = (format!("bond{index}x"), format!("10.97.{}.1", 10 + index));
        println!(
            "device: {} (a second one of its kind, {device}, on bonded interfaces)",
            context.device_name()
        );
        // On failover the bond takes the hardware address of the new active interface.
        if !batch(&[format!(
            "link add {bond} type bond mode active-backup fail_over_mac active"
        )]) {
            println!("{device}: skipped, because the kernel module bonding is missing");
            return;
        }
        let member = |name: &str| {
            let name = format!("{bond}{name}");
            [
                format!("link add {name} type veth peer name {name}b"),
                format!("link set {name}b up"),
                format!("link set {name} master {bond}"),
            ]
        };
        let up = [
            format!("link set {bond} up"),
            format!("address add {ip}/24 dev {bond}"),
            format!("link set {bond} type bond active_slave {bond}m0"),
        ];
        assert!(
            batch(&[member("m0"), member("m1"), up].concat()),
            "bonded interfaces"
        );
        assert!(run(&format!(
            "rdma link add {device} type {kind} netdev {bond}"
        )));
        let (mut user, mut lines) = user(&device, &ip, "moved");
        assert!(
            batch(&[format!("link set {bond} type bond active_slave {bond}m1")]),
            "failover"
        );
        assert!(
            lines.any(|line| line.expect("text").ends_with("all notified")),
            "{device}: not notified"
        );
        wait_exit(&mut user);
        assert!(run(&format!("rdma link delete {device}")));
        assert!(batch(
            &["", "m0", "m1"].map(|member| format!("link delete {bond}{member}"))
        ));
    }
}
