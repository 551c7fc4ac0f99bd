//! Client and server over loopback TCP, with the fake wire for data.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use clap::Parser;

use super::client::{self, ServerAddr};
use super::fake_backend::{FakeBackend, via};
use super::message::Message;
use super::rules::Rules;
use super::server::Server;
use crate::common::error::Result;
use crate::common::protocol::frame;
use crate::common::protocol::hello::{self, PROTOCOL};
use crate::rperf::args::options::Options;
use crate::rperf::report::record::Outcome;
use crate::rperf::spec::Spec;
use crate::rperf::spec::test::Test;
use crate::rperf::stats::monitor::MonitorOptions;
use crate::rperf::transport::{Backend, ClientEndpoints, ControlAddrs};

fn spec(test: Test, options: &str) -> Spec {
    let args = std::iter::once("rperf").chain(options.split_whitespace());
    Options::try_parse_from(args)
        .unwrap()
        .to_spec(test)
        .unwrap()
}

fn server_addr(address: SocketAddr) -> ServerAddr {
    ServerAddr {
        host: address.ip().to_string(),
        port: address.port(),
        wait: Duration::from_secs(2),
        token: None,
        qperf: false,
    }
}

/// Runs `body` beside a server; the server has to be alive at the end, and ends by `quit`.
fn with_server(max_clients: u32, body: impl FnOnce(SocketAddr, &FakeBackend)) {
    let backend = FakeBackend::default();
    let mut server = Server::bind(
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        0,
        Rules::default().clients(max_clients),
    )
    .unwrap()
    .quiet();
    let address = server.local_addr().unwrap();
    std::thread::scope(|scope| {
        let (stopper, backend) = (server.stopper(), &backend);
        let serving = scope.spawn(move || server.run(&backend));
        // A failed assertion stops the server too, else the scope would wait for it.
        let body = std::panic::AssertUnwindSafe(|| {
            body(address, backend);
            assert_alive(address);
            let quit = until_served(|| {
                client::run(
                    &server_addr(address),
                    &spec(Test::Quit, ""),
                    &backend,
                    MonitorOptions::default(),
                )
            });
            assert_eq!(quit, Outcome::Quit);
        });
        if let Err(panic) = std::panic::catch_unwind(body) {
            stopper.stop();
            std::panic::resume_unwind(panic);
        }
        assert_eq!(serving.join().unwrap(), Ok(()));
    });
}

/// The server answers, at the latest when it has noticed that its last client is gone.
fn assert_alive(address: SocketAddr) {
    until_served(|| {
        client::run(
            &server_addr(address),
            &spec(Test::Conf, ""),
            &&FakeBackend::default(),
            MonitorOptions::default(),
        )
    });
}

/// Tries until the server has room.
fn until_served(run: impl Fn() -> Result<Outcome>) -> Outcome {
    let begin = Instant::now();
    loop {
        match run() {
            Ok(outcome) => return outcome,
            Err(error)
                if error.to_string().contains("as many clients as it takes")
                    && begin.elapsed() < Duration::from_secs(3) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A raw connection that has greeted.
fn greeted(address: SocketAddr, protocol: u16) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.write_all(&hello::encode(protocol)).unwrap();
    let mut theirs = [0; hello::LEN];
    stream.read_exact(&mut theirs).unwrap();
    assert!(matches!(hello::decode(&theirs), hello::Peer::Rperf(h) if h.protocol == PROTOCOL));
    stream
}

/// A raw connection that has asked for a test and was offered it.
fn offered(address: SocketAddr, backend: &FakeBackend, spec: Spec) -> TcpStream {
    let mut stream = greeted(address, PROTOCOL);
    let (_, ask) = backend
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
            ask: Some(ask),
        },
    )
    .unwrap();
    assert!(matches!(frame::read(&mut stream), Ok(Message::Offer(_))));
    stream
}

#[test]
fn every_test_runs_and_both_ends_agree_on_the_counts() {
    with_server(8, |address, backend| {
        for (test, received_here) in [(Test::RcBw, 0), (Test::RcBiBw, 200), (Test::RcLat, 200)] {
            let outcome = client::run(
                &server_addr(address),
                &spec(test, "--messages 200 --msg-size 1K"),
                &backend,
                MonitorOptions::default(),
            )
            .unwrap();
            let Outcome::Measured(m) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(
                (m.local_stats.sent.msgs, m.remote_stats.received.msgs),
                (200, 200),
                "{test:?}"
            );
            assert_eq!(m.local_stats.received.msgs, received_here, "{test:?}");
            assert_eq!(m.latency.is_some(), test == Test::RcLat);
        }
    });
}

#[test]
fn the_counts_of_several_threads_are_summed_at_both_ends() {
    with_server(8, |address, backend| {
        for (test, received_here) in [(Test::RcBw, 0), (Test::RcBiBw, 200)] {
            let spec = spec(test, "--threads 3 --messages 200 --msg-size 1K");
            let watch = MonitorOptions {
                interval: Some(Duration::from_millis(20)),
                observer: None,
            };
            let Outcome::Measured(m) =
                client::run(&server_addr(address), &spec, &backend, watch).unwrap()
            else {
                panic!("{test:?}")
            };
            let watched: u64 = m.intervals.iter().map(|interval| interval.msgs).sum();
            assert_eq!(watched, 200 + received_here, "{test:?}: {:?}", m.intervals);
            assert_eq!(
                (m.local_stats.sent.msgs, m.remote_stats.received.msgs),
                (200, 200),
                "{test:?}"
            );
            assert_eq!(m.local_stats.received.msgs, received_here, "{test:?}");
            let each: Vec<u64> = m
                .local_stats
                .threads
                .iter()
                .map(|thread| thread.sent.msgs)
                .collect();
            assert_eq!(each, [67, 67, 66], "{test:?}");
        }
        let lat = Options::try_parse_from(["rperf", "--threads=2"])
            .unwrap()
            .to_spec(Test::RcLat);
        assert!(
            lat.unwrap_err()
                .to_string()
                .contains("rc_lat uses one thread; help: remove --threads")
        );
    });
}

#[test]
fn several_clients_are_served_at_once() {
    with_server(8, |address, backend| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    client::run(
                        &server_addr(address),
                        &spec(Test::RcBw, "--time 200ms"),
                        &backend,
                        MonitorOptions::default(),
                    )
                    .unwrap()
                });
            }
        });
    });
}

#[test]
fn the_server_checks_what_it_is_sent_and_says_what_is_wrong() {
    with_server(8, |address, backend| {
        let mut wrong = spec(Test::RcBw, "");
        wrong.msg_size = 8 << 30;
        let text = client::run(
            &server_addr(address),
            &wrong,
            &backend,
            MonitorOptions::default(),
        )
        .unwrap_err()
        .to_string();
        assert!(
            text.starts_with("the server: message size of 8 GiB: the maximum is 1 GiB"),
            "{text}"
        );
        let large = spec(Test::RcBw, "--msg-size 2M");
        let text = client::run(
            &server_addr(address),
            &large,
            &backend,
            MonitorOptions::default(),
        )
        .unwrap_err()
        .to_string();
        assert!(text.contains("the maximum of fake0 is 1 MiB"), "{text}");
    });
}

#[test]
fn another_version_is_told_both_versions() {
    with_server(8, |address, _| {
        let mut stream = greeted(address, 99);
        let Ok(Message::Error { text }) = frame::read(&mut stream) else {
            panic!("no error")
        };
        assert!(
            text.contains("version 99") && text.contains(&format!("version {PROTOCOL} ")),
            "{text}"
        );
    });
}

#[test]
fn a_qperf_client_is_answered_in_its_own_way() {
    with_server(8, |address, _| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut request = vec![0; 200];
        request[..8].copy_from_slice(&[0, 0, 4, 0, 11, 0, 29, 0]);
        stream.write_all(&request).unwrap();
        // The urgent byte first: reading beyond its place loses it.
        let begin = Instant::now();
        let mut urgent = [std::mem::MaybeUninit::uninit()];
        while socket2::SockRef::from(&stream)
            .recv_out_of_band(&mut urgent)
            .is_err()
        {
            assert!(
                begin.elapsed() < Duration::from_secs(5),
                "no urgent byte came"
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
fn silent_and_half_open_connections_hold_nobody_up() {
    with_server(8, |address, backend| {
        let silent = TcpStream::connect(address).unwrap();
        let half = greeted(address, PROTOCOL);
        let begin = Instant::now();
        client::run(
            &server_addr(address),
            &spec(Test::RcLat, "--messages 10"),
            &backend,
            MonitorOptions::default(),
        )
        .unwrap();
        assert!(begin.elapsed() < Duration::from_secs(2));
        drop((silent, half));
    });
}

#[test]
fn a_client_that_vanishes_in_the_middle_leaves_the_server_serving() {
    with_server(1, |address, backend| {
        let mut stream = offered(address, backend, spec(Test::RcBw, "--time 60"));
        frame::write(
            &mut stream,
            &Message::Answer(ClientEndpoints { ends: vec![] }),
        )
        .unwrap();
        let ready = Message::Ready {
            via: via(),
            memory: Vec::new(),
            warnings: Vec::new(),
        };
        frame::write(&mut stream, &ready).unwrap();
        assert!(matches!(
            frame::read(&mut stream),
            Ok(Message::Ready { .. })
        ));
        drop(stream);
        // Only one client is served at once: the test that lost its client has to make room, which
        // the end of this looks at.
    });
}

#[test]
fn a_client_that_is_silent_for_too_long_is_told_so() {
    with_server(1, |address, backend| {
        let mut stream = offered(address, backend, spec(Test::RcBw, "--remote-timeout 50ms"));
        let Ok(Message::Error { text }) = frame::read(&mut stream) else {
            panic!("no error")
        };
        assert!(text.contains("the client said nothing for 50 ms"), "{text}");
    });
}

#[test]
fn a_client_too_many_is_told_so() {
    with_server(1, |address, backend| {
        let first = greeted(address, PROTOCOL);
        let text = client::run(
            &server_addr(address),
            &spec(Test::Conf, ""),
            &backend,
            MonitorOptions::default(),
        )
        .unwrap_err()
        .to_string();
        assert!(
            text.contains("as many clients as it takes, 1 (--max-clients"),
            "{text}"
        );
        drop(first);
    });
}

#[test]
fn a_server_that_is_stopped_tells_its_clients() {
    let backend = FakeBackend::default();
    let mut server = Server::bind(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, Rules::default())
        .unwrap()
        .quiet();
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    std::thread::scope(|scope| {
        let backend = &backend;
        let serving = scope.spawn(move || server.run(&backend));
        let running = scope.spawn(move || {
            client::run(
                &server_addr(address),
                &spec(Test::RcBw, "--time 60"),
                &backend,
                MonitorOptions::default(),
            )
        });
        std::thread::sleep(Duration::from_millis(200));
        stopper.stop();
        let text = running.join().unwrap().unwrap_err().to_string();
        assert!(text.contains("the server was stopped"), "{text}");
        serving.join().unwrap().unwrap();
    });
}

#[test]
fn messages_out_of_turn_are_refused() {
    with_server(8, |address, _| {
        for message in [
            Message::Finished { sent: 1, thread: 0 },
            Message::Quitting,
            Message::Answer(ClientEndpoints { ends: vec![] }),
        ] {
            let mut stream = greeted(address, PROTOCOL);
            frame::write(&mut stream, &message).unwrap();
            let Ok(Message::Error { text }) = frame::read(&mut stream) else {
                panic!("no error")
            };
            assert!(text.contains("out of turn"), "{text}");
        }
        let mut stream = greeted(address, PROTOCOL);
        let spec = Box::new(spec(Test::RcBw, ""));
        frame::write(&mut stream, &Message::Request { spec, ask: None }).unwrap();
        assert!(matches!(
            frame::read(&mut stream),
            Ok(Message::Error { .. })
        ));
    });
}

#[test]
fn whoever_listens_instead_of_rperf_is_named_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stranger = std::thread::spawn(move || {
        listener
            .accept()
            .unwrap()
            .0
            .write_all(b"220 ftp.example.org ready\r\n")
    });
    let text = client::run(
        &server_addr(address),
        &spec(Test::Conf, ""),
        &&FakeBackend::default(),
        MonitorOptions::default(),
    )
    .unwrap_err()
    .to_string();
    assert!(text.contains("is no rperf server"), "{text}");
    stranger.join().unwrap().unwrap();
}

#[test]
fn nobody_there_says_so_in_time() {
    let server_addr = ServerAddr {
        host: "127.0.0.1".into(),
        port: 1,
        wait: Duration::from_millis(300),
        token: None,
        qperf: false,
    };
    let begin = Instant::now();
    let text = client::run(
        &server_addr,
        &spec(Test::Conf, ""),
        &&FakeBackend::default(),
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
    fn the_server_survives_any_bytes(lots in proptest::collection::vec((proptest::arbitrary::any::<bool>(), proptest::collection::vec(0_u8.., 0..400)), 1..8)) {
        with_server(8, |address, _| {
            for (greets, bytes) in &lots {
                let mut stream = if *greets { greeted(address, PROTOCOL) } else { TcpStream::connect(address).unwrap() };
                let _ = stream.write_all(bytes);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read(&mut [0; 1024]);
            }
        });
    }
}
