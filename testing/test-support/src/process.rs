//! Child processes: output, readiness, termination.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::net::{Ipv6Addr, TcpListener};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fmt, fs, iter};

/// Longest time that a child process may take to become ready or to exit. It is long because the
/// lab may run under emulation.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of lines of standard output in the message of a failed test.
const MAX_STDOUT_LINES: usize = 40;

/// A running child process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    command_line: String,
    child: Child,
    stdout: Captured,
    stderr: Captured,
}

/// Result of a child process.
#[derive(Debug)]
pub struct Finished {
    /// Exit status; `None` if the process was killed because it did not exit in time.
    pub status: Option<ExitStatus>,
    /// Captured standard output.
    pub stdout: String,
    /// Captured standard error.
    pub stderr: String,
}

impl Finished {
    /// Returns `true` if the process exited with status 0.
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns standard output followed by standard error.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Returns the exit code; `None` if a signal ended the process.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}: ")?,
            None => write!(f, "killed after {TIMEOUT:?}: ")?,
        }
        writeln!(f, "{}", self.stderr.trim_end())?;
        // The errors would drown in a long document.
        let lines: Vec<&str> = self.stdout.lines().collect();
        let omitted = lines.len().saturating_sub(MAX_STDOUT_LINES);
        if omitted > 0 {
            writeln!(f, "… {omitted} lines of standard output …")?;
        }
        lines[omitted..]
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Process {
    /// Starts a program. Its output is captured; its standard input is that of `command`.
    ///
    /// # Panics
    /// Panics if the program cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        let command_line = command_line(command);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| not_started(command, &error));
        let stdout = Captured::new(child.stdout.take().expect("piped"));
        let stderr = Captured::new(child.stderr.take().expect("piped"));
        Self {
            command_line,
            child,
            stdout,
            stderr,
        }
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes the standard input, which `command` must have set to a pipe.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Returns `true` if the process has not exited.
    ///
    /// # Panics
    /// Panics if the state of the process cannot be read.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child process").is_none()
    }

    /// Waits until the process has printed `text` to its standard output or standard error.
    ///
    /// # Panics
    /// Panics if that does not happen within [`TIMEOUT`].
    #[must_use]
    pub fn wait_for_output(self, text: &str) -> Self {
        self.wait_until(&format!("print {text:?}"), |process| {
            process.stdout.text().contains(text) || process.stderr.text().contains(text)
        })
    }

    /// Waits until a process listens on a TCP port. Connecting would be mistaken for a client.
    ///
    /// # Panics
    /// Panics if that does not happen within [`TIMEOUT`].
    #[must_use]
    pub fn wait_for_tcp_listener(self, port: u16) -> Self {
        self.wait_until(&format!("listen on TCP port {port}"), |_| {
            is_listening(port)
        })
    }

    /// Waits until a process listens on a port of rdma_cm.
    ///
    /// # Panics
    /// Panics if that does not happen within [`TIMEOUT`].
    #[must_use]
    pub fn wait_for_cm_listener(self, port: u16) -> Self {
        let suffix = format!(":{port} ");
        self.wait_until(&format!("listen on rdma_cm port {port}"), |_| {
            run_line("rdma resource show cm_id")
                .lines()
                .any(|line| line.contains("state LISTEN") && line.contains(&suffix))
        })
    }

    fn wait_until(self, action: &str, condition: impl Fn(&Self) -> bool) -> Self {
        let start = Instant::now();
        while !condition(&self) {
            assert!(
                start.elapsed() < TIMEOUT,
                "{} did not {action}: {}{}",
                self.command_line,
                self.stdout.text(),
                self.stderr.text()
            );
            thread::sleep(Duration::from_millis(5));
        }
        self
    }

    /// Waits for the next line on standard output that contains `text`, and returns it. Each line
    /// is searched once.
    ///
    /// # Panics
    /// Panics if the line does not come within [`TIMEOUT`] or the process closes its output.
    pub fn next_stdout_line(&self, text: &str) -> String {
        self.stdout.next_line(text, &self.command_line)
    }

    /// Waits for the next line on standard error that contains `text`, and returns it. Each line
    /// is searched once.
    ///
    /// # Panics
    /// Panics if the line does not come within [`TIMEOUT`] or the process closes its output.
    pub fn next_stderr_line(&self, text: &str) -> String {
        self.stderr.next_line(text, &self.command_line)
    }

    /// Waits until the process exits. A process that does not exit within [`TIMEOUT`] is killed.
    pub fn wait(self) -> Finished {
        self.wait_timeout(TIMEOUT)
    }

    /// Waits until the process exits. A process that does not exit in time is killed.
    ///
    /// # Panics
    /// Panics if the state of the process cannot be read.
    pub fn wait_timeout(mut self, timeout: Duration) -> Finished {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("a child process") {
                Some(status) => break Some(status),
                None if start.elapsed() > timeout => break None,
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        self.end();
        Finished {
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub fn interrupt(&self) {
        send_signal(self.id(), "INT");
    }

    /// Kills the process and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    /// Ends the process and reads the rest of its output.
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.stdout.wait_closed();
        self.stderr.wait_closed();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        if thread::panicking() {
            println!(
                "{}\n{}{}",
                self.command_line,
                self.stdout.text(),
                self.stderr.text()
            );
        }
    }
}

/// Output of a process, collected by a thread.
#[derive(Debug)]
struct Captured(Arc<(Mutex<Text>, Condvar)>);

#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    /// Number of bytes that `next_line` has searched.
    searched: usize,
    closed: bool,
}

impl Captured {
    fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let captured = Self(Arc::default());
        let writer = Self(Arc::clone(&captured.0));
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(len @ 1..) = pipe.read(&mut chunk) {
                writer.lock().bytes.extend_from_slice(&chunk[..len]);
                writer.0.1.notify_all();
            }
            writer.lock().closed = true;
            writer.0.1.notify_all();
        });
        captured
    }

    fn lock(&self) -> MutexGuard<'_, Text> {
        self.0.0.lock().expect("not poisoned")
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock().bytes).into_owned()
    }

    /// Waits until all output was read. A grandchild may keep the pipe open, so the time is
    /// limited.
    fn wait_closed(&self) {
        let limit = Duration::from_secs(1);
        let waited = self
            .0
            .1
            .wait_timeout_while(self.lock(), limit, |text| !text.closed);
        drop(waited.expect("not poisoned"));
    }

    fn next_line(&self, wanted: &str, command_line: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        let mut text = self.lock();
        loop {
            while let Some(len) = text.bytes[text.searched..].iter().position(|&b| b == b'\n') {
                let line = &text.bytes[text.searched..text.searched + len];
                let line = String::from_utf8_lossy(line).into_owned();
                text.searched += len + 1;
                if line.contains(wanted) {
                    return line;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if text.closed || left.is_zero() {
                let all = String::from_utf8_lossy(&text.bytes).into_owned();
                drop(text);
                panic!("{command_line} did not print {wanted:?}: {all}");
            }
            text = self.0.1.wait_timeout(text, left).expect("not poisoned").0;
        }
    }
}

/// Runs a program until it exits and returns its status and output.
///
/// # Panics
/// Panics if the program cannot be started.
pub fn output(command: &mut Command) -> Finished {
    let output = command
        .output()
        .unwrap_or_else(|error| not_started(command, &error));
    Finished {
        status: Some(output.status),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs a program that must succeed, and returns its standard output.
///
/// # Panics
/// Panics if the program cannot be started or fails.
pub fn run(command: &mut Command) -> String {
    let finished = output(command);
    assert!(finished.success(), "{}: {finished}", command_line(command));
    finished.stdout
}

/// Runs a command line, split at white space, that must succeed. Returns its standard output.
///
/// # Panics
/// Panics if the program cannot be started or fails.
pub fn run_line(line: &str) -> String {
    run(&mut command(line))
}

/// Returns the command for a command line, split at white space.
///
/// # Panics
/// Panics if the line is empty.
pub fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    command
}

/// Returns a command that runs one ignored test of this program in another process.
///
/// # Panics
/// Panics if the path of this program is unknown.
pub fn ignored_test(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("path of this program"));
    command.args(["--ignored", "--exact", name]);
    command.args(["--nocapture", "--test-threads=1"]);
    command
}

/// Sends a signal, named as for `kill(1)`, to a process.
///
/// # Panics
/// Panics if the process does not exist.
pub fn send_signal(pid: u32, signal: &str) {
    run_line(&format!("kill -{signal} {pid}"));
}

/// Waits until `condition` is true, and returns `false` if it is not within `timeout`.
pub fn wait_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > timeout {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns a field of the status of a process; `None` if it has ended or lacks the field.
pub(crate) fn status_field(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

/// Returns a size from the status of a process in bytes, such as `VmRSS`, its resident memory.
///
/// # Panics
/// Panics if there is no such process or field.
pub fn memory(pid: u32, field: &str) -> u64 {
    let size = status_field(pid, field);
    size.unwrap_or_else(|| panic!("process {pid} has no {field}")) * 1024
}

/// Waits until a process listens on a TCP port.
///
/// # Panics
/// Panics if that does not happen within [`TIMEOUT`].
pub fn wait_for_tcp_listener(port: u16) {
    assert!(
        wait_until(TIMEOUT, || is_listening(port)),
        "no process listens on TCP port {port}"
    );
}

/// Returns a TCP port that no process uses, and a different one in each call.
///
/// The port is below the range from which Linux takes the ports of clients and of servers that
/// ask for port 0 (`net.ipv4.ip_local_port_range`). No other test can get it before the caller
/// binds it.
///
/// # Panics
/// Panics if no port is free.
pub fn free_tcp_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u32 = 8_000;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Programs that run at the same time begin at different ports.
    let start = std::process::id().wrapping_mul(31) % COUNT;
    (0..COUNT)
        .map(|_| {
            let offset = (start + CALLS.fetch_add(1, Ordering::Relaxed)) % COUNT;
            FIRST + u16::try_from(offset).expect("an offset below 8,000")
        })
        .find(|&port| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok())
        .expect("a free port")
}

/// Returns `true` if a process listens on a TCP port.
fn is_listening(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&port))
                && fields.nth(1) == Some(LISTEN)
        })
    })
}

fn command_line(command: &Command) -> String {
    let words = iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

fn not_started(command: &Command, error: &io::Error) -> ! {
    panic!(
        "{}: {error} (packages that the tests use: ibverbs-utils, rdmacm-utils, qperf, iproute2, \
         ibsim-utils, libumad2sim0, opensm, infiniband-diags)",
        command_line(command)
    )
}
