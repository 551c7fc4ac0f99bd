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

/// Runs `body` with a server. Checks that the server still responds afterwards, and stops it with
/// `quit`.
pub(super) fn with_server(max_clients: u32, body: impl FnOnce(SocketAddr, &FakeBackend)) {
    let backend = FakeBackend::default();
    let mut server = Server::bind(
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        0,
        Rules::default().with_max_clients(max_clients),
    )
    .unwrap()
    .quiet();
    let address = server.local_addr().unwrap();
    std::thread::scope(|scope| {
        let (stopper, backend) = (server.stopper(), &backend);
        let server_result = scope.spawn(move || server.run(&backend, &Report));
        // A failed assertion must stop the server, because the scope waits for its thread.
        let body = std::panic::AssertUnwindSafe(|| {
            body(address, backend);
            assert_responds(address);
            let quit = retry_until_served(|| {
                client::run(
                    &server_addr(address),
                    &Spec::new(Test::Quit),
                    &backend,
                    &Report,
                    MonitorOptions::default(),
                )
            });
            assert!(matches!(quit, Answer::Quit), "{quit:?}");
        });
        if let Err(panic) = std::panic::catch_unwind(body) {
            stopper.stop();
            std::panic::resume_unwind(panic);
        }
        assert_eq!(server_result.join().unwrap(), Ok(Ended::Stopped));
    });
}

/// Asserts that the server responds, once it has noticed that its earlier clients are gone.
fn assert_responds(address: SocketAddr) {
    retry_until_served(|| {
        client::run(
            &server_addr(address),
            &Spec::new(Test::Conf),
            &&FakeBackend::default(),
            &Report,
            MonitorOptions::default(),
        )
    });
}

/// Repeats `run` while the server has its maximum number of clients.
fn retry_until_served(run: impl Fn() -> Result<Answer>) -> Answer {
    let begin = Instant::now();
    loop {
        match run() {
            Ok(outcome) => return outcome,
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
            let outcome = client::run(
                &server_addr(address),
                &Spec {
                    limit: Limit::Messages(200),
                    ..Spec::new(test).with_msg_size(1 << 10)
                },
                &backend,
                &Report,
                MonitorOptions::default(),
            )
            .unwrap();
            let m = measured(outcome);
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
        let mut spec = Spec::new(Test::TcpLat);
        spec.limit = Limit::Messages(10);
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
            assert_eq!(
                monitored,
                200 + client_received,
                "{test:?}: {:?}",
                m.intervals
            );
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
        let lat = lat.check();
        assert!(
            lat.unwrap_err()
                .to_string()
                .contains("rc_lat uses one thread; help: remove --threads")
        );
    });
}

#[test]
fn several_clients_are_served_concurrently() {
    with_server(8, |address, backend| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    client::run(
                        &server_addr(address),
                        &Spec {
                            limit: Limit::Time(Duration::from_millis(200)),
                            ..Spec::new(Test::RcBw)
                        },
                        &backend,
                        &Report,
                        MonitorOptions::default(),
                    )
                    .unwrap()
                });
            }
        });
    });
}

#[test]
fn server_checks_the_specification() {
    with_server(8, |address, backend| {
        let mut oversized = Spec::new(Test::RcBw);
        oversized.msg_size = 8 << 30;
        let text = client::run(
            &server_addr(address),
            &oversized,
            &backend,
            &Report,
            MonitorOptions::default(),
        )
        .unwrap_err()
        .to_string();
        assert!(
            text.starts_with("the server: message size of 8 GiB: the maximum is 1 GiB"),
            "{text}"
        );
        let large = Spec::new(Test::RcBw).with_msg_size(2 << 20);
        let text = client::run(
            &server_addr(address),
            &large,
            &backend,
            &Report,
            MonitorOptions::default(),
        )
        .unwrap_err()
        .to_string();
        assert!(text.contains("the maximum of fake0 is 1 MiB"), "{text}");
    });
}

#[test]
fn version_mismatch_names_both_versions() {
    with_server(8, |address, _| {
        let mut stream = connect_with_hello(address, 99);
        let Ok(Message::Error { text, .. }) = frame::read(&mut stream) else {
            panic!("no error")
        };
        assert!(
            text.contains("version 99") && text.contains(&format!("version {PROTOCOL} ")),
            "{text}"
        );
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
        let spec = Spec {
            limit: Limit::Messages(10),
            ..Spec::new(Test::RcLat)
        };
        let (server, options) = (server_addr(address), MonitorOptions::default());
        client::run(&server, &spec, &backend, &Report, options).unwrap();
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
            Spec {
                limit: Limit::Time(Duration::from_secs(60)),
                ..Spec::new(Test::RcBw)
            },
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
        let Ok(Message::Error { text, .. }) = frame::read(&mut stream) else {
            panic!("no error")
        };
        assert!(text.contains("the client sent nothing for 50 ms"), "{text}");
    });
}

#[test]
fn clients_beyond_the_maximum_are_rejected() {
    with_server(1, |address, backend| {
        let first = connect_with_offer(address, backend, Spec::new(Test::RcBw));
        let text = client::run(
            &server_addr(address),
            &Spec::new(Test::Conf),
            &backend,
            &Report,
            MonitorOptions::default(),
        )
        .unwrap_err()
        .to_string();
        assert!(
            text.contains("maximum number of clients, 1;") && text.contains("--max-clients"),
            "{text}"
        );
        drop(first);
    });
}

/// Runs a test on a server that allows 192.0.2.0/24, with a client that names this RDMA address.
fn run_with_address(ip: &str) -> Result<Answer> {
    let mut rules = Rules::default();
    rules.allow = vec!["192.0.2.0/24".parse().unwrap()];
    let mut server = Server::bind(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, rules)
        .unwrap()
        .quiet();
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    let mut backend = FakeBackend::default();
    backend.client_addresses.push(PortAddress {
        ip: Some(ip.parse().unwrap()),
        prefix: 24,
        gid_index: Some(0),
    });
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(&&backend, &Report));
        let outcome = client::run(
            &server_addr(address),
            &Spec {
                limit: Limit::Messages(10),
                ..Spec::new(Test::UdLat)
            },
            &&backend,
            &Report,
            MonitorOptions::default(),
        );
        stopper.stop();
        outcome
    })
}

#[test]
fn data_is_not_sent_to_addresses_outside_the_allowed_networks() {
    run_with_address("192.0.2.1").unwrap();
    let text = run_with_address("203.0.113.1").unwrap_err().to_string();
    assert!(
        text.contains("RDMA address 203.0.113.1 is neither"),
        "{text}"
    );
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
            client::run(
                &server_addr(address),
                &Spec {
                    limit: Limit::Time(Duration::from_secs(60)),
                    ..Spec::new(Test::RcBw)
                },
                &backend,
                &Report,
                MonitorOptions::default(),
            )
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
            let Ok(Message::Error { text, .. }) = frame::read(&mut stream) else {
                panic!("no error")
            };
            assert!(text.contains("unexpected message"), "{text}");
        }
        let mut stream = connect_with_hello(address, PROTOCOL);
        let spec = Box::new(Spec::new(Test::RcBw));
        frame::write(
            &mut stream,
            &Message::Request {
                spec,
                client_info: None,
            },
        )
        .unwrap();
        assert!(matches!(
            frame::read(&mut stream),
            Ok(Message::Error { .. })
        ));
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
    let text = client::run(
        &server_addr(address),
        &Spec::new(Test::Conf),
        &&FakeBackend::default(),
        &Report,
        MonitorOptions::default(),
    )
    .unwrap_err()
    .to_string();
    assert!(text.contains("other than an rperf server"), "{text}");
    service.join().unwrap().unwrap();
}

#[test]
fn unreachable_server_is_reported_in_time() {
    let server_addr = ServerAddr {
        host: "127.0.0.1".into(),
        port: 1,
        wait: Duration::from_millis(300),
        bind: None,
        token: None,
        qperf: false,
        interrupt: Interrupt::default(),
    };
    let begin = Instant::now();
    let text = client::run(
        &server_addr,
        &Spec::new(Test::Conf),
        &&FakeBackend::default(),
        &Report,
        MonitorOptions::default(),
    )
    .unwrap_err()
    .to_string();
    assert!(
        text.contains("cannot reach the server") && text.contains("300 ms"),
        "{text}"
    );
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
