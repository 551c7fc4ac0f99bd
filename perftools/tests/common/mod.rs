//! What the tests of the program share.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) fn rperf() -> Command {
    Command::new(env!("CARGO_BIN_EXE_rperf"))
}

/// Runs `rperf` with these words.
pub(crate) fn run(line: &str) -> Output {
    rperf().args(line.split_whitespace()).output().unwrap()
}

/// Runs `rperf`, which has to fail with this status; returns what it said.
pub(crate) fn fails(line: &str, status: i32) -> String {
    let output = run(line);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{line}: {text}");
    assert!(text.starts_with("rperf: "), "{line}: {text}");
    assert!(!text.contains("panicked"), "{line}: {text}");
    text
}

/// Runs `rperf --json`, which has to succeed; returns the tests of its document.
pub(crate) fn json(line: &str) -> Vec<Value> {
    let output = run(&format!("--json {line}"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{line}: {text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], 1);
    document["tests"].as_array().unwrap().clone()
}

/// A server process; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    lines: Receiver<String>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Self {
        Self::of(rperf().args(["-lp", "0"]).args(options))
    }

    /// A command that is a server.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let first = lines
            .recv_timeout(Duration::from_secs(60))
            .expect("the server says where it serves");
        let port = first
            .rsplit(':')
            .next()
            .and_then(|p| p.parse().ok())
            .expect("a port");
        Self { child, port, lines }
    }

    /// The words that lead a client here.
    pub(crate) fn here(&self) -> String {
        format!("-lp {} localhost", self.port)
    }

    /// Waits for a line of the server's log.
    pub(crate) fn says(&self, what: &str) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        let mut heard = Vec::new();
        while let Ok(line) = self
            .lines
            .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            if line.contains(what) {
                return line;
            }
            heard.push(line);
        }
        panic!("the server never said {what}: {heard:?}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; returns its status.
    pub(crate) fn wait(mut self) -> Option<i32> {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not end");
    }

    /// It still answers.
    pub(crate) fn assert_alive(&self) {
        let output = run(&format!("{} conf", self.here()));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ended = self.child.try_wait();
            println!(
                "the server: {ended:?}, {:#?}",
                self.lines.try_iter().collect::<Vec<_>>()
            );
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The devices that the lab offers, by the environment variable that it sets.
pub(crate) fn devices() -> Vec<String> {
    let names = std::env::var("RDMA_LAB_DEVICES")
        .expect("RDMA_LAB_DEVICES names the devices: run by ci/lab");
    let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
    assert!(!names.is_empty(), "RDMA_LAB_DEVICES is empty");
    for name in &names {
        println!("device: {name}");
    }
    names
}

/// Whether a device can be connected without rdma_cm: not an iWARP one, whose node type is 4.
pub(crate) fn connects_directly(device: &str) -> bool {
    let path = format!("/sys/class/infiniband/{device}/node_type");
    !std::fs::read_to_string(path)
        .unwrap_or_default()
        .starts_with('4')
}

/// The network interface behind a device's first port.
pub(crate) fn netdev(device: &str) -> String {
    let path = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0");
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

/// Runs `ip`; returns what it printed.
pub(crate) fn ip(words: &str) -> String {
    let output = Command::new("ip")
        .args(words.split_whitespace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "ip {words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The global addresses of an interface, with their prefixes.
pub(crate) fn addresses(netdev: &str, family: &str) -> Vec<String> {
    let shown = ip(&format!(
        "{family} -oneline address show dev {netdev} scope global"
    ));
    shown
        .lines()
        .filter_map(|l| l.split_whitespace().nth(3))
        .map(str::to_owned)
        .collect()
}

/// An IPv4 address of the device: qperf's rdma_cm has no other.
pub(crate) fn address(device: &str) -> String {
    let all = addresses(&netdev(device), "-4");
    all[0].split('/').next().unwrap().to_owned()
}

/// The commands that the README has in code, in blocks and in sentences, up to a comment.
pub(crate) fn readme() -> Vec<String> {
    let mut all = Vec::new();
    let mut inside = false;
    for line in include_str!("../../../README.md").lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            all.extend(line.split([';', '&']).map(str::to_owned));
        } else {
            all.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    all.iter()
        .map(|line| {
            line.split('#')
                .next()
                .unwrap_or_default()
                .trim()
                .trim_end_matches('\'')
                .to_owned()
        })
        .collect()
}
