//! Sessions whose bytes are changed on the way, in both directions.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use test_support::process::{self, wait_until};
use test_support::random::Random;
use test_support::temp_dir::TempDir;
use test_support::usage::Usage;

use crate::common::{Server, rperf, run};

/// Longest time in which a client must end on its own. `ribinfo` waits up to 20 s for its peer.
const CLIENT_LIMIT: Duration = Duration::from_secs(60);

/// Returns a number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Runs `attack` with the numbers below `count`, `at_once` at a time, each with its own random
/// numbers.
fn in_parallel(at_once: u64, count: u64, seed: u64, attack: impl Fn(u64, &mut Random) + Sync) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    attack(number, &mut Random::new((seed ^ number << 20).max(1)));
                }
            });
        }
    });
}

/// Writes a token. Returns the directory, which is removed on drop, and the file.
pub(crate) fn token_file() -> (TempDir, PathBuf) {
    let dir = TempDir::new();
    let path = dir.write("token", "a secret of some length");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("permissions");
    (dir, path)
}

/// A change of the bytes of a connection.
#[derive(Clone, Copy)]
struct Mutation {
    /// Number of the byte at which it begins.
    at: u64,
    kind: u64,
    value: u64,
}

/// Copies a stream and changes it.
fn copy(mut from: TcpStream, mut to: TcpStream, mutation: Option<Mutation>) {
    let (mut offset, mut buffer) = (0, [0; 4096]);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..len].to_vec();
        if let Some(Mutation { at, kind, value }) = mutation {
            if let Some(index) = at.checked_sub(offset).filter(|i| *i < len as u64) {
                let index = usize::try_from(index).expect("an index");
                match kind {
                    0 => bytes[index] ^= 1 << (value % 8),
                    1 => bytes[index] = value.to_le_bytes()[0],
                    2 => drop(bytes.remove(index)),
                    3 => bytes.insert(index, value.to_le_bytes()[0]),
                    4 => bytes.truncate(index),
                    _ => bytes.splice(index.., value.to_le_bytes()).for_each(drop),
                }
            }
        }
        offset += len as u64;
        if to.write_all(&bytes).is_err() {
            break;
        }
        if mutation.is_some_and(|m| m.kind == 4 && m.at < offset) {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// Returns the command of a client that connects to a port of this host.
type Client = fn(u16, &str) -> Command;

fn rperf_client(port: u16, words: &str) -> Command {
    let mut command = rperf();
    let line = format!("-lp {port} --timeout 1 -ws 1 -n 20 {words}");
    command.args(line.split_whitespace());
    command
}

/// Facts of a host that the clients and servers of `ribinfo` read in the place of their own.
const HOST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hosts/mlx4");

fn ribinfo(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
    command.args(line.split_whitespace()).args(["--root", HOST]);
    command.stdin(Stdio::null());
    command
}

fn ribinfo_client(port: u16, words: &str) -> Command {
    ribinfo(&format!("check --peer 127.0.0.1 --port {port} {words}"))
}

/// Runs a client whose connection to the server is changed in one direction. The client must end on
/// its own.
fn run_mutated(port: u16, client: Client, words: &str, random: &mut Random) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy_port = listener.local_addr().expect("an address").port();
    let is_over = Arc::new(AtomicBool::new(false));
    // The first bytes are those of the greeting.
    let end = if random.below(2) == 0 { 232 } else { 1500 };
    let mutation = Mutation {
        at: random.below(end) as u64,
        kind: random.below(6) as u64,
        value: random.next_u64(),
    };
    let from_client = random.below(2) == 0;
    let proxy = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while let Ok((client, _)) = listener.accept() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
                let (client_reader, server_reader) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                let [up, down] = if from_client {
                    [Some(mutation), None]
                } else {
                    [None, Some(mutation)]
                };
                thread::spawn(move || copy(client_reader, server, up));
                thread::spawn(move || copy(server_reader, client, down));
            }
        }
    });
    let mut command = client(proxy_port, words);
    let output = process::Process::spawn(&mut command).wait_timeout(CLIENT_LIMIT);
    is_over.store(true, Ordering::Relaxed);
    let _ = TcpStream::connect(("127.0.0.1", proxy_port));
    proxy.join().expect("the proxy");
    assert!(!output.stderr.contains("panicked"), "{words}: {output}");
    assert!(matches!(output.code(), Some(0..=2)), "{words}: {output}");
    output.success()
}

/// Sessions of one protocol.
struct Sessions<'a> {
    client: Client,
    /// Arguments of the clients, among which one is chosen at random.
    words: &'a [&'a str],
    count: u64,
    /// Sessions at the same time. Most of them wait for a time limit.
    at_once: u64,
}

/// Runs sessions with a server and changes each of them in one direction.
fn run_sessions(server: Server, sessions: &Sessions<'_>, responds: impl Fn(&Server)) {
    let Sessions {
        client,
        words,
        count,
        at_once,
    } = *sessions;
    let seed = setting("HOSTILE_SEED", 1);
    let pid = server.id();
    let succeeded = AtomicU64::new(0);
    let begin = Instant::now();
    in_parallel(at_once, count, seed, |_, random| {
        let words = words[random.below(words.len())];
        if run_mutated(server.port, client, words, random) {
            succeeded.fetch_add(1, Ordering::Relaxed);
        }
    });
    responds(&server);
    let is_idle = wait_until(Duration::from_secs(40), || Usage::of(pid).files <= 16);
    assert!(is_idle, "{}", Usage::of(pid));
    println!(
        "{count} sessions, seed {seed}: {} succeeded, {:?}",
        succeeded.into_inner(),
        begin.elapsed()
    );
    server.signal("TERM");
    let output = server.wait_for_exit();
    assert!(
        output.success() && !output.stderr.contains("panicked"),
        "{output}"
    );
}

#[test]
fn changed_sessions_end_on_both_sides() {
    let words = [
        "127.0.0.1 tcp_lat",
        "127.0.0.1 udp_bw conf",
        "--qperf 127.0.0.1 tcp_lat",
        "--qperf 127.0.0.1 conf udp_bw",
    ];
    let server = Server::with_options(&["--max-timeout", "1"]);
    let sessions = Sessions {
        client: rperf_client,
        words: &words,
        count: 2 * setting("HOSTILE_SESSIONS", 40),
        at_once: 32,
    };
    run_sessions(server, &sessions, Server::assert_responds);
}

#[test]
fn changed_sessions_with_a_token_end_on_both_sides() {
    let token = token_file();
    let option = format!("--token-file={}", token.1.display());
    let words = [
        format!("{option} 127.0.0.1 tcp_lat"),
        format!("{option} 127.0.0.1 udp_bw conf"),
    ];
    let server = Server::with_options(&["--max-timeout", "1", &option]);
    let sessions = Sessions {
        client: rperf_client,
        words: &[words[0].as_str(), &words[1]],
        count: setting("HOSTILE_SESSIONS", 40),
        at_once: 32,
    };
    run_sessions(server, &sessions, |server| {
        let line = format!("{} {option} conf", server.target());
        assert!(run(&line).success());
    });
}

#[test]
fn changed_facts_end_on_both_sides() {
    let server = Server::start();
    let sessions = Sessions {
        client: ribinfo_client,
        words: &[""],
        count: setting("HOSTILE_SESSIONS", 40),
        // The server refuses more than 16.
        at_once: 12,
    };
    run_sessions(server, &sessions, |server| {
        let output = process::output(&mut ribinfo_client(server.port, ""));
        // The hosts differ, which can be a fault.
        assert!(matches!(output.code(), Some(0 | 1)), "{output}");
        assert!(!output.stderr.contains("ribinfo: "), "{output}");
    });
}
