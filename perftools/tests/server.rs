//! What a server allows, and what it survives.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, fails, json, rperf, run};

/// A file with a secret; removed when dropped.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, text: &str, mode: u32) -> Self {
        let path = std::env::temp_dir().join(format!("rperf-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Self(path)
    }

    fn option(&self) -> String {
        format!("--token-file={}", self.0.display())
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn only_who_has_the_token_is_served() {
    let secret = Secret::new("right", "a secret of some length\n", 0o600);
    let other = Secret::new("wrong", "another secret of length\n", 0o600);
    let server = Server::with(&[&secret.option()]);
    let line = format!("{} {} -n 10 conf tcp_lat", server.here(), secret.option());
    assert_eq!(json(&line).len(), 2);
    let text = fails(&format!("{} conf", server.here()), 1);
    assert!(text.contains("wants a token: give --token-file"), "{text}");
    let text = fails(&format!("{} {} conf", server.here(), other.option()), 1);
    assert!(
        text.contains("the client's token is not the server's"),
        "{text}"
    );
    server.says("token is not the server's");
    // Without the token nothing else is answered either: not a request, not quit.
    let text = fails(&format!("{} quit", server.here()), 1);
    assert!(text.contains("wants a token"), "{text}");
    let text = fails(&format!("{} --qperf conf", server.here()), 1);
    assert!(text.contains("this server wants a token"), "{text}");
    assert_eq!(json(&line).len(), 2);
}

#[test]
fn a_token_file_that_others_may_read_is_refused() {
    let secret = Secret::new("open", "a secret of some length\n", 0o644);
    let text = fails(&format!("-lp 0 {}", secret.option()), 1);
    assert!(text.contains("chmod 600"), "{text}");
}

/// An address of this machine that is not loopback.
fn own_address() -> Option<IpAddr> {
    // Nothing is sent: the system only chooses the address that would be used.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .map(|a| a.ip())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn networks_that_are_not_allowed_are_told_so_and_loopback_always_is() {
    let server = Server::with(&["--allow", "203.0.113.0/24,2001:db8::/32"]);
    server.assert_alive();
    if let Some(own) = own_address() {
        let text = fails(&format!("-lp {} {own} conf", server.port), 1);
        assert!(
            text.contains(&format!("{own} is not served here")),
            "{text}"
        );
        server.says("turned away");
        let allowing = Server::with(&["--allow", &format!("{own}/32")]);
        assert!(
            run(&format!("-lp {} {own} conf", allowing.port))
                .status
                .success()
        );
    }
    let text = fails("-lp 0 --allow 10.0.0.0/99", 2);
    assert!(text.contains("10.0.0.0/99"), "{text}");
}

#[test]
fn limits_on_size_time_and_memory_name_the_servers_option() {
    let server = Server::with(&[
        "--max-size",
        "1M",
        "--max-time",
        "10",
        "--max-memory",
        "600K",
    ]);
    for (words, says) in [
        ("-m 2M tcp_bw", "the server allows 1 MiB (--max-size"),
        ("-t 11 tcp_bw", "the server allows 10 s (--max-time"),
        ("-m 1M tcp_bw", "--max-memory"),
    ] {
        let text = fails(&format!("{} {words}", server.here()), 1);
        assert!(
            text.starts_with("rperf: ") && text.contains("the server: ") && text.contains(says),
            "{words}: {text}"
        );
    }
    assert_eq!(
        json(&format!("{} -n 10 -m 64K tcp_bw", server.here())).len(),
        1
    );
}

#[test]
fn memory_is_limited_over_all_clients() {
    let server = Server::with(&["-v", "--max-memory", "1M"]);
    let line = format!("{} -t 60 -m 800K tcp_bw", server.here());
    let mut first = rperf()
        .args(line.split_whitespace())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    server.says("begins");
    let text = fails(&format!("{} -n 1 -m 800K tcp_bw", server.here()), 1);
    assert!(text.contains("in use (--max-memory"), "{text}");
    first.kill().unwrap();
    first.wait().unwrap();
    server.says("the client closed the connection");
    assert_eq!(
        json(&format!("{} -n 1 -m 800K tcp_bw", server.here())).len(),
        1
    );
}

#[test]
fn clients_that_speak_slowly_or_not_at_all_hold_nobody_up() {
    let server = Server::with(&["--max-clients", "4"]);
    let mut slow: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap())
        .collect();
    // One drips the beginning of a hello, one that of a qperf request, one is silent.
    slow[0].write_all(b"\x89rp").unwrap();
    slow[1].write_all(&[0, 0, 4, 0, 11, 0, 8, 0]).unwrap();
    let begin = Instant::now();
    server.assert_alive();
    assert!(begin.elapsed() < Duration::from_secs(3));
    // All are given up within their time.
    for stream in &mut slow {
        stream
            .set_read_timeout(Some(Duration::from_secs(15)))
            .unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(begin.elapsed() < Duration::from_secs(15));
    server.assert_alive();
}

#[test]
fn requests_of_qperf_with_any_bytes_leave_the_server_serving() {
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
    let begin = Instant::now();
    while !run(&format!("{} conf", server.here())).status.success() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "the server does not serve on"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn sigterm_in_the_middle_of_a_test_ends_both_ends_cleanly() {
    let server = Server::with(&["-v"]);
    let line = format!("{} -t 60 tcp_bw", server.here());
    let client = std::thread::spawn(move || fails(&line, 1));
    server.says("begins");
    assert!(
        Command::new("kill")
            .arg(server.pid().to_string())
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(server.wait(), Some(0));
    let text = client.join().unwrap();
    assert!(text.contains("the server was stopped"), "{text}");
}

#[test]
fn options_of_the_server_are_refused_at_a_client() {
    for option in [
        "--allow 10.0.0.0/8",
        "--max-memory 1G",
        "--max-time 1",
        "--max-size 1M",
        "--allow-quit",
        "--max-clients 1",
    ] {
        let text = fails(&format!("node tcp_bw {option}"), 2);
        assert!(text.contains("is for the server"), "{option}: {text}");
    }
}

#[test]
fn the_units_command_line_is_one_that_serves() {
    let unit = include_str!("../systemd/rperf.service");
    let line = unit
        .lines()
        .find_map(|l| l.strip_prefix("ExecStart=/usr/bin/rperf "))
        .unwrap();
    let server = Server::with(&line.split_whitespace().collect::<Vec<_>>());
    server.assert_alive();
}

#[test]
fn a_server_outlives_whoever_read_its_log() {
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
    // Each is a line of the log, which nobody takes any more.
    for _ in 0..3 {
        let mut stray = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stray.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let _ = stray.read(&mut [0; 16]);
    }
    let output = run(&format!("-lp {port} 127.0.0.1 conf"));
    let _ = child.kill();
    let _ = child.wait();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
