//! Starts the servers of a mesh with ssh or Slurm, and stops them.
//!
//! Each launcher passes its standard input to the servers. Its first line is a random token. A
//! server stops at the end of its standard input (`--supervised`), which also comes when the
//! coordinator dies.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::interrupt::Interrupt;
use base::log::{self, RateLimit};
use base::peer_text::printable;
use clap::ValueEnum;
use session::connect::{self, ServerAddr};
use session::protocol::token::Token;

use super::hosts::Host;

/// Time that launchers have to end after the servers were stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes of a line of a launcher. The rest of the line is omitted.
const MAX_LINE: u64 = 4 << 10;
/// Number of lines of a launcher that are logged without a limit of the rate.
const BURST_LINES: u32 = 20;
/// Sustained number of lines of a launcher per second.
const LINES_PER_SECOND: u32 = 5;
/// Time limit of a server for each step of a connection.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Way to start the servers of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartMethod {
    /// One ssh for each host
    Ssh,
    /// One srun for all hosts of a Slurm job
    Slurm,
}

/// Method and settings of starting servers.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The launcher.
    pub method: StartMethod,
    /// Program and first arguments of the launcher, if they are not the usual ones.
    pub launcher: Option<&'a str>,
    /// Path of `rperf` on the hosts.
    pub rperf: &'a str,
    /// TCP port of servers without a port of their own.
    pub port: u16,
    /// Time until all servers must respond.
    pub timeout: Duration,
}

/// A launcher and the hosts whose servers it runs.
#[derive(Debug)]
struct Launcher {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    /// Last line of its standard error.
    last_line: Arc<Mutex<String>>,
}

/// Started servers. They are stopped when this is dropped.
#[derive(Debug)]
pub struct StartedServers {
    launchers: Vec<Launcher>,
}

impl Launch<'_> {
    /// Starts a server on each host and waits until they respond. A host whose server does not
    /// respond in time is only reported, unless it is one of the last two.
    pub fn start(&self, hosts: &[Host], token: &Token) -> Result<StartedServers> {
        let mut started = StartedServers {
            launchers: Vec::new(),
        };
        for (name, mut command) in self.commands(hosts) {
            started.launchers.push(spawn(name, &mut command, token)?);
        }
        let mut failures = self.wait(&mut started, hosts, token);
        if hosts.len() - failures.len() >= 2 {
            for error in failures {
                log::log(format_args!("rperf: {error}"));
            }
            return Ok(started);
        }
        Err(failures.swap_remove(0))
    }

    /// Returns the launchers, each with the name for messages.
    fn commands(&self, hosts: &[Host]) -> Vec<(String, Command)> {
        let server = |port: Option<u16>| {
            let port = port.unwrap_or(self.port).to_string();
            ["--mesh", "--supervised", "--port"]
                .map(str::to_owned)
                .into_iter()
                .chain([port])
        };
        let names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
        match self.method {
            StartMethod::Ssh => hosts
                .iter()
                .map(|host| {
                    let mut command = self.launcher("ssh -T -o BatchMode=yes");
                    let words: Vec<String> = server(host.port).collect();
                    let line = format!("exec {} {}", quoted(self.rperf), words.join(" "));
                    command.args([host.name.as_str(), line.as_str()]);
                    (host.name.clone(), command)
                })
                .collect(),
            StartMethod::Slurm => {
                let mut command = self.launcher("srun");
                command.args([
                    &format!("--nodes={}", hosts.len()),
                    &format!("--ntasks={}", hosts.len()),
                    "--ntasks-per-node=1",
                    &format!("--nodelist={}", names.join(",")),
                    // The failure of a node must not end the others.
                    "--no-kill",
                    "--kill-on-bad-exit=0",
                    "--wait=0",
                ]);
                if std::env::var_os("SLURM_JOB_ID").is_some() {
                    // The step shares the resources of the job with the coordinator.
                    command.arg("--overlap");
                }
                command.arg(self.rperf).args(server(None));
                vec![("srun".to_owned(), command)]
            }
        }
    }

    fn launcher(&self, usual: &str) -> Command {
        let mut words = self.launcher.unwrap_or(usual).split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Waits until each server responds. Returns the error of each one that does not.
    fn wait(&self, started: &mut StartedServers, hosts: &[Host], token: &Token) -> Vec<Error> {
        let deadline = Instant::now() + self.timeout;
        let mut waiting: Vec<&Host> = hosts.iter().collect();
        let mut failures = Vec::new();
        loop {
            waiting.retain(|host| !self.responds(host, token));
            let is_late = Instant::now() >= deadline;
            waiting.retain(|host| {
                let failure = started.failure(host, is_late, self);
                let is_left = failure.is_none();
                failures.extend(failure);
                is_left
            });
            started.reap();
            if waiting.is_empty() {
                return failures;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn responds(&self, host: &Host, token: &Token) -> bool {
        let server_addr = ServerAddr {
            host: host.name.clone(),
            port: host.port.unwrap_or(self.port),
            wait: Duration::ZERO,
            bind: None,
            token: Some(token.clone()),
            qperf: false,
            interrupt: Interrupt::default(),
        };
        connect::open_rperf(&server_addr, REPLY_TIMEOUT).is_ok()
    }
}

impl StartedServers {
    /// Returns the error of a host whose launcher has ended, or that is late.
    fn failure(&self, host: &Host, is_late: bool, launch: &Launch<'_>) -> Option<Error> {
        let name = &host.name;
        let launcher = self
            .launchers
            .iter()
            .find(|l| l.name == *name)
            .or(self.launchers.first());
        let has_ended = launcher.is_none_or(|l| l.stdin.is_none());
        if !has_ended && !is_late {
            return None;
        }
        let last_line = launcher.map_or_else(String::new, |l| {
            l.last_line
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        });
        let cause = match (has_ended, last_line.is_empty()) {
            (true, true) => "the launcher ended".to_owned(),
            (true, false) => format!("the launcher ended: {last_line}"),
            (false, true) => "it did not respond in time".to_owned(),
            (false, false) => format!("it did not respond in time: {last_line}"),
        };
        let error = Error::new(
            Kind::System,
            format!("cannot start the server on {name}: {cause}"),
        );
        let port = host.port.unwrap_or(launch.port);
        Some(error.with_help(remedy(&last_line, has_ended, name, port, launch.rperf)))
    }

    /// Notes the launchers that have ended.
    fn reap(&mut self) {
        for launcher in &mut self.launchers {
            if matches!(launcher.child.try_wait(), Ok(Some(_))) {
                launcher.stdin = None;
            }
        }
    }
}

impl Drop for StartedServers {
    fn drop(&mut self) {
        for launcher in &mut self.launchers {
            launcher.stdin = None;
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        for launcher in &mut self.launchers {
            while matches!(launcher.child.try_wait(), Ok(None)) {
                if Instant::now() >= deadline {
                    let _ = launcher.child.kill();
                    let _ = launcher.child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn spawn(name: String, command: &mut Command, token: &Token) -> Result<Launcher> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| {
            Error::system(format!("cannot run {program}"), &e)
                .with_help("install it, or set --launcher to its command")
        })?;
    let mut stdin = child.stdin.take();
    if let Some(stdin) = &mut stdin {
        // If the launcher has ended already, its last line is the better error.
        let _ = stdin.write_all(token.line().as_bytes());
    }
    let last_line = Arc::new(Mutex::new(String::new()));
    if let Some(stderr) = child.stderr.take() {
        let (name, last_line) = (name.clone(), Arc::clone(&last_line));
        let log = move |line: &str| log::log(format_args!("{name}: {line}"));
        let forward = move || forward(stderr, &last_line, log);
        let thread = std::thread::Builder::new().spawn(forward);
        thread.map_err(|e| Error::system("cannot create a thread", &e))?;
    }
    Ok(Launcher {
        name,
        child,
        stdin,
        last_line,
    })
}

/// Passes the messages of a launcher and its servers to `log`. A host decides how many and how long
/// they are, so both are limited.
fn forward(stderr: impl Read, last_line: &Mutex<String>, mut log: impl FnMut(&str)) {
    let mut reader = BufReader::new(stderr);
    let mut limit = RateLimit::new(BURST_LINES, LINES_PER_SECOND, Instant::now());
    let mut bytes = Vec::new();
    while let Ok(1..) = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes) {
        let line = printable(String::from_utf8_lossy(&bytes).trim_end());
        if !line.is_empty() && !line.contains("rperf: serving on ") {
            if limit.admits(Instant::now()) {
                log(&line);
            } else {
                log::count_suppressed();
            }
            *last_line.lock().unwrap_or_else(PoisonError::into_inner) = line;
        }
        if !bytes.ends_with(b"\n") && reader.skip_until(b'\n').is_err() {
            return;
        }
        bytes.clear();
    }
}

/// Returns the remedy for a server that could not be started on `host`. `line` is the last line of
/// its launcher.
fn remedy(line: &str, has_ended: bool, host: &str, port: u16, rperf: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let is_missing = ["not found", "no such file"].map(|text| lower.contains(text));
    if lower.contains("host key verification failed") {
        format!("compare the host's key and accept it: run `ssh {host}` once")
    } else if lower.contains("permission denied (") {
        format!("let `ssh {host}` log in without a password: run `ssh-copy-id {host}`")
    } else if lower.contains("could not resolve hostname") {
        "check the spelling, or name the host by its IP address".to_owned()
    } else if is_missing.contains(&true) && line.contains(rperf) {
        format!("install rperf on {host}, or set --remote-rperf to its path there")
    } else if lower.contains("already in use") {
        format!(
            "end the other program on port {port} of {host}, or set --port (-lp) to a free port"
        )
    } else if has_ended {
        format!("run the launcher by hand, and see the messages of {host}")
    } else {
        format!(
            "open TCP port {port} in the firewall of {host}, or set --start-timeout higher if the host is slow"
        )
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::hosts::parse_host;

    fn commands(method: StartMethod, launcher: Option<&str>) -> Vec<String> {
        let launch = Launch {
            method,
            launcher,
            rperf: "/opt/my rperf",
            port: 19765,
            timeout: Duration::ZERO,
        };
        let hosts = ["n1", "n2:7"].map(|h| parse_host(h).unwrap());
        let line = |(_, command): (String, Command)| {
            let words = command.get_args().map(|a| a.to_string_lossy().into_owned());
            let program = command.get_program().to_string_lossy().into_owned();
            let words: Vec<String> = std::iter::once(program).chain(words).collect();
            words.join(" ")
        };
        launch.commands(&hosts).into_iter().map(line).collect()
    }

    #[test]
    fn each_launcher_has_its_command() {
        let ssh = commands(StartMethod::Ssh, None);
        assert_eq!(
            ssh[1],
            "ssh -T -o BatchMode=yes n2 exec '/opt/my rperf' --mesh --supervised --port 7"
        );
        assert!(commands(StartMethod::Ssh, Some("ssh -p 22"))[0].starts_with("ssh -p 22 n1 "));
        let srun = commands(StartMethod::Slurm, None);
        assert!(srun.len() == 1 && srun[0].contains("--ntasks-per-node=1 --nodelist=n1,n2"));
    }

    #[test]
    fn the_remedy_follows_the_cause() {
        for (line, has_ended, expected) in [
            ("Host key verification failed.", true, "run `ssh n1` once"),
            (
                "me@n1: Permission denied (publickey,password).",
                true,
                "run `ssh-copy-id n1`",
            ),
            (
                "ssh: Could not resolve hostname n1: Name or service not known",
                true,
                "check the spelling",
            ),
            (
                "bash: line 1: exec: rperf: not found",
                true,
                "--remote-rperf",
            ),
            ("srun: error", true, "run the launcher by hand"),
            (
                "rperf: cannot listen: Address already in use",
                true,
                "on port 7 of n1",
            ),
            ("", false, "open TCP port 7 in the firewall of n1"),
        ] {
            let help = remedy(line, has_ended, "n1", 7, "rperf");
            assert!(help.contains(expected), "{line}: {help}");
        }
    }

    #[test]
    fn messages_of_a_host_are_limited() {
        let (last_line, mut logged) = (Mutex::new(String::new()), Vec::new());
        let long = std::io::repeat(b'x').take(1 << 20).chain(&b"\nnext\n"[..]);
        forward(long, &last_line, |line| logged.push(line.to_owned()));
        assert!(logged.len() == 2 && logged[0].len() <= 4096, "{logged:?}");
        assert_eq!(logged[1], "next");
        let (mut logged, flood) = (0, "line\n".repeat(100_000) + "last");
        forward(flood.as_bytes(), &last_line, |_| logged += 1);
        assert!((20..1000).contains(&logged), "{logged}");
        assert_eq!(*last_line.lock().unwrap(), "last");
    }
}
