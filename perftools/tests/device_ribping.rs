//! ribping on RoCE and iWARP: by datagrams to IPv6 GIDs, over connections to hosts, and beside the
//! real rping.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use ibverbs::{Context, Device, RemoteMemory, device::TransportType};
use nix::ifaddrs::getifaddrs;
use perftools::ribping;
use perftools::ribping::args::PingArgs;
use perftools::ribping::rping::message::{decode, encode};
use perftools::ribping::stop::StopFlag;
use rdmacm::{Listener, Messenger, MessengerOptions};
use serde_json::Value;

const RIBPING: &str = env!("CARGO_BIN_EXE_ribping");

/// Every device of the lab with its IPv4 and its IPv6 address; a run without one is a failed run.
fn places() -> Vec<(Context, IpAddr)> {
    let names = std::env::var("RDMA_LAB_DEVICES")
        .expect("RDMA_LAB_DEVICES names the devices to test on: run by ci/lab");
    let mut all = Vec::new();
    for name in names.split_whitespace() {
        let context = Device::by_name(name)
            .and_then(|device| device.open())
            .expect(name);
        println!("device: {name}");
        let netdev = context.netdev(1).expect("a network interface");
        let mut addresses: Vec<IpAddr> = addresses_of(&netdev);
        addresses.sort();
        assert!(
            addresses.iter().any(IpAddr::is_ipv4) && addresses.iter().any(IpAddr::is_ipv6),
            "{netdev}: {addresses:?}"
        );
        all.extend(addresses.into_iter().map(|ip| (context.clone(), ip)));
    }
    assert!(!all.is_empty(), "RDMA_LAB_DEVICES names no device");
    all
}

fn addresses_of(netdev: &str) -> Vec<IpAddr> {
    getifaddrs()
        .expect("addresses")
        .filter(|entry| entry.interface_name == netdev)
        .filter_map(|entry| entry.address)
        .filter_map(
            |address| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
                (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
                _ => None,
            },
        )
        .filter(|ip| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect()
}

/// A program that serves; it ends when this is dropped.
struct Server(Child);

impl Server {
    /// `ribping -S`, once it says that it answers.
    fn ribping(args: &[&str]) -> Self {
        let mut command = Command::new(RIBPING);
        let mut child = command
            .arg("-S")
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ribping");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let server = Self(child);
        let ready = lines.any(|line| line.expect("text").contains("answering connections"));
        assert!(ready, "ribping -S ended");
        // So that it can go on writing.
        thread::spawn(move || lines.for_each(drop));
        server
    }

    /// The real `rping -s`, once it listens, which it does not say.
    fn rping(ip: &str) -> Self {
        let child = Command::new("rping")
            .args(["-s", "-a", ip])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server =
            Self(child.unwrap_or_else(|error| panic!("rping: {error}; apt install rdmacm-utils")));
        let until = Instant::now() + Duration::from_secs(20);
        while !listeners().contains(":7174") {
            assert!(Instant::now() < until, "rping -s does not listen");
            thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// Ends it as Ctrl-C does; it must end well and in time.
    fn interrupt(mut self) {
        let killed = Command::new("kill")
            .args(["-INT", &self.0.id().to_string()])
            .status()
            .expect("kill");
        assert!(killed.success());
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < until, "the server does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where connections of rdma_cm are listened for.
fn listeners() -> String {
    let output = run("rdma", &["resource", "show", "cm_id"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter(|line| line.contains("LISTEN"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// What came of pings, as JSON; within this process, as starting one takes long under emulation.
fn pinged(args: &[&str]) -> Result<Value, String> {
    let args = PingArgs::try_parse_from([&["ribping", "--json", "-t", "5000"], args].concat())
        .expect("a command line");
    let (report, ended) =
        ribping::run(&args, &StopFlag::default()).map_err(|error| error.to_string())?;
    ended.map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(&report.text(true)).expect("JSON"))
}

/// Pings; all pings must be answered. The result says how.
fn pings(args: &[&str]) -> Value {
    let value = pinged(&[&["-c", "5", "-i", "0.01"], args].concat()).expect("answers");
    assert_eq!(
        (&value["received"], &value["lost"]),
        (&5.into(), &0.into()),
        "{value}"
    );
    value
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_server_answers_everywhere_and_the_client_picks_the_way() {
    let server = Server::ribping(&[]);
    let ip = places()[0].1.to_string();
    let output = run(RIBPING, &["-c", "2", "-i", "0.01", "-t", "5000", &ip]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.starts_with(&format!("Pong from {ip} (Host {ip}): time ")),
        "{output:?}"
    );
    assert!(
        said.contains("2 packets transmitted, 2 received, 0% packet loss"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(0));
    for (context, ip) in places() {
        let is_iwarp = context.device().transport() == TransportType::IWARP;
        let value = pings(&[&ip.to_string()]);
        let way = if ip.is_ipv6() && !is_iwarp {
            "umad"
        } else {
            "rdma_cm"
        };
        assert_eq!(
            (value["way"].as_str(), value["device"].as_str()),
            (Some(way), Some(context.device_name())),
            "{ip}"
        );
        let value = pings(&["--via", "rdma_cm", "--size", "65536", &ip.to_string()]);
        assert_eq!(value["way"], "rdma_cm");
    }
    server.interrupt();
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_gid_is_pinged_by_datagrams_where_it_allows_them() {
    let server = Server::ribping(&[]);
    let mut seen = 0;
    for (context, _) in places()
        .iter()
        .filter(|(context, ip)| context.device().transport() == TransportType::IB && ip.is_ipv4())
    {
        for entry in context.gids(1).expect("GID table") {
            let gid = entry.gid.as_ipv6();
            let value = pings(&["-C", context.device_name(), &gid.to_string()]);
            let is_mapped = gid.to_ipv4_mapped().is_some();
            assert_eq!(
                value["way"],
                if is_mapped { "rdma_cm" } else { "umad" },
                "{gid}"
            );
            seen += 1;
        }
    }
    assert!(seen > 0, "no RoCE device");
    server.interrupt();
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_flood_loses_nothing() {
    let server = Server::ribping(&[]);
    for (_, ip) in places() {
        let value = pinged(&["-f", "-c", "60", &ip.to_string()]).expect("answers");
        assert_eq!(
            (&value["transmitted"], &value["received"]),
            (&60.into(), &60.into()),
            "{ip}: {value}"
        );
    }
    server.interrupt();
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_real_rping_answers_ribping() {
    for (_, ip) in places() {
        let ip = ip.to_string();
        let _server = Server::rping(&ip);
        let value = pings(&["--via", "rdma_cm", &ip]);
        assert_eq!(value["way"], "rdma_cm");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_real_rping_is_answered_with_its_own_data() {
    let server = Server::ribping(&[]);
    for (_, ip) in places() {
        for size in ["64", "65535"] {
            // -V: rping compares what comes back.
            let output = run(
                "rping",
                &["-c", "-a", &ip.to_string(), "-C", "5", "-S", size, "-V"],
            );
            assert!(output.status.success(), "{ip} {size}: {output:?}");
        }
    }
    server.interrupt();
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_server_of_one_device_refuses_the_others() {
    let places = places();
    for (context, ip) in places.iter().filter(|(_, ip)| ip.is_ipv4()) {
        let server = Server::ribping(&["--via", "rdma_cm", "-C", context.device_name()]);
        pings(&["--via", "rdma_cm", &ip.to_string()]);
        for (other, ip) in places
            .iter()
            .filter(|place| place.0.device_name() != context.device_name())
        {
            let refused = pinged(&["-c", "1", "--via", "rdma_cm", &ip.to_string()]);
            assert!(refused.is_err(), "{}: {refused:?}", other.device_name());
        }
        server.interrupt();
    }
}

const LIMIT: Duration = Duration::from_secs(20);

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn strange_pingers_do_not_end_the_server() {
    let server = Server::ribping(&[]);
    let offer = |addr, rkey, len| encode(RemoteMemory { addr, rkey, len }).to_vec();
    for (_, ip) in places().into_iter().filter(|(_, ip)| ip.is_ipv4()) {
        // Too short, too long, no memory, all memory, memory of nobody.
        let messages = [
            vec![7; 5],
            vec![7; 64],
            offer(0, 0, 0),
            offer(0, 0, 1 << 31),
            offer(0x1000, 0x1234, 64),
        ];
        for message in messages {
            let to = SocketAddr::new(ip, 7174);
            let mut pinger =
                Messenger::connect(to, &MessengerOptions::default(), LIMIT).expect("a server");
            pinger.send(&message, LIMIT).expect("it goes");
            let heard = pinger.recv(LIMIT);
            assert!(
                !matches!(heard, Ok(Some(_))),
                "{message:?} of {ip}: {heard:?}"
            );
        }
        pings(&["--via", "rdma_cm", &ip.to_string()]);
    }
    server.interrupt();
}

/// What a server can do wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// It goes on as if it had read and written.
    Nothing,
    Silent,
    Gone,
    OutOfTurn,
}

/// Takes one pinger and treats it so.
fn serve_wrongly(listener: &Listener, wrong: Wrong) {
    let request = listener
        .accept(Some(LIMIT))
        .expect("a listener")
        .expect("a pinger");
    let mut peer =
        Messenger::accept(request, &MessengerOptions::default(), LIMIT).expect("a connection");
    let offered = peer.recv(LIMIT).expect("an offer").expect("an offer");
    assert!(decode(&offered).is_some());
    match wrong {
        Wrong::Gone => return,
        Wrong::Silent => {}
        Wrong::Nothing => {
            for _ in 0..2 {
                peer.send(&[0; 16], LIMIT).expect("it goes");
            }
        }
        Wrong::OutOfTurn => {
            for _ in 0..5 {
                let _ = peer.send(&[0; 3], LIMIT);
            }
        }
    }
    // Until the pinger goes.
    while let Ok(Some(_)) = peer.recv(LIMIT) {}
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn strange_servers_are_no_answers() {
    for (_, ip) in places().into_iter().filter(|(_, ip)| ip.is_ipv4()) {
        let listener = Listener::bind(SocketAddr::new(ip, 7199), 4).expect("a listener");
        for wrong in [Wrong::Nothing, Wrong::Silent, Wrong::Gone, Wrong::OutOfTurn] {
            thread::scope(|scope| {
                scope.spawn(|| serve_wrongly(&listener, wrong));
                let line = format!("ribping --json -c 1 -t 700 --via rdma_cm --cm-port 7199 {ip}");
                let args =
                    PingArgs::try_parse_from(line.split_whitespace()).expect("a command line");
                let (report, ended) =
                    ribping::run(&args, &StopFlag::default()).expect("a connection");
                assert_eq!(
                    (report.counts().transmitted, report.counts().received),
                    (1, 0),
                    "{wrong:?}"
                );
                let said = ended
                    .err()
                    .map(|error| error.to_string())
                    .unwrap_or_default();
                match wrong {
                    Wrong::Gone => {
                        assert!(said.contains("the peer ended the connection"), "{said}");
                    }
                    Wrong::Silent => assert_eq!(said, ""),
                    // It may be gone before its messages are looked at.
                    Wrong::Nothing | Wrong::OutOfTurn => {}
                }
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn nobody_there_is_an_error_that_says_what_to_do() {
    for (_, ip) in places() {
        let said = pinged(&[
            "-c",
            "1",
            "--via",
            "rdma_cm",
            "--cm-port",
            "7999",
            &ip.to_string(),
        ])
        .expect_err("nobody");
        assert!(
            said.contains("is `ribping -S` or `rping -s` running there?"),
            "{said}"
        );
    }
    let output = run(RIBPING, &["-c", "1", "4"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("no InfiniBand port here"), "{said}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_reader_that_goes_away_ends_the_pings_in_good_order() {
    let (_, ip) = places().remove(0);
    let _server = Server::ribping(&[]);
    let mut command = Command::new(RIBPING);
    command
        .args(["-i", "0.01", &ip.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("ribping");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut first)
        .expect("a line");
    assert!(first.starts_with("Pong from"), "{first}");
    let output = child.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("Broken pipe") && !error.contains("panicked"),
        "{error}"
    );
}
