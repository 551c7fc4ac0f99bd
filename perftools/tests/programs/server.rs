//! Limits and robustness of the `rperf` server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Server, fails, json, rperf, run, spawn};
use test_support::process::wait_until;
use test_support::temp_dir::TempDir;
use test_support::text::assert_contains;

/// A file with a token. It is removed when it is dropped.
struct TokenFile {
    path: PathBuf,
    _dir: TempDir,
}

impl TokenFile {
    fn new(text: &str, mode: u32) -> Self {
        let dir = TempDir::new();
        let path = dir.write("token", text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Self { path, _dir: dir }
    }

    fn option(&self) -> String {
        format!("--token-file={}", self.path.display())
    }
}

#[test]
fn only_clients_with_the_token_are_accepted() {
    let token = TokenFile::new("a secret of some length\n", 0o600);
    let other = TokenFile::new("another secret of length\n", 0o600);
    let server = Server::with_options(&[&token.option()]);
    let line = format!("{} {} -n 10 conf tcp_lat", server.target(), token.option());
    assert_eq!(json(&line).len(), 2);
    let text = fails(&format!("{} conf", server.target()), 1);
    assert_contains(&text, &["requires a token; help: set --token-file"]);
    let text = fails(&format!("{} {} conf", server.target(), other.option()), 1);
    assert_contains(&text, &["the client's token differs from the server's"]);
    server.wait_for_log("token differs from the server's");
    // Without the token, the server also rejects `quit` and requests of `qperf`.
    let text = fails(&format!("{} quit", server.target()), 1);
    assert!(text.contains("requires a token"), "{text}");
    let text = fails(&format!("{} --qperf conf", server.target()), 1);
    assert!(text.contains("the server requires a token"), "{text}");
    assert_eq!(json(&line).len(), 2);
}

#[test]
fn token_file_readable_by_others_is_rejected() {
    let token = TokenFile::new("a secret of some length\n", 0o644);
    let text = fails(&format!("-lp 0 {}", token.option()), 1);
    assert!(text.contains("chmod 600"), "{text}");
}

/// Returns an address of this host that is not loopback.
fn own_address() -> Option<IpAddr> {
    // Connecting a UDP socket sends nothing. It only selects the local address.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .map(|a| a.ip())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn each_address_of_this_host_is_allowed() {
    let server = Server::with_options(&["--allow", "203.0.113.0/24,2001:db8::/32"]);
    server.assert_responds();
    if let Some(own) = own_address() {
        let output = run(&format!("-lp {} {own} conf", server.port));
        assert!(output.success(), "{own}: {output}");
    }
    let text = fails("-lp 0 --allow 10.0.0.0/99", 2);
    assert!(text.contains("10.0.0.0/99"), "{text}");
}

#[test]
fn errors_for_server_limits_name_the_option() {
    let server =
        Server::with_options(&["--max-size", "1M", "--max-time", "10", "--max-memory", "1M"]);
    for (words, expected) in [
        (
            "-m 2M tcp_bw",
            "the server allows at most 1 MiB; help: set --max-size",
        ),
        (
            "-t 11 tcp_bw",
            "the server allows at most 10 s; help: set --max-time",
        ),
        ("-m 1M tcp_bw", "--max-memory"),
    ] {
        let text = fails(&format!("{} {words}", server.target()), 1);
        assert!(
            text.starts_with("rperf: ") && text.contains("the server: ") && text.contains(expected),
            "{words}: {text}"
        );
    }
    assert_eq!(
        json(&format!("{} -n 10 -m 64K tcp_bw", server.target())).len(),
        1
    );
}

#[test]
fn memory_limit_applies_to_all_clients_together() {
    let server = Server::with_options(&["-v", "--max-memory", "2M"]);
    let line = format!("{} -t 60 -m 800K tcp_bw", server.target());
    let first = spawn(&line);
    server.wait_for_log("begins");
    let text = fails(&format!("{} -n 1 -m 800K tcp_bw", server.target()), 1);
    assert!(text.contains("in use; help: set --max-memory"), "{text}");
    first.kill();
    server.wait_for_log("the client closed the connection");
    assert_eq!(
        json(&format!("{} -n 1 -m 800K tcp_bw", server.target())).len(),
        1
    );
}

#[test]
fn slow_and_silent_clients_do_not_block_others() {
    let server = Server::with_options(&["--max-clients", "4"]);
    let mut slow: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap())
        .collect();
    // One client sends an incomplete hello, one an incomplete request of `qperf`, and one nothing.
    slow[0].write_all(b"\x89rp").unwrap();
    slow[1].write_all(&[0, 0, 4, 0, 11, 0, 8, 0]).unwrap();
    let begin = Instant::now();
    server.assert_responds();
    assert!(begin.elapsed() < Duration::from_secs(3));
    // The server closes all of them after its timeout.
    for stream in &mut slow {
        stream
            .set_read_timeout(Some(Duration::from_secs(15)))
            .unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(begin.elapsed() < Duration::from_secs(15));
    server.assert_responds();
}

#[test]
fn silent_connections_take_no_place_of_a_client() {
    let server = Server::with_options(&["--max-clients", "1"]);
    // More than one address may have, so the oldest ones are closed.
    let silent: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap())
        .collect();
    let begin = Instant::now();
    server.assert_responds();
    assert!(begin.elapsed() < Duration::from_secs(3));
    let mut oldest = &silent[0];
    let _ = oldest.set_read_timeout(Some(Duration::from_secs(1)));
    assert!(matches!(oldest.read(&mut [0]), Ok(0)));
}

#[test]
fn a_wrong_token_is_answered_late_and_takes_no_place() {
    let token = TokenFile::new("a secret of some length\n", 0o600);
    let other = TokenFile::new("another secret of length\n", 0o600);
    let server = Server::with_options(&[&token.option(), "--max-clients", "1"]);
    let wrong: Vec<_> = (0..8)
        .map(|_| spawn(&format!("{} {} conf", server.target(), other.option())))
        .collect();
    let begin = Instant::now();
    let line = format!("{} {} conf", server.target(), token.option());
    assert_eq!(json(&line).len(), 1);
    for client in wrong {
        let output = client.wait();
        assert!(output.stderr.contains("token differs"), "{output}");
    }
    assert!(begin.elapsed() >= Duration::from_millis(900));
}

#[test]
fn a_client_with_a_token_rejects_a_server_without() {
    let token = TokenFile::new("a secret of some length\n", 0o600);
    let server = Server::start();
    let text = fails(&format!("{} {} conf", server.target(), token.option()), 1);
    let expected = "the server requires no token, so it may not be the intended server";
    assert!(text.contains(expected), "{text}");
    // A qperf server asks for an upgrade.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let qperf = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"upgrade qperf on server from").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        listener.set_nonblocking(true).unwrap();
        listener.accept().is_ok()
    });
    let text = fails(&format!("-lp {port} {} 127.0.0.1 conf", token.option()), 1);
    assert!(text.contains("the server is a qperf"), "{text}");
    assert!(!qperf.join().unwrap(), "the client tried again as qperf");
    let line = format!("--qperf -lp {port} {} 127.0.0.1 conf", token.option());
    assert!(fails(&line, 2).contains("--token-file with --qperf"));
}

#[test]
fn an_allocation_that_fails_ends_only_the_test() {
    let mut command = std::process::Command::new("sh");
    let rperf = env!("CARGO_BIN_EXE_rperf");
    command.args(["-c", "ulimit -v 300000; exec \"$0\" -lp 0", rperf]);
    let server = Server::spawn(&mut command);
    let text = fails(&format!("{} -m 300M tcp_bw", server.target()), 1);
    assert_contains(&text, &["the server: cannot allocate a buffer of 300 MiB"]);
    server.assert_responds();
}

#[test]
fn a_privileged_data_port_is_rejected() {
    let server = Server::start();
    let text = fails(&format!("{} -ip 80 tcp_bw", server.target()), 1);
    assert_contains(
        &text,
        &["data port 80: the server opens only ports from 1024"],
    );
}

#[test]
fn server_continues_after_random_qperf_requests() {
    let server = Server::start();
    let mut state = 1_u64;
    for index in 0..40_u8 {
        let mut request = vec![0, 0, 4, 0, 11, 0, index, 0];
        request.extend((0..192).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        }));
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let _ = stream.write_all(&request);
        drop(stream);
    }
    let responds = || run(&format!("{} conf", server.target())).success();
    assert!(wait_until(Duration::from_secs(20), responds));
}

#[test]
fn sigterm_during_a_test_stops_both_ends_cleanly() {
    let server = Server::with_options(&["-v"]);
    let line = format!("{} -t 60 tcp_bw", server.target());
    let client = std::thread::spawn(move || fails(&line, 1));
    server.wait_for_log("begins");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let text = client.join().unwrap();
    assert!(text.contains("the server was stopped"), "{text}");
}

#[test]
fn server_options_are_rejected_on_a_client() {
    for option in [
        "--allow 10.0.0.0/8",
        "--max-memory 1G",
        "--max-time 1",
        "--max-timeout 1",
        "--max-threads 1",
        "--max-qps 1",
        "--max-size 1M",
        "--allow-quit",
        "--max-clients 1",
    ] {
        let text = fails(&format!("node tcp_bw {option}"), 2);
        assert!(
            text.contains("is an option of the server"),
            "{option}: {text}"
        );
    }
}

#[test]
fn command_line_of_the_systemd_unit_starts_a_server() {
    let unit = include_str!("../../systemd/rperf.service");
    let line = unit
        .lines()
        .find_map(|l| l.strip_prefix("ExecStart=/usr/bin/rperf "))
        .unwrap();
    let server = Server::with_options(&line.split_whitespace().collect::<Vec<_>>());
    server.assert_responds();
}

#[test]
fn command_line_of_the_daemon_set_starts_a_server() {
    let manifest = include_str!("../../kubernetes/daemonset.yaml");
    let arguments = manifest.lines().skip_while(|line| line.trim() != "- rperf");
    let arguments = arguments
        .map_while(|line| line.trim().strip_prefix("- "))
        .skip(1);
    let token = TokenFile::new("a secret of some length", 0o600);
    let given = |argument: &str| match argument {
        "--token-file=/run/rperf/token" => token.option(),
        other => other.to_owned(),
    };
    let arguments: Vec<_> = arguments.map(given).collect();
    assert!(arguments.contains(&token.option()), "{arguments:?}");
    assert!(
        arguments.iter().any(|a| a.starts_with("--allow=")),
        "{arguments:?}"
    );
    let server = Server::with_options(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let output = run(&format!("{} {} conf", token.option(), server.target()));
    assert!(output.success(), "{output}");
    for text in [manifest, include_str!("../../kubernetes/job.yaml")] {
        assert!(!text.contains("            privileged") && text.contains(r#"drop: ["ALL"]"#));
        let image = concat!("rdma-perftools:v", env!("CARGO_PKG_VERSION"), "\n");
        assert!(text.contains(image), "{image}");
    }
}

#[test]
fn server_continues_when_its_log_pipe_is_closed() {
    let mut child = rperf()
        .args(["-lp", "0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    let port: u16 = first.trim().rsplit(':').next().unwrap().parse().unwrap();
    // Each of these clients causes a log line, which no process reads.
    for _ in 0..3 {
        let mut stray = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stray.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let _ = stray.read(&mut [0; 16]);
    }
    let output = run(&format!("-lp {port} 127.0.0.1 conf"));
    let _ = child.kill();
    let _ = child.wait();
    assert!(output.success(), "{}", output.stderr);
}
