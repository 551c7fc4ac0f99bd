//! A device that is removed while it is in use: an error of every object concerned.
//!
//! The kernel tells its clients in the order opposite to that in which they were loaded, and uverbs, of a driver that cannot be torn from its users as
//! rxe and siw, waits until the device is closed. Where uverbs comes first, nobody else is told before: then the removal waits, which is checked.

mod lab;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{Device, ErrorKind, TransportType};
use lab::{PATIENCE, Place, devices};
use rdmacm::{JoinAs, ListenOptions, Resolver};

const DOOMED: &str = "RDMACM_TEST_DOOMED";

/// Not a test by itself: the process that uses the device which is removed. librdmacm keeps a device open as long as its process lives, and
/// the removal waits for that.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn user_of_a_doomed_device() {
    let Ok(doomed) = std::env::var(DOOMED) else { return };
    let (device, ip) = doomed.split_once(' ').expect("a device and an address");
    let context = Device::by_name(device).expect("device").open().expect("open");
    let is_iwarp = context.device().transport() == TransportType::IWARP;
    let place = Place { context, ip: ip.parse().expect("an address") };
    let listener = place.listen();
    let service =
        (!is_iwarp).then(|| ListenOptions::new().bind_datagram(SocketAddr::new(place.ip, 0)).expect("listen"));
    let (mut active, mut passive) = place.pair();
    let mut member = (!is_iwarp).then(|| {
        let group = Resolver::new(SocketAddr::new(IpAddr::from([239, 5, 5, 5]), 0)).source(place.ip);
        group.join(JoinAs::FULL_MEMBER).expect("join")
    });
    println!("in use");
    let first = listener.accept(Some(Duration::from_secs(5))).map(|request| assert!(request.is_none(), "nobody asks"));
    if first.is_ok() {
        // The kernel waits for the user of the verbs before it tells the connection manager.
        println!("not told");
        return;
    }
    let mut errors = vec![
        ("listener", first),
        ("active", active.connection.wait_event(Some(PATIENCE)).map(drop)),
        ("passive", passive.connection.wait_event(Some(PATIENCE)).map(drop)),
    ];
    errors.extend(service.as_ref().map(|service| ("service", service.accept(Some(PATIENCE)).map(drop))));
    errors.extend(member.as_mut().map(|member| ("member", member.wait_event(Some(PATIENCE)).map(drop))));
    for (what, outcome) in errors {
        let error = outcome.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error}");
        assert!(error.to_string().contains("removed"), "{what}: {error}");
    }
    assert!(active.connection.is_over() && passive.connection.is_over());
    println!("all told");
    std::io::stdout().flush().expect("flush");
    // The kernel waits until the identifiers are gone.
    drop((listener, service, active, passive, member));
}

fn command(line: &str) -> bool {
    let mut words = line.split_whitespace();
    Command::new(words.next().expect("a program")).args(words).status().expect("a command").success()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_object_is_told_that_its_device_is_removed() {
    for (at, context) in devices().iter().enumerate() {
        let kind = if context.device().transport() == TransportType::IWARP { "siw" } else { "rxe" };
        let (device, netdev, ip) = (format!("{kind}9"), format!("doom{at}"), format!("10.97.{at}.1"));
        println!("device: {} (a second one of its kind, {device})", context.device_name());
        assert!(command(&format!("ip link add {netdev} type veth peer name {netdev}b")), "veth");
        assert!(command(&format!("ip address add {ip}/24 dev {netdev}")));
        assert!(command(&format!("ip link set {netdev} up")) && command(&format!("ip link set {netdev}b up")));
        assert!(command(&format!("rdma link add {device} type {kind} netdev {netdev}")));
        let mut user = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "user_of_a_doomed_device", "--nocapture", "--test-threads=1"])
            .env(DOOMED, format!("{device} {ip}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let mut lines = BufReader::new(user.stdout.take().expect("piped")).lines();
        assert!(lines.by_ref().any(|line| line.expect("text").ends_with("in use")));
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
        let begun = Instant::now();
        let status = loop {
            match user.try_wait().expect("a child") {
                Some(status) => break status,
                None if begun.elapsed() > PATIENCE => panic!("its process does not end"),
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(status.success());
        assert!(removal.join().expect("thread"), "the device is removed");
        assert!(command(&format!("ip link delete {netdev}")));
    }
}
