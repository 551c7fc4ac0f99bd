//! A device that is removed while it is in use, an address that moves to another interface: errors
//! of every object concerned.
//!
//! The kernel tells its clients in the order opposite to that in which they were loaded, and
//! uverbs, of a driver that cannot be torn from its users as rxe and siw, waits until the device is
//! closed. Where uverbs comes first, nobody else is told before: then the removal waits, which is
//! checked.

mod lab;

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{Device, ErrorKind, device::TransportType};
use lab::{PATIENCE, Place, devices};
use rdmacm::datagram::ServiceListener;
use rdmacm::datagram::multicast::{JoinAs, Membership};
use rdmacm::{CmEventType, ListenOptions, Listener, Resolver};

const DOOMED: &str = "RDMACM_TEST_DOOMED";

/// Not a test by itself: the process that uses a device to which something happens. librdmacm keeps
/// a device open as long as its process lives, and a removal waits for that.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn user_of_a_doomed_device() {
    let Ok(doomed) = std::env::var(DOOMED) else {
        return println!("device: none (a process of other tests)");
    };
    let [device, ip, fate] = doomed.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{doomed}")
    };
    let context = Device::by_name(device)
        .expect("device")
        .open()
        .expect("open");
    let place = Place {
        context,
        ip: ip.parse().expect("an address"),
    };
    let mut users = Users::of(&place);
    println!("in use");
    let of_listener = users.listener.accept(Some(if fate == "removed" {
        Duration::from_secs(5)
    } else {
        PATIENCE
    }));
    let Err(of_listener) = of_listener.map(|request| assert!(request.is_none(), "nobody asks"))
    else {
        // The kernel waits for the user of the verbs before it tells the connection manager.
        println!("not told");
        return;
    };
    for (what, error) in std::iter::once(("listener", of_listener)).chain(users.told()) {
        // What cannot go on at all, and what may go on over the old way.
        let is_port_only = fate == "moved" && !matches!(what, "listener" | "service");
        let expected = if is_port_only {
            ErrorKind::PortDown
        } else {
            ErrorKind::NotFound
        };
        assert_eq!(error.kind(), expected, "{what}: {error}");
        assert!(error.to_string().contains(fate), "{what}: {error}");
    }
    let over = [&users.active, &users.passive].map(|end| end.connection.is_disconnected());
    assert_eq!(over, [fate == "removed"; 2]);
    println!("all told");
    std::io::stdout().flush().expect("flush");
    // The kernel waits until the identifiers are gone.
    drop(users);
}

/// What a process does with a device, until something happens to it that all are told.
struct Users {
    listener: Listener,
    service: Option<ServiceListener>,
    active: lab::Wired,
    passive: lab::Wired,
    member: Option<Membership>,
}

impl Users {
    fn of(place: &Place) -> Self {
        let is_iwarp = place.is_iwarp();
        let listener = place.listen();
        let service = (!is_iwarp).then(|| {
            ListenOptions::new()
                .bind_datagram(SocketAddr::new(place.ip, 0))
                .expect("listen")
        });
        let (active, passive) = place.pair();
        let member = (!is_iwarp).then(|| {
            let group =
                Resolver::new(SocketAddr::new(IpAddr::from([239, 5, 5, 5]), 0)).source(place.ip);
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

    /// What the others than the listener are told.
    fn told(&mut self) -> Vec<(&'static str, ibverbs::Error)> {
        let limit = Some(PATIENCE);
        let mut all = vec![
            ("active", fault(&mut self.active)),
            ("passive", fault(&mut self.passive)),
        ];
        all.extend(
            self.service
                .as_ref()
                .map(|service| ("service", service.accept(limit).map(drop))),
        );
        all.extend(
            self.member
                .as_mut()
                .map(|member| ("member", member.wait_event(limit).map(drop))),
        );
        all.into_iter()
            .map(|(what, outcome)| (what, outcome.expect_err(what)))
            .collect()
    }
}

fn command(line: &str) -> bool {
    let mut words = line.split_whitespace();
    Command::new(words.next().expect("a program"))
        .args(words)
        .status()
        .expect("a command")
        .success()
}

/// What a connection fails with. The other end, told before, may have disconnected first.
fn fault(end: &mut lab::Wired) -> ibverbs::Result<()> {
    while let Some(event) = end.connection.wait_event(Some(PATIENCE))? {
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

/// Lines of `ip -batch`, in one process: under emulation each takes its time.
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

/// The device's own kind, with a number of its own.
fn another(context: &ibverbs::Context, number: u8) -> (&'static str, String) {
    let kind = if context.device().transport() == TransportType::IWARP {
        "siw"
    } else {
        "rxe"
    };
    (kind, format!("{kind}{number}"))
}

/// Starts the process that uses a device, and gives what it says once it does.
fn user(device: &str, ip: &str, fate: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut user = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--ignored",
            "--exact",
            "user_of_a_doomed_device",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DOOMED, format!("{device} {ip} {fate}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let mut lines = BufReader::new(user.stdout.take().expect("piped")).lines();
    assert!(
        lines
            .by_ref()
            .any(|line| line.expect("text").ends_with("in use"))
    );
    (user, lines)
}

fn await_end(user: &mut Child) {
    let begun = Instant::now();
    let status = loop {
        match user.try_wait().expect("a child") {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => panic!("its process does not end"),
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success());
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_object_is_told_that_its_device_is_removed() {
    for (at, context) in devices().iter().enumerate() {
        let (kind, device) = another(context, 9);
        let (netdev, ip) = (format!("doom{at}"), format!("10.97.{at}.1"));
        println!(
            "device: {} (a second one of its kind, {device})",
            context.device_name()
        );
        let made = [
            format!("link add {netdev} type veth peer name {netdev}b"),
            format!("address add {ip}/24 dev {netdev}"),
            format!("link set {netdev} up"),
            format!("link set {netdev}b up"),
        ];
        assert!(batch(&made), "veth");
        assert!(command(&format!(
            "rdma link add {device} type {kind} netdev {netdev}"
        )));
        let (mut user, mut lines) = user(&device, &ip, "removed");
        // The command blocks until the device is free.
        let removal = thread::spawn(move || command(&format!("rdma link delete {device}")));
        let said = lines
            .by_ref()
            .map(|line| line.expect("text"))
            .find(|line| line.ends_with("told"))
            .expect("one or the other");
        println!("{}: {said}", context.device_name());
        if said == "not told" {
            assert!(!removal.is_finished(), "it waits for its user");
        }
        await_end(&mut user);
        assert!(removal.join().expect("thread"), "the device is removed");
        assert!(batch(&[format!("link delete {netdev}")]));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_object_is_told_that_its_address_moved_to_another_interface() {
    for (at, context) in devices().iter().enumerate() {
        let (kind, device) = another(context, 8);
        let (bond, ip) = (format!("bond{at}x"), format!("10.97.{}.1", 10 + at));
        println!(
            "device: {} (a second one of its kind, {device}, on bonded interfaces)",
            context.device_name()
        );
        // In a failover the bond takes the hardware address of the interface that takes over.
        if !batch(&[format!(
            "link add {bond} type bond mode active-backup fail_over_mac active"
        )]) {
            println!("{device}: left alone, as this kernel bonds no interfaces (module bonding)");
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
        assert!(command(&format!(
            "rdma link add {device} type {kind} netdev {bond}"
        )));
        let (mut user, mut lines) = user(&device, &ip, "moved");
        assert!(
            batch(&[format!("link set {bond} type bond active_slave {bond}m1")]),
            "failover"
        );
        assert!(
            lines.any(|line| line.expect("text").ends_with("all told")),
            "{device}: not told"
        );
        await_end(&mut user);
        assert!(command(&format!("rdma link delete {device}")));
        assert!(batch(
            &["", "m0", "m1"].map(|member| format!("link delete {bond}{member}"))
        ));
    }
}
