//! A simulated InfiniBand fabric in user space: ibsim, with opensm as subnet manager. It needs no
//! kernel support.
//!
//! Five hosts are connected to one switch. opensm runs on `Hca3` and, as standby, on `Hca5`.
//! Servers run on `Hca2` and `Hca4`, clients on `Hca1`. A program sees the port of its host through
//! a library that `ibsim-run` preloads.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::process::{self, Process};
use crate::temp_dir::TempDir;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a server registers its agent. It does not print when it has.
const REGISTRATION_TIME: Duration = Duration::from_millis(500);

const NET: &str = r#"Switch 8 "Switch1"
[1] "Hca1"[1]
[2] "Hca2"[1]
[3] "Hca3"[1]
[4] "Hca4"[1]
[5] "Hca5"[1]

Hca 1 "Hca1"
[1] "Switch1"[1]

Hca 1 "Hca2"
[1] "Switch1"[2]

Hca 1 "Hca3"
[1] "Switch1"[3]

Hca 1 "Hca4"
[1] "Switch1"[4]

Hca 1 "Hca5"
[1] "Switch1"[5]
"#;

/// Variable with the name of the simulated host, set for a test that runs on one.
const INSIDE: &str = "FABRIC_INSIDE";

/// A running fabric. It is stopped when this is dropped.
#[derive(Debug)]
pub struct Fabric {
    dir: TempDir,
    socket_name: String,
    console: ChildStdin,
    opensm: Option<Process>,
    _ibsim: Process,
}

impl Fabric {
    /// Starts the simulator and opensm, and waits until all ports are active.
    pub fn start() -> Self {
        let mut fabric = Self::without_sm();
        fabric.start_sm();
        fabric
    }

    /// Starts the simulator alone. Links are up, but their ports are not configured.
    ///
    /// # Panics
    /// Panics if the simulator does not start.
    pub fn without_sm() -> Self {
        let dir = TempDir::new();
        dir.write("net", NET);
        let name = dir.path().file_name().expect("a directory");
        let socket_name = name.to_string_lossy().into_owned();
        let mut ibsim = command("ibsim", &dir, &socket_name);
        ibsim.args(["-s", "net"]).stdin(Stdio::piped());
        let mut ibsim = Process::spawn(&mut ibsim).wait_for_output("Network simulator ready");
        let fabric = Self {
            dir,
            socket_name,
            console: ibsim.take_stdin().expect("piped"),
            opensm: None,
            _ibsim: ibsim,
        };
        // The simulator delivers requests only to a client that is marked as a subnet manager. When
        // the first client is marked, opensm queries its SMInfo, and the simulator's library fails
        // if no agent is registered for that. Therefore mark the clients before opensm starts.
        for host in ["Hca2", "Hca4"] {
            let mut query = fabric.command(host, "smpquery");
            process::run(query.env("SIM_SET_ISSM", "1").args(["-D", "nodeinfo", "0"]));
        }
        fabric
    }

    /// Starts opensm on `Hca3` and waits until all ports are active.
    ///
    /// # Panics
    /// Panics if a port does not become active.
    pub fn start_sm(&mut self) {
        let mut opensm = self.command("Hca3", "opensm");
        // A notice starts no sweep. When another subnet manager starts, the sweep at its notice
        // would query it before it is ready. Its reply can then be lost, and the simulator has no
        // timeouts: the sweep, and every later one, would wait for ever.
        self.dir.write("opensm.conf", "sweep_on_trap FALSE\n");
        self.opensm = Some(Process::spawn(opensm.args([
            "-F",
            "opensm.conf",
            "-p",
            "15",
            "-f",
            "opensm.log",
        ])));
        for host in ["Hca1", "Hca2", "Hca4"] {
            let is_active =
                || field(&process::run(&mut self.command(host, "ibstat")), "State:") == "Active";
            assert!(
                process::wait_until(TIMEOUT, is_active),
                "{host} did not become active"
            );
        }
    }

    /// Starts another opensm on `Hca5`, with this priority, which is below that of the first one.
    ///
    /// # Panics
    /// Panics if there is no first one.
    pub fn start_standby_sm(&self, priority: u8) -> Process {
        let mut opensm = self.command("Hca5", "opensm");
        let directory = self.dir.path().join("standby");
        std::fs::create_dir_all(&directory).expect("a directory");
        opensm
            .args(["-p", &priority.to_string(), "-f", "standby.log"])
            .env("OSM_CACHE_DIR", &directory)
            .env("OSM_TMP_DIR", &directory);
        let standby = Process::spawn(&mut opensm).wait_for_output("Entering STANDBY");
        // The simulator drops the notice about the new capability, so a sweep is requested.
        let first = self.opensm.as_ref().expect("opensm");
        process::send_signal(first.id(), "HUP");
        standby
    }

    /// Ends opensm. The ports keep the configuration that it has made.
    pub fn stop_sm(&mut self) {
        self.opensm = None;
    }

    /// Returns a command that runs a program on a host.
    pub fn command(&self, host: &str, program: &str) -> Command {
        let mut command = command("ibsim-run", &self.dir, &self.socket_name);
        command.arg(program).env("SIM_HOST", host);
        command
    }

    /// Starts a server and waits until it has printed `ready`.
    pub fn serve(&self, host: &str, program: &str, args: &[&str], ready: &str) -> Process {
        let mut command = self.command(host, program);
        command.env("SIM_SET_ISSM", "1").args(args);
        Process::spawn(&mut command).wait_for_output(ready)
    }

    /// Starts `ibping -S` on `Hca2` and waits until it answers. A ping that arrives before the
    /// server has registered its agent ends the server, because the simulator's library fails. Such
    /// a server is replaced.
    ///
    /// # Panics
    /// Panics if several servers in a row do not answer.
    pub fn serve_ibping(&self) -> Process {
        let lid = self.lid("Hca2").to_string();
        let answers = || {
            let mut ping = self.command("Hca1", "ibping");
            process::output(ping.args(["-f", "-c", "1", &lid]))
                .stdout
                .contains(" 1 received")
        };
        let start = || {
            let server = self.serve("Hca2", "ibping", &["-S"], "");
            thread::sleep(REGISTRATION_TIME);
            process::wait_until(TIMEOUT / 6, answers).then_some(server)
        };
        let server = (0..6).find_map(|_| start());
        server.expect("ibping -S answers")
    }

    /// Returns the LID of a host's port.
    ///
    /// # Panics
    /// Panics if the port has no LID.
    pub fn lid(&self, host: &str) -> u16 {
        let text = process::run(&mut self.command(host, "ibstat"));
        field(&text, "Base lid:").parse().expect("a LID")
    }

    /// Returns the GUID of a host's port.
    pub fn guid(&self, host: &str) -> String {
        field(
            &process::run(&mut self.command(host, "ibstat")),
            "Port GUID:",
        )
    }

    /// Sets the percentage of packets to and from a host that are lost.
    ///
    /// # Panics
    /// Panics if the simulator has exited.
    pub fn set_loss(&mut self, host: &str, percent: u32) {
        writeln!(self.console, "Error \"{host}\" {percent}")
            .and_then(|()| self.console.flush())
            .expect("console of ibsim");
        // The simulator reads its console only between packets and does not confirm a command.
        thread::sleep(Duration::from_millis(300));
    }

    /// Runs a test of this program in another process, on a host of this fabric.
    pub fn run_test(&self, host: &str, test: &str) {
        self.run_test_with(host, test, &[]);
    }

    /// Runs a test of this program with these environment variables in another process, on a host
    /// of this fabric.
    ///
    /// # Panics
    /// Panics if the test fails or does not exist.
    pub fn run_test_with(&self, host: &str, test: &str, variables: &[(&str, &str)]) {
        let mut command = self.test_command(host, test);
        let text = process::run(command.envs(variables.iter().copied()));
        assert!(text.contains("1 passed"), "on {host}: {text}");
    }

    /// Starts a test of this program as a server in another process, on a host of this fabric, and
    /// waits until it has printed `ready`.
    pub fn serve_test(&self, host: &str, test: &str, ready: &str) -> Process {
        let mut command = self.test_command(host, test);
        Process::spawn(command.env("SIM_SET_ISSM", "1")).wait_for_output(ready)
    }

    fn test_command(&self, host: &str, test: &str) -> Command {
        let test = process::ignored_test(test);
        let mut command = self.command(host, &test.get_program().to_string_lossy());
        command.args(test.get_args()).env(INSIDE, host);
        command
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // opensm first: it would retry while the simulator exits.
        self.opensm = None;
    }
}

/// Returns a command that runs in the directory of a fabric.
fn command(program: &str, dir: &TempDir, socket_name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command
        .current_dir(dir.path())
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("IBSIM_SOCKNAME", socket_name)
        .env("OSM_CACHE_DIR", dir.path())
        .env("OSM_TMP_DIR", dir.path())
        .stdin(Stdio::null());
    command
}

/// Returns `true` if this process is a test that runs on a host of a fabric.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Returns the value after `key` in the output of a tool of infiniband-diags.
///
/// # Panics
/// Panics if no line begins with `key`.
pub fn field(output: &str, key: &str) -> String {
    let value = output
        .lines()
        .find_map(|line| line.trim().strip_prefix(key));
    value
        .unwrap_or_else(|| panic!("no `{key}` in {output}"))
        .trim_start_matches('.')
        .trim()
        .to_owned()
}
