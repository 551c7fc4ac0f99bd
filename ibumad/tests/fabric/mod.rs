//! A simulated InfiniBand fabric in user space: Debian's ibsim with opensm as subnet manager. No
//! kernel support is needed.
//!
//! Four hosts on one switch. `Hca3` has the subnet manager; servers run on `Hca2` and `Hca4`,
//! clients on `Hca1`. Programs see their host's port through a library that is preloaded
//! (`ibsim-run`).

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

const NET: &str = r#"Switch 8 "Switch1"
[1] "Hca1"[1]
[2] "Hca2"[1]
[3] "Hca3"[1]
[4] "Hca4"[1]

Hca 1 "Hca1"
[1] "Switch1"[1]

Hca 1 "Hca2"
[1] "Switch1"[2]

Hca 1 "Hca3"
[1] "Switch1"[3]

Hca 1 "Hca4"
[1] "Switch1"[4]
"#;

/// A running fabric; it ends when this is dropped.
pub(crate) struct Fabric {
    dir: PathBuf,
    name: String,
    console: Option<ChildStdin>,
    children: Vec<Child>,
}

/// A program that serves; it ends when this is dropped.
pub(crate) struct Server(Child);

impl Fabric {
    /// With a subnet manager, once it has set the ports up.
    pub(crate) fn start() -> Self {
        let mut fabric = Self::unmanaged();
        fabric.manage();
        fabric
    }

    /// The simulator alone: links are up, and nobody has set them up.
    pub(crate) fn unmanaged() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "fabric-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(&name);
        fs::create_dir_all(&dir).expect("directory");
        fs::write(dir.join("net"), NET).expect("net");
        let mut fabric = Self {
            dir,
            name,
            console: None,
            children: Vec::new(),
        };
        let log = fabric.log("ibsim");
        let mut ibsim = fabric.program("ibsim");
        let mut ibsim = spawn(
            ibsim
                .args(["-s", "net"])
                .stdin(Stdio::piped())
                .stdout(log.0)
                .stderr(log.1),
        );
        fabric.console = ibsim.stdin.take();
        fabric.children.push(ibsim);
        fabric.wait_for("ibsim", "Network simulator ready");
        // Requests reach only a client that calls itself a subnet manager, and the first one to do
        // so makes opensm ask it for its state, at which the simulator's library fails
        // where nobody has registered for that. So it is said before opensm looks.
        for host in ["Hca2", "Hca4"] {
            let mut query = fabric.on(host, "smpquery");
            said_by(query.env("SIM_SET_ISSM", "1").args(["-D", "nodeinfo", "0"]));
        }
        fabric
    }

    /// Starts the subnet manager on `Hca3` and waits until it has set the ports up.
    pub(crate) fn manage(&mut self) {
        let log = self.log("opensm.out");
        let mut opensm = self.on("Hca3", "opensm");
        let opensm = spawn(
            opensm
                .args(["-f", "opensm.log"])
                .stdout(log.0)
                .stderr(log.1),
        );
        self.children.push(opensm);
        for host in ["Hca1", "Hca2", "Hca4"] {
            self.wait_until_active(host);
        }
    }

    /// A command that runs on this host.
    pub(crate) fn on(&self, host: &str, program: &str) -> Command {
        let mut command = self.program("ibsim-run");
        command.arg(program).env("SIM_HOST", host);
        command
    }

    /// A command that runs in the fabric's directory.
    fn program(&self, program: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .current_dir(&self.dir)
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env("IBSIM_SOCKNAME", &self.name)
            .env("OSM_CACHE_DIR", &self.dir)
            .env("OSM_TMP_DIR", &self.dir)
            .stdin(Stdio::null());
        command
    }

    /// Starts a server and waits until its output says that it is ready.
    pub(crate) fn serve(&self, host: &str, program: &str, args: &[&str], ready: &str) -> Server {
        let name = format!("server-{host}");
        let log = self.log(&name);
        let mut command = self.on(host, program);
        let child = spawn(
            command
                .env("SIM_SET_ISSM", "1")
                .args(args)
                .stdout(log.0)
                .stderr(log.1),
        );
        let server = Server(child);
        self.wait_for(&name, ready);
        server
    }

    /// The real ibping as a server, on `Hca2`. It does not say when it is ready: it is when its
    /// like gets an answer.
    pub(crate) fn ibping_server(&self) -> Server {
        let server = self.serve("Hca2", "ibping", &["-S"], "");
        let lid = self.lid("Hca2").to_string();
        let until = Instant::now() + PATIENCE;
        while !text(&run(self.on("Hca1", "ibping").args(["-f", "-c", "1", &lid])).stdout)
            .contains(" 1 received")
        {
            assert!(Instant::now() < until, "ibping -S does not answer");
            thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// The LID that the subnet manager gave to this host.
    pub(crate) fn lid(&self, host: &str) -> u16 {
        let said = said_by(&mut self.on(host, "ibstat"));
        field(&said, "Base lid:").parse().expect("a LID")
    }

    /// The GUID of this host's port.
    pub(crate) fn guid(&self, host: &str) -> String {
        field(&said_by(&mut self.on(host, "ibstat")), "Port GUID:")
    }

    /// Drops this share of the packets to and from a host.
    pub(crate) fn lose(&mut self, host: &str, percent: u32) {
        let console = self.console.as_mut().expect("the simulator's console");
        writeln!(console, "Error \"{host}\" {percent}")
            .and_then(|()| console.flush())
            .expect("console");
        // The simulator reads its console between packets.
        thread::sleep(Duration::from_millis(300));
    }

    /// Runs the test of this name once more, on a host of this fabric.
    pub(crate) fn inside(&self, host: &str, test: &str) {
        self.inside_with(host, test, &[]);
    }

    /// The same with these variables in its environment.
    pub(crate) fn inside_with(&self, host: &str, test: &str, variables: &[(&str, &str)]) {
        let mut command = self.test_inside(host, test);
        let output = run(command.envs(variables.iter().copied()));
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success() && said.contains("1 passed"),
            "on {host}: {}: {said}",
            output.status
        );
    }

    /// Starts the test of this name once more, on a host of this fabric, as a server; it says there
    /// that it is ready.
    pub(crate) fn serve_inside(&self, host: &str, test: &str, ready: &str) -> Server {
        let name = format!("server-{host}");
        let log = self.log(&name);
        let mut command = self.test_inside(host, test);
        let server = Server(spawn(
            command.env("SIM_SET_ISSM", "1").stdout(log.0).stderr(log.1),
        ));
        self.wait_for(&name, ready);
        server
    }

    fn test_inside(&self, host: &str, test: &str) -> Command {
        let program = std::env::current_exe().expect("own program");
        let mut command = self.on(host, program.to_str().expect("a path in UTF-8"));
        command
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(INSIDE, host);
        command
    }

    fn log(&self, name: &str) -> (File, File) {
        let file = File::create(self.dir.join(name)).expect("log");
        (file.try_clone().expect("log"), file)
    }

    /// Waits until the subnet manager has set up a host's port.
    fn wait_until_active(&self, host: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = said_by(&mut self.on(host, "ibstat"));
            if field(&said, "State:") == "Active" {
                return;
            }
            assert!(
                Instant::now() < until,
                "{host} did not become active: {said}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for(&self, log: &str, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = fs::read(self.dir.join(log))
                .map(|bytes| self::text(&bytes))
                .unwrap_or_default();
            if said.contains(text) {
                return;
            }
            assert!(Instant::now() < until, "{log} never said `{text}`: {said}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Set to the host's name where a test runs inside the fabric.
const INSIDE: &str = "FABRIC_INSIDE";

/// Whether this process runs inside the fabric.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// What follows `key` in its line of a tool's output.
pub(crate) fn field(said: &str, key: &str) -> String {
    let line = said.lines().find_map(|line| line.trim().strip_prefix(key));
    line.unwrap_or_else(|| panic!("no `{key}` in {said}"))
        .trim_start_matches('.')
        .trim()
        .to_owned()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a program prints that ends by itself; it must succeed.
pub(crate) fn said_by(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {output:?}");
    text(&output.stdout)
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| missing(command, &error))
}

fn spawn(command: &mut Command) -> Child {
    command
        .spawn()
        .unwrap_or_else(|error| missing(command, &error))
}

fn missing<T>(command: &Command, error: &std::io::Error) -> T {
    panic!(
        "{command:?}: {error}; wanted are: apt install ibsim-utils libumad2sim0 opensm infiniband-diags"
    )
}

impl Server {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.children.iter_mut().rev().for_each(end);
        let _ = fs::remove_dir_all(&self.dir);
    }
}
