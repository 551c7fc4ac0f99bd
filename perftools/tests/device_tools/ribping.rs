//! `ribping` on RoCE and iWARP: datagrams to IPv6 GIDs, connections to IP addresses, and
//! interoperability with `rping`.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use clap::Parser;
use ibverbs::{Context, RemoteMemory, device::TransportType};
use perftools::ribping;
use perftools::ribping::args::PingArgs;
use perftools::ribping::rping::message::{decode, encode};
use perftools::ribping::stop::StopFlag;
use rdmacm::Listener;
use serde_json::Value;
use test_support::lab::{devices, ip_addresses, report_device};
use test_support::process::{self, Process};
use test_support::text::assert_contains;

use crate::rping_peer::{LIMIT, Peer};

const RIBPING: &str = env!("CARGO_BIN_EXE_ribping");
/// Default port of `rping` and `ribping`.
const CM_PORT: u16 = 7174;

/// Returns each device of the lab with its IPv4 and its IPv6 addresses, and reports the devices.
fn endpoints() -> Vec<(Context, IpAddr)> {
    let mut all = Vec::new();
    for context in devices() {
        report_device(context.device_name());
        let netdev = context.netdev(1).expect("a network interface");
        let addresses = ip_addresses(&netdev);
        assert!(
            addresses.iter().any(IpAddr::is_ipv4) && addresses.iter().any(IpAddr::is_ipv6),
            "{netdev}: {addresses:?}"
        );
        all.extend(addresses.into_iter().map(|ip| (context.clone(), ip)));
    }
    all
}

/// Starts `ribping -S` and waits until it answers.
fn ribping_server(args: &[&str]) -> Process {
    let server = Process::spawn(Command::new(RIBPING).arg("-S").args(args));
    server.next_stderr_line("answering connections");
    server
}

/// Starts `rping -s` and waits until it listens.
fn rping_server(ip: &str) -> Process {
    Process::spawn(Command::new("rping").args(["-s", "-a", ip])).wait_for_cm_listener(CM_PORT)
}

/// Interrupts a server, which must exit successfully and in time.
fn interrupt(server: Process) {
    server.interrupt();
    let output = server.wait_timeout(Duration::from_secs(10));
    assert!(output.success(), "{output}");
}

/// Runs `ribping` and returns its JSON report. It runs in this process because starting a program
/// takes long under emulation.
fn report(args: &[&str]) -> Result<Value, String> {
    let args = PingArgs::try_parse_from([&["ribping", "--json", "-t", "5000"], args].concat())
        .expect("a valid command line");
    let report = ribping::run(&args, &StopFlag::default()).map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(&report.text(true)).expect("JSON"))
}

/// Sends five pings, which must all be answered, and returns the report.
fn ping_five(args: &[&str]) -> Value {
    let report = report(&[&["-c", "5", "-i", "0.01"], args].concat()).expect("answers");
    assert_eq!(
        (&report["received"], &report["lost"]),
        (&5.into(), &0.into()),
        "{report}"
    );
    report
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn client_chooses_the_transport_for_each_address() {
    let server = ribping_server(&[]);
    let ip = endpoints()[0].1.to_string();
    let mut command = Command::new(RIBPING);
    command.args(["-c", "2", "-i", "0.01", "-t", "5000", &ip]);
    let output = process::output(&mut command);
    assert!(
        output
            .stdout
            .starts_with(&format!("Pong from {ip} (Host {ip}): time "))
            && output
                .stdout
                .contains("2 packets transmitted, 2 received, 0% packet loss"),
        "{output}"
    );
    assert_eq!(output.code(), Some(0));
    for (context, ip) in endpoints() {
        let is_iwarp = context.device().transport() == TransportType::IWARP;
        let value = ping_five(&[&ip.to_string()]);
        let transport = if ip.is_ipv6() && !is_iwarp {
            "umad"
        } else {
            "rdma_cm"
        };
        assert_eq!(
            (value["transport"].as_str(), value["device"].as_str()),
            (Some(transport), Some(context.device_name())),
            "{ip}"
        );
        let value = ping_five(&["--via", "rdma_cm", "--size", "65536", &ip.to_string()]);
        assert_eq!(value["transport"], "rdma_cm");
    }
    interrupt(server);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unmapped_gids_are_pinged_with_datagrams() {
    let server = ribping_server(&[]);
    let mut seen = 0;
    for (context, _) in endpoints()
        .iter()
        .filter(|(context, ip)| context.device().transport() == TransportType::IB && ip.is_ipv4())
    {
        for entry in context.gids(1).expect("GID table") {
            let gid = entry.gid.as_ipv6();
            let value = ping_five(&["-C", context.device_name(), &gid.to_string()]);
            let is_mapped = gid.to_ipv4_mapped().is_some();
            assert_eq!(
                value["transport"],
                if is_mapped { "rdma_cm" } else { "umad" },
                "{gid}"
            );
            seen += 1;
        }
    }
    assert!(seen > 0, "no RoCE device");
    interrupt(server);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn flood_loses_nothing() {
    let server = ribping_server(&[]);
    for (_, ip) in endpoints() {
        let value = report(&["-f", "-c", "60", &ip.to_string()]).expect("answers");
        assert_eq!(
            (&value["transmitted"], &value["received"]),
            (&60.into(), &60.into()),
            "{ip}: {value}"
        );
    }
    interrupt(server);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rping_server_answers_ribping() {
    for (_, ip) in endpoints() {
        let ip = ip.to_string();
        let _server = rping_server(&ip);
        let value = ping_five(&["--via", "rdma_cm", &ip]);
        assert_eq!(value["transport"], "rdma_cm");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rping_client_gets_its_own_data_back() {
    let server = ribping_server(&[]);
    for (_, ip) in endpoints() {
        for size in ["64", "65535"] {
            // -V: rping compares the returned data with the data that it sent.
            let line = format!("rping -c -a {ip} -C 5 -S {size} -V");
            process::run_line(&line);
        }
    }
    interrupt(server);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn server_of_one_device_does_not_answer_on_others() {
    let endpoints = endpoints();
    for (context, ip) in endpoints.iter().filter(|(_, ip)| ip.is_ipv4()) {
        let server = ribping_server(&["--via", "rdma_cm", "-C", context.device_name()]);
        ping_five(&["--via", "rdma_cm", &ip.to_string()]);
        for (other, ip) in endpoints
            .iter()
            .filter(|endpoint| endpoint.0.device_name() != context.device_name())
        {
            let value =
                report(&["-c", "1", "--via", "rdma_cm", &ip.to_string()]).expect("a report");
            assert_eq!(value["received"], 0, "{}: {value}", other.device_name());
        }
        interrupt(server);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn malformed_clients_do_not_stop_the_server() {
    let server = ribping_server(&[]);
    let offer = |addr, rkey, len| encode(RemoteMemory { addr, rkey, len }).to_vec();
    for (_, ip) in endpoints().into_iter().filter(|(_, ip)| ip.is_ipv4()) {
        // Too short, too long, no memory, 2 GiB, unregistered memory.
        let messages = [
            vec![7; 5],
            vec![7; 64],
            offer(0, 0, 0),
            offer(0, 0, 1 << 31),
            offer(0x1000, 0x1234, 64),
        ];
        for message in messages {
            let to = SocketAddr::new(ip, CM_PORT);
            let mut client = Peer::connect(to);
            client.send(&message);
            let received = client.recv();
            assert!(received.is_none(), "{message:?} to {ip}: {received:?}");
        }
        ping_five(&["--via", "rdma_cm", &ip.to_string()]);
    }
    interrupt(server);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn server_listens_again_after_the_driver_closed_a_listener() {
    let server = ribping_server(&["--via", "rdma_cm"]);
    let ips = endpoints()
        .into_iter()
        .filter(|(context, _)| context.device_name().starts_with("siw"))
        .map(|(_, ip)| ip);
    let mut seen = 0;
    for ip in ips {
        let to = SocketAddr::new(ip, CM_PORT);
        let is_closed = || {
            for _ in 0..50 {
                // The connection is reset at once. Nothing listens after the driver has closed it.
                let Ok(stream) = TcpStream::connect(to) else {
                    return true;
                };
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
            false
        };
        assert!(process::wait_until(LIMIT, is_closed), "{ip}");
        server.next_stderr_line(&format!("the driver closed the listener on {to}"));
        let responds = || report(&["-c", "1", &ip.to_string()]).is_ok_and(|r| r["received"] == 1);
        assert!(process::wait_until(LIMIT, responds), "{ip}");
        seen += 1;
    }
    assert_eq!(seen, 2, "addresses of Soft-iWARP");
    interrupt(server);
}

/// Returns the number of open files of a process.
fn open_files(server: &Process) -> usize {
    let directory = format!("/proc/{}/fd", server.id());
    std::fs::read_dir(directory).expect("a process").count()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn server_without_free_descriptors_goes_on() {
    const LIMIT_OF_FILES: usize = 60;
    let script = format!("ulimit -n {LIMIT_OF_FILES}; exec \"$0\" -S --via rdma_cm");
    let server = Process::spawn(Command::new("sh").args(["-c", &script, RIBPING]));
    server.next_stderr_line("answering connections");
    for (_, ip) in endpoints().into_iter().filter(|(_, ip)| ip.is_ipv4()) {
        let to = SocketAddr::new(ip, CM_PORT);
        let before = open_files(&server);
        let mut clients: Vec<_> = (0..8).map(|_| Peer::connect(to)).collect();
        let used = open_files(&server) - before;
        assert!(used <= 2 * clients.len() + 2, "{used} files for 8 clients");
        // More than the server has descriptors for.
        let is_rejected = (0..40).any(|_| match Peer::try_connect(to) {
            Some(client) => {
                clients.push(client);
                false
            }
            None => true,
        });
        assert!(is_rejected, "{} clients", clients.len());
        drop(clients);
        let closes = || open_files(&server) <= before + 2;
        assert!(process::wait_until(LIMIT, closes), "{ip}");
        ping_five(&["--via", "rdma_cm", &ip.to_string()]);
    }
    interrupt(server);
}

/// A way in which a server violates the protocol.
#[derive(Clone, Copy, Debug)]
enum Misbehavior {
    /// Sends the messages of the protocol, but does not read or write memory.
    SkipTransfer,
    Silence,
    Disconnect,
    /// Sends messages that the client does not expect.
    UnexpectedMessages,
}

/// Accepts one client and misbehaves.
fn misbehave(listener: &Listener, misbehavior: Misbehavior) {
    let mut peer = Peer::accept(listener).expect("a client");
    let offered = peer.recv().expect("an offer");
    assert!(decode(&offered).is_some());
    match misbehavior {
        Misbehavior::Disconnect => return,
        Misbehavior::Silence => {}
        Misbehavior::SkipTransfer => {
            for _ in 0..2 {
                peer.send(&[0; 16]);
            }
        }
        Misbehavior::UnexpectedMessages => {
            for _ in 0..5 {
                peer.send(&[0; 3]);
            }
        }
    }
    // Wait until the client disconnects.
    while peer.recv().is_some() {}
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn misbehaving_servers_do_not_count_as_answers() {
    for (_, ip) in endpoints().into_iter().filter(|(_, ip)| ip.is_ipv4()) {
        let listener = Listener::bind(SocketAddr::new(ip, 7199), 4).expect("a listener");
        for misbehavior in [
            Misbehavior::SkipTransfer,
            Misbehavior::Silence,
            Misbehavior::Disconnect,
            Misbehavior::UnexpectedMessages,
        ] {
            thread::scope(|scope| {
                scope.spawn(|| misbehave(&listener, misbehavior));
                let line = format!("ribping --json -c 1 -t 700 --via rdma_cm --cm-port 7199 {ip}");
                let args =
                    PingArgs::try_parse_from(line.split_whitespace()).expect("a command line");
                let report = ribping::run(&args, &StopFlag::default()).expect("a connection");
                assert_eq!(
                    (report.counts().transmitted, report.counts().received),
                    (1, 0),
                    "{misbehavior:?}"
                );
                let document: Value = serde_json::from_str(&report.text(true)).expect("JSON");
                let error = document["last_error"].as_str().unwrap_or_default();
                match misbehavior {
                    Misbehavior::Disconnect => {
                        assert!(error.contains("the peer closed the connection"), "{error}");
                    }
                    Misbehavior::Silence => assert_eq!(error, ""),
                    // The server may disconnect before the client reads its messages.
                    Misbehavior::SkipTransfer | Misbehavior::UnexpectedMessages => {}
                }
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_server_is_named_with_a_remedy() {
    for (context, ip) in endpoints() {
        let has_datagrams = context.device().transport() != TransportType::IWARP;
        let is_gid = ip.is_ipv6() && has_datagrams;
        let ip = ip.to_string();
        if is_gid {
            let line = ["-c", "1", "--via", "umad", &ip];
            let output = process::output(Command::new(RIBPING).args(line));
            let expected = format!("Gid {ip} is reachable, but no `ribping -S` answers there");
            assert!(output.stderr.contains(&expected), "{output}");
        }
        let value = report(&["-c", "1", "--via", "rdma_cm", "--cm-port", "7999", &ip]);
        let value = value.expect("a report");
        assert_eq!(
            (&value["transmitted"], &value["lost"]),
            (&1.into(), &1.into())
        );
        let error = value["last_error"].as_str().expect("an error");
        assert_contains(
            error,
            &[
                "is reachable, but no `ribping -S` answers there on port 7999",
                "start `ribping -S` or `rping -s` on that host",
            ],
        );
    }
    let output = process::output(Command::new(RIBPING).args(["-c", "1", "4"]));
    assert_eq!(output.code(), Some(2), "{output}");
    assert!(
        output.stderr.contains("no InfiniBand port on this host")
            && !output.stderr.contains("ibwarn"),
        "{output}"
    );
    let output = process::output(Command::new(RIBPING).args(["--json", "-c", "1", "4"]));
    let document: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert!(
        document["last_error"]
            .as_str()
            .is_some_and(|error| error.contains("no InfiniBand port"))
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn client_goes_on_when_the_server_is_restarted() {
    for (_, ip) in endpoints().into_iter().filter(|(_, ip)| ip.is_ipv4()) {
        let server = ribping_server(&["--via", "rdma_cm"]);
        let mut command = Command::new(RIBPING);
        let client =
            Process::spawn(command.args(["--json", "-i", "0.1", "-t", "2000", &ip.to_string()]));
        client.next_stderr_line("pinging Host");
        thread::sleep(Duration::from_secs(2));
        server.kill();
        client.next_stderr_line("is lost: ");
        client.next_stderr_line("no `ribping -S` answers there");
        let server = ribping_server(&["--via", "rdma_cm"]);
        client.next_stderr_line("connected again");
        process::send_signal(client.id(), "QUIT");
        client.next_stderr_line("% loss, min/avg/max = ");
        process::send_signal(client.id(), "HUP");
        let output = client.wait_timeout(Duration::from_secs(10));
        assert_eq!(output.code(), Some(0), "{output}");
        let value: Value = serde_json::from_str(&output.stdout).expect("JSON");
        let count = |key: &str| value[key].as_u64().expect("a number");
        assert!(count("lost") > 0 && count("received") > 2, "{value}");
        assert_eq!(
            count("transmitted"),
            count("lost") + count("received"),
            "{value}"
        );
        assert!(count("reconnects") >= 1, "{value}");
        interrupt(server);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn second_server_says_that_the_port_is_taken() {
    endpoints();
    let server = ribping_server(&["--via", "rdma_cm"]);
    let second = process::output(Command::new(RIBPING).args(["-S", "--via", "rdma_cm"]));
    assert!(
        !second.success()
            && second
                .stderr
                .contains("start the server: port 7174 is taken"),
        "{second}"
    );
    interrupt(server);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn closed_output_pipe_ends_the_client() {
    let (_, ip) = endpoints().remove(0);
    let _server = ribping_server(&[]);
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

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unprivileged_user_is_pointed_to_rdma_cm() {
    for (context, ip) in endpoints() {
        // iWARP has no management datagrams, and IPv4 addresses are pinged over connections.
        if context.device().transport() == TransportType::IWARP || ip.is_ipv4() {
            continue;
        }
        // The program is started through its descriptor: the unprivileged user may not have access
        // to the directories of its path.
        let program = std::fs::File::open(RIBPING).expect("the program");
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(["/proc/self/fd/0", "--via", "umad", "-c", "1"])
            .arg(ip.to_string())
            .stdin(program);
        let output = process::output(&mut command);
        assert_eq!(output.code(), Some(2), "{output}");
        assert!(
            output.stderr.contains("this needs root")
                && output.stderr.contains("`ribping --via rdma_cm HOST`"),
            "{output}"
        );
    }
}
