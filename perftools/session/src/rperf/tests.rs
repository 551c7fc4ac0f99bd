//! Tests of client and server over loopback TCP, with a fake data path for the data.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base::error::Result;
use base::interrupt::Interrupt;
use measure::spec::test::Test;
use measure::spec::{Limit, Spec};
use measure::stats::monitor::MonitorOptions;
use measure::transport::address::PortAddress;
use measure::transport::{Backend, ClientEndpoints, ControlAddrs};
use test_support::text::assert_contains;

use super::fake_backend::{FakeBackend, connection_info};
use super::message::Message;
use super::report_diagnosis::{Report, measured};
use super::rules::Rules;
use super::server::Server;
use crate::answer::Answer;
use crate::client;
use crate::connect::ServerAddr;
use crate::protocol::frame;
use crate::protocol::hello::{self, PROTOCOL};
use crate::server::Ended;

pub(super) fn server_addr(address: SocketAddr) -> ServerAddr {
    ServerAddr {
        host: address.ip().to_string(),
        port: address.port(),
        wait: Duration::from_secs(2),
        bind: None,
        token: None,
        qperf: false,
        interrupt: Interrupt::default(),
    }
}

/// Runs a test with this client.
pub(super) fn run(address: SocketAddr, spec: &Spec, backend: &FakeBackend) -> Result<Answer> {
    let options = MonitorOptions::default();
    client::run(&server_addr(address), spec, &backend, &Report, options)
}

pub(super) fn limited(test: Test, limit: Limit) -> Spec {
    Spec {
        limit,
        ..Spec::new(test)
    }
}

/// Runs `body` with a server with these rules.
pub(super) fn with_rules<T>(
    rules: Rules,
    backend: &FakeBackend,
    body: impl FnOnce(SocketAddr) -> T,
) -> T {
    let mut server = Server::bind(Some(Ipv4Addr::LOCALHOST.into()), 0, rules)
        .unwrap()
        .quiet();
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    std::thread::scope(|scope| {
        let server_result = scope.spawn(|| server.run(&backend, &Report));
        // A failed assertion must stop the server, because the scope waits for its thread.
        let body = std::panic::AssertUnwindSafe(|| body(address));
        let outcome = std::panic::catch_unwind(body);
        stopper.stop();
        let outcome = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert_eq!(server_result.join().unwrap(), Ok(Ended::Stopped));
        outcome
    })
}

/// Runs `body` with a server. Checks that the server still responds afterwards, and stops it with
/// `quit`.
pub(super) fn with_server(max_clients: u32, body: impl FnOnce(SocketAddr, &FakeBackend)) {
    let backend = FakeBackend::default();
    let rules = Rules::default().with_max_clients(max_clients);
    with_rules(rules, &backend, |address| {
        body(address, &backend);
        for spec in [Test::Conf, Test::Quit].map(Spec::new) {
            retry_until_served(|| run(address, &spec, &backend));
        }
    });
}

/// Repeats `run` while the server has its maximum number of clients.
fn retry_until_served(run: impl Fn() -> Result<Answer>) {
    let begin = Instant::now();
    loop {
        match run() {
            Ok(_) => return,
            Err(error)
                if error.to_string().contains("its maximum number of clients")
                    && begin.elapsed() < Duration::from_secs(3) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns a connection that has exchanged hello messages.
pub(super) fn connect_with_hello(address: SocketAddr, protocol: u16) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.write_all(&hello::encode_request(protocol)).unwrap();
    let mut reply = [0; hello::LEN];
    stream.read_exact(&mut reply).unwrap();
    assert!(matches!(hello::decode_reply(&reply), hello::Peer::Rperf(h) if h.protocol == PROTOCOL));
    stream
}

/// Reads a message, which is an error.
fn read_error(stream: &mut TcpStream) -> String {
    match frame::read(stream) {
        Ok(Message::Error { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

/// Returns a connection that has requested a test and received the offer.
fn connect_with_offer(address: SocketAddr, backend: &FakeBackend, spec: Spec) -> TcpStream {
    let mut stream = connect_with_hello(address, PROTOCOL);
    let (_, client_info) = backend
        .client(
            &spec,
            ControlAddrs {
                local: address.ip(),
                peer: address.ip(),
            },
        )
        .unwrap();
    frame::write(
        &mut stream,
        &Message::Request {
            spec: Box::new(spec),
            client_info: Some(client_info),
        },
    )
    .unwrap();
    assert!(matches!(frame::read(&mut stream), Ok(Message::Offer(_))));
    stream
}

#[test]
fn both_ends_agree_on_the_counts() {
    with_server(8, |address, backend| {
        for (test, client_received) in [(Test::RcBw, 0), (Test::RcBiBw, 200), (Test::RcLat, 200)] {
            let spec = limited(test, Limit::Messages(200)).with_msg_size(1 << 10);
            let m = measured(run(address, &spec, backend).unwrap());
            assert_eq!(
                (m.local_stats.sent.msgs, m.remote_stats.received.msgs),
                (200, 200),
                "{test:?}"
            );
            assert_eq!(m.local_stats.received.msgs, client_received, "{test:?}");
            assert_eq!(m.latency.is_some(), test == Test::RcLat);
        }
    });
}

/// The ends may be in two network namespaces.
#[test]
fn ends_with_two_addresses_can_be_on_one_host() {
    with_server(8, |address, backend| {
        let server_addr = ServerAddr {
            bind: Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))),
            ..server_addr(address)
        };
        let spec = limited(Test::TcpLat, Limit::Messages(10));
        let options = MonitorOptions::default();
        let answer = client::run(&server_addr, &spec, &backend, &Report, options);
        let Ok(Answer::Measured(run)) = answer else {
            panic!("{answer:?}");
        };
        let result = &run.devices[0].result;
        assert!(result.one_host && !result.one_port);
    });
}

#[test]
fn counts_of_threads_are_summed_at_both_ends() {
    with_server(8, |address, backend| {
        for (test, client_received) in [(Test::RcBw, 0), (Test::RcBiBw, 200)] {
            let spec = Spec {
                threads: 3,
                limit: Limit::Messages(200),
                ..Spec::new(test).with_msg_size(1 << 10)
            };
            let monitor_options = MonitorOptions {
                interval: Some(Duration::from_millis(20)),
                observer: None,
            };
            let server = server_addr(address);
            let answer = client::run(&server, &spec, &backend, &Report, monitor_options);
            let m = measured(answer.unwrap());
            let monitored: u64 = m.intervals.iter().map(|interval| interval.msgs).sum();
            assert_eq!(monitored, 200 + client_received, "{:?}", m.intervals);
            assert_eq!(
                (m.local_stats.sent.msgs, m.remote_stats.received.msgs),
                (200, 200),
                "{test:?}"
            );
            assert_eq!(m.local_stats.received.msgs, client_received, "{test:?}");
            let sent_by_thread: Vec<u64> = m
                .local_stats
                .threads
                .iter()
                .map(|thread| thread.sent.msgs)
                .collect();
            assert_eq!(sent_by_thread, [67, 67, 66], "{test:?}");
        }
        let lat = Spec {
            threads: 2,
            ..Spec::new(Test::RcLat)
        };
        let expected = "rc_lat uses one thread; help: remove --threads";
        assert_contains(lat.check().unwrap_err(), &[expected]);
    });
}

#[test]
fn several_clients_are_served_concurrently() {
    with_server(8, |address, backend| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let spec = limited(Test::RcBw, Limit::Time(Duration::from_millis(200)));
                scope.spawn(move || run(address, &spec, backend).unwrap());
            }
        });
    });
}

#[test]
fn server_checks_the_specification() {
    with_server(8, |address, backend| {
        let mut oversized = Spec::new(Test::RcBw);
        oversized.msg_size = 8 << 30;
        let error = run(address, &oversized, backend).unwrap_err();
        let expected = "the server: message size of 8 GiB: the maximum is 1 GiB";
        assert_contains(error, &[expected]);
        let large = Spec::new(Test::RcBw).with_msg_size(2 << 20);
        let error = run(address, &large, backend).unwrap_err();
        assert_contains(error, &["the maximum of fake0 is 1 MiB"]);
    });
}

#[test]
fn version_mismatch_names_both_versions() {
    with_server(8, |address, _| {
        let mut stream = connect_with_hello(address, 99);
        let text = read_error(&mut stream);
        assert_contains(&text, &["version 99", &format!("version {PROTOCOL} ")]);
    });
}

#[test]
fn qperf_clients_get_errors_as_urgent_data() {
    with_server(8, |address, _| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut request = vec![0; 200];
        request[..8].copy_from_slice(&[0, 0, 4, 0, 11, 0, 29, 0]);
        stream.write_all(&request).unwrap();
        // The urgent byte is received first. Reading past the urgent mark would discard it.
        let begin = Instant::now();
        let mut urgent = [std::mem::MaybeUninit::uninit()];
        while socket2::SockRef::from(&stream)
            .recv_out_of_band(&mut urgent)
            .is_err()
        {
            assert!(
                begin.elapsed() < Duration::from_secs(5),
                "no urgent byte arrived"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(
            text.contains("ud_bw") && text.len() < 256 && !text.contains('\n'),
            "{text}"
        );
    });
}

#[test]
fn idle_connections_do_not_delay_other_clients() {
    with_server(8, |address, backend| {
        let silent = TcpStream::connect(address).unwrap();
        let half_open = connect_with_hello(address, PROTOCOL);
        let spec = limited(Test::RcLat, Limit::Messages(10));
        run(address, &spec, backend).unwrap();
        // The server still waits for the others.
        for mut idle in [silent, half_open] {
            idle.set_nonblocking(true).unwrap();
            let error = idle.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn server_survives_the_loss_of_a_client() {
    with_server(1, |address, backend| {
        let mut stream = connect_with_offer(
            address,
            backend,
            limited(Test::RcBw, Limit::Time(Duration::from_secs(60))),
        );
        frame::write(
            &mut stream,
            &Message::Answer(ClientEndpoints { ends: vec![] }),
        )
        .unwrap();
        let ready = Message::Ready {
            host: None,
            via: connection_info(),
            memory: Vec::new(),
            warnings: Vec::new(),
        };
        frame::write(&mut stream, &ready).unwrap();
        assert!(matches!(
            frame::read(&mut stream),
            Ok(Message::Ready { .. })
        ));
        drop(stream);
        // The server allows one client only. `with_server` therefore checks that the test has
        // ended.
    });
}

#[test]
fn silent_clients_get_a_timeout_error() {
    with_server(1, |address, backend| {
        let mut spec = Spec::new(Test::RcBw);
        spec.server.timeout = Duration::from_millis(50);
        let mut stream = connect_with_offer(address, backend, spec);
        let text = read_error(&mut stream);
        assert!(text.contains("the client sent nothing for 50 ms"), "{text}");
    });
}

#[test]
fn clients_beyond_the_maximum_are_rejected() {
    with_server(1, |address, backend| {
        let first = connect_with_offer(address, backend, Spec::new(Test::RcBw));
        let error = run(address, &Spec::new(Test::Conf), backend).unwrap_err();
        assert_contains(&error, &["maximum number of clients, 1;", "--max-clients"]);
        drop(first);
    });
}

/// Runs a test on a server that allows 192.0.2.0/24, with a client that names this RDMA address.
fn run_with_address(ip: &str) -> Result<Answer> {
    let mut rules = Rules::default();
    rules.allow = vec!["192.0.2.0/24".parse().unwrap()];
    let mut backend = FakeBackend::default();
    backend.client_addresses.push(PortAddress {
        ip: Some(ip.parse().unwrap()),
        prefix: 24,
        gid_index: Some(0),
    });
    let spec = limited(Test::UdLat, Limit::Messages(10));
    with_rules(rules, &backend, |address| run(address, &spec, &backend))
}

#[test]
fn data_is_not_sent_to_addresses_outside_the_allowed_networks() {
    run_with_address("192.0.2.1").unwrap();
    let error = run_with_address("203.0.113.1").unwrap_err();
    assert_contains(error, &["RDMA address 203.0.113.1 is neither"]);
}

#[test]
fn stopped_server_notifies_its_clients() {
    let backend = FakeBackend::default();
    let mut server = Server::bind(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, Rules::default())
        .unwrap()
        .quiet();
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    std::thread::scope(|scope| {
        let backend = &backend;
        let server_result = scope.spawn(move || server.run(&backend, &Report));
        let client_result = scope.spawn(move || {
            let spec = limited(Test::RcBw, Limit::Time(Duration::from_secs(60)));
            run(address, &spec, backend)
        });
        std::thread::sleep(Duration::from_millis(200));
        stopper.stop();
        let text = client_result.join().unwrap().unwrap_err().to_string();
        assert!(text.contains("the server was stopped"), "{text}");
        server_result.join().unwrap().unwrap();
    });
}

#[test]
fn unexpected_messages_are_rejected() {
    with_server(8, |address, _| {
        for message in [
            Message::Finished { sent: 1, thread: 0 },
            Message::Quitting,
            Message::Answer(ClientEndpoints { ends: vec![] }),
        ] {
            let mut stream = connect_with_hello(address, PROTOCOL);
            frame::write(&mut stream, &message).unwrap();
            let text = read_error(&mut stream);
            assert!(text.contains("unexpected message"), "{text}");
        }
        let mut stream = connect_with_hello(address, PROTOCOL);
        let spec = Box::new(Spec::new(Test::RcBw));
        let client_info = None;
        frame::write(&mut stream, &Message::Request { spec, client_info }).unwrap();
        read_error(&mut stream);
    });
}

#[test]
fn other_services_are_not_taken_for_rperf() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let service = std::thread::spawn(move || {
        listener
            .accept()
            .unwrap()
            .0
            .write_all(b"220 ftp.example.org ready\r\n")
    });
    let outcome = run(address, &Spec::new(Test::Conf), &FakeBackend::default());
    assert_contains(outcome.unwrap_err(), &["other than an rperf server"]);
    service.join().unwrap().unwrap();
}

#[test]
fn unreachable_server_is_reported_in_time() {
    let server_addr = ServerAddr {
        wait: Duration::from_millis(300),
        ..server_addr(SocketAddr::from(([127, 0, 0, 1], 1)))
    };
    let (spec, backend) = (Spec::new(Test::Conf), FakeBackend::default());
    let (begin, options) = (Instant::now(), MonitorOptions::default());
    let outcome = client::run(&server_addr, &spec, &&backend, &Report, options);
    assert_contains(outcome.unwrap_err(), &["cannot reach the server", "300 ms"]);
    assert!(begin.elapsed() < Duration::from_secs(2));
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(12))]
    #[test]
    fn server_survives_any_bytes(inputs in proptest::collection::vec((proptest::arbitrary::any::<bool>(), proptest::collection::vec(0_u8.., 0..400)), 1..8)) {
        with_server(8, |address, _| {
            for (sends_hello, bytes) in &inputs {
                let mut stream = if *sends_hello { connect_with_hello(address, PROTOCOL) } else { TcpStream::connect(address).unwrap() };
                let _ = stream.write_all(bytes);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read(&mut [0; 1024]);
            }
        });
    }
}
