//! Running programs, ours and the real ones, none for longer than it should.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ibverbs::{Device, device::TransportType};

const DEADLINE: Duration = Duration::from_secs(120);

/// The devices to test on; a run without one is a failed run.
pub(crate) fn devices() -> Vec<Device> {
    let names = std::env::var("RDMA_LAB_DEVICES")
        .expect("RDMA_LAB_DEVICES names the devices to test on: run by ci/lab");
    let all: Vec<Device> = names
        .split_whitespace()
        .map(|name| Device::by_name(name).expect(name))
        .collect();
    assert!(!all.is_empty(), "RDMA_LAB_DEVICES names no device");
    for device in &all {
        println!("device: {}", device.name());
    }
    all
}

/// Whether queue pairs of the device connect without rdma_cm.
pub(crate) fn connects(device: &Device) -> bool {
    device.transport() == TransportType::IB
}

/// What a program of this package is called.
macro_rules! example {
    ($name:literal) => {
        env!(concat!("CARGO_BIN_EXE_", $name))
    };
}
pub(crate) use example;

/// A program that runs.
pub(crate) struct Running {
    line: String,
    child: Child,
    stdout: Printed,
    stderr: Printed,
}

/// What a program prints, as far as it has come.
struct Printed {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Printed {
    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("whole")).into_owned()
    }

    fn all(self) -> String {
        let Self { bytes, reader } = self;
        reader.join().expect("reads a pipe");
        String::from_utf8_lossy(&bytes.lock().expect("whole")).into_owned()
    }
}

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Starts a program with the arguments that stand in `arguments`.
pub(crate) fn start(program: &str, arguments: &str) -> Running {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace());
    let piped = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error} (of ibverbs-utils?)"));
    let stdout = collect(child.stdout.take().expect("piped"));
    let stderr = collect(child.stderr.take().expect("piped"));
    Running {
        line: format!("{program} {arguments}"),
        child,
        stdout,
        stderr,
    }
}

/// Runs a program to its end.
pub(crate) fn run(program: &str, arguments: &str) -> Ended {
    start(program, arguments).end()
}

fn collect(mut pipe: impl Read + Send + 'static) -> Printed {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let filled = Arc::clone(&bytes);
    let reader = thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Some(len) = pipe.read(&mut piece).ok().filter(|&len| len > 0) {
            filled
                .lock()
                .expect("whole")
                .extend_from_slice(&piece[..len]);
        }
    });
    Printed { bytes, reader }
}

impl Running {
    /// Waits for its end; what does not end is killed and no success.
    pub(crate) fn end(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break Some(status),
                None if begun.elapsed() > DEADLINE => break None,
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        if status.is_none() {
            self.child.kill().expect("a child");
            self.child.wait().expect("a child");
        }
        let (stdout, stderr) = (self.stdout.all(), self.stderr.all());
        let how = status.map_or("killed, as it did not end".to_owned(), |status| {
            status.to_string()
        });
        println!("{}: {how}\n{stdout}{stderr}", self.line);
        Ended {
            success: status.is_some_and(|status| status.success()),
            stdout,
            stderr,
        }
    }

    /// Whether it has not ended yet.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Ends it, whatever it is at.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }

    /// Waits until it has printed something.
    pub(crate) fn printed(self, text: &str) -> Self {
        let begun = Instant::now();
        while !self.stdout.so_far().contains(text) {
            let (out, err) = (self.stdout.so_far(), self.stderr.so_far());
            assert!(
                begun.elapsed() < DEADLINE,
                "{} does not print {text:?}: {out}{err}",
                self.line
            );
            thread::sleep(Duration::from_millis(2));
        }
        self
    }

    /// Waits until something listens at a TCP port; connecting to try would be taken for the
    /// client.
    pub(crate) fn listening(self, port: u16) -> Self {
        let begun = Instant::now();
        let wanted = format!(":{port:04X} ");
        while !["tcp", "tcp6"].iter().any(|table| {
            let table = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
            table
                .lines()
                .any(|line| line.contains(&wanted) && line.split_whitespace().nth(3) == Some("0A"))
        }) {
            assert!(begun.elapsed() < DEADLINE, "{} does not listen", self.line);
            thread::sleep(Duration::from_millis(2));
        }
        self
    }
}

/// A TCP port that no other test uses.
pub(crate) fn tcp_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(18600);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
