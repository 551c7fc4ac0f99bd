//! `ribinfo` on real drivers: a healthy host has no fault, each fault that is planted is found with what mends it, and
//! the old tools say the same.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use perftools::args::info::Info;
use perftools::control::facts;
use perftools::facts::root::Root;
use serde_json::Value;

fn ribinfo() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ribinfo"))
}

fn devices() -> Vec<String> {
    let names = std::env::var("RDMA_LAB_DEVICES").expect("RDMA_LAB_DEVICES names the devices: run by ci/lab");
    let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
    assert!(!names.is_empty(), "RDMA_LAB_DEVICES names no device");
    for name in &names {
        println!("device: {name}");
    }
    names
}

/// The RoCE ones.
fn roce() -> Vec<String> {
    let is_ca = |name: &String| {
        fs::read_to_string(format!("/sys/class/infiniband/{name}/node_type")).is_ok_and(|text| text.starts_with('1'))
    };
    let all: Vec<String> = devices().into_iter().filter(is_ca).collect();
    assert!(!all.is_empty(), "no RoCE device here");
    all
}

fn netdev(device: &str) -> String {
    let path = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0");
    fs::read_to_string(path).expect("a network interface").trim().to_owned()
}

fn output(command: &mut Command) -> (String, i32) {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().expect("it ends by itself"))
}

/// What the program prints, and its exit status; within this process, as starting one takes long under emulation.
fn said(args: &[&str]) -> (String, i32) {
    let info = Info::try_parse_from([&["ribinfo"], args].concat()).expect("a sound command line");
    match perftools::info::run(&info) {
        Ok((text, status)) => (text, status.into()),
        Err(error) => (error.to_string(), 3),
    }
}

/// Checks these subjects.
fn check(args: &[&str]) -> (String, i32) {
    said(&[&["check"], args].concat())
}

fn run(line: &str) {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).status().expect(line);
    assert!(status.success(), "{line}");
}

/// Asserts that a line has the level, is of the subject and has all words.
fn finds(text: &str, level: &str, subject: &str, words: &[&str]) {
    let found = text
        .lines()
        .any(|line| line.starts_with(&format!("{level:<8} {subject}")) && words.iter().all(|word| line.contains(word)));
    assert!(found, "no {level} of {subject} with {words:?} in:\n{text}");
}

/// Puts an interface back as it was: up, with its MTU and its addresses.
struct Restore {
    netdev: String,
    device: String,
    mtu: String,
    addresses: Vec<String>,
}

impl Restore {
    fn of(device: &str) -> Self {
        let netdev = netdev(device);
        let (text, _) = output(Command::new("ip").args(["-o", "addr", "show", "dev", &netdev, "scope", "global"]));
        let addresses = text.lines().filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect();
        let mtu = fs::read_to_string(format!("/sys/class/net/{netdev}/mtu")).expect("MTU").trim().to_owned();
        Self { netdev, device: device.to_owned(), mtu, addresses }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let ip = |line: String| {
            let _ = Command::new("ip").args(line.split_whitespace()).stderr(Stdio::null()).status();
        };
        let netdev = &self.netdev;
        ip(format!("link set {netdev} mtu {}", self.mtu));
        ip(format!("link set {netdev} up"));
        for address in &self.addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            ip(format!("addr replace {address} dev {netdev}{nodad}"));
        }
        let state = format!("/sys/class/infiniband/{}/ports/1/state", self.device);
        wait(|| fs::read_to_string(&state).is_ok_and(|text| text.contains("ACTIVE")) && check(&["gid", "port"]).1 == 0);
    }
}

fn wait(mut until: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !until() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A root whose `/sys`, `/proc` and `/dev` are this host's; removed when dropped.
struct Tree(PathBuf);

impl Tree {
    fn new(links: &[&str]) -> Self {
        // In memory where that is possible: the lab's root is slow.
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = place.join(format!("ribinfo-{}-{:?}", std::process::id(), std::thread::current().id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        for link in links {
            let to = path.join(link.trim_start_matches('/'));
            fs::create_dir_all(to.parent().expect("a parent")).expect("directories");
            symlink(link, to).expect("a link");
        }
        Self(path)
    }

    fn whole() -> Self {
        Self::new(&["/sys", "/proc", "/dev"])
    }

    fn put(&self, file: &str, text: &str) -> &Self {
        let path = self.0.join(file.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
        self
    }

    fn check(&self, subjects: &[&str]) -> (String, i32) {
        check(&[subjects, &["--root", self.0.to_str().expect("a path in UTF-8")]].concat())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_healthy_host_has_no_fault() {
    let names = devices();
    let (text, status) = check(&[]);
    // The lab loads modules by hand, which ends with the host.
    let found: Vec<&str> = text.lines().filter(|line| !line.starts_with("ok ")).collect();
    let allowed = |line: &&str| line.starts_with("warning  modules") && line.contains("after a reboot");
    assert!(found.iter().all(allowed) && status < 2, "{text}");
    for name in &names {
        for subject in ["nodes", "memlock", "port", "mtu"] {
            finds(&text, "ok", subject, &[name]);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_old_tools_say_the_same() {
    devices();
    let old = |line: &str| {
        let mut words = line.split_whitespace();
        let said = Command::new(words.next().unwrap()).args(words).output();
        let said = said.unwrap_or_else(|error| {
            panic!("{line}: {error}; wanted are: apt install ibverbs-utils infiniband-diags iproute2")
        });
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let pairs: [(&str, &[&str]); 4] = [
        ("ibv_devices", &["devices"]),
        ("ibv_devinfo", &["devinfo"]),
        ("ibv_devinfo -v", &["devinfo", "-v"]),
        ("rdma link", &["links"]),
    ];
    for (line, new) in pairs {
        let (theirs, (ours, status)) = (old(line), said(new));
        // A later version prints a line more for each of its own fields.
        for wanted in ours.lines() {
            assert!(theirs.lines().any(|line| line == wanted), "{line} does not say {wanted:?}");
        }
        assert_eq!(status, 0);
    }
    for name in roce() {
        assert_eq!(said(&["stat", &name]).0, old(&format!("ibstat {name}")));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_missing_module_is_found() {
    devices();
    // The devices are there, what ib_uverbs and rdma_ucm make is not.
    let tree = Tree::new(&["/sys/class/infiniband", "/sys/class/net"]);
    tree.put("/proc/modules", "rdma_rxe 1 0 - Live 0x0\n");
    let (text, status) = tree.check(&["modules"]);
    finds(&text, "fault", "modules", &["ib_uverbs", "=> modprobe ib_uverbs"]);
    finds(&text, "fault", "modules", &["rdma_ucm", "=> modprobe rdma_ucm"]);
    assert_eq!(status, 2);
    // Loaded, but not for long.
    tree.put("/proc/modules", "ib_uverbs 1 0\nrdma_ucm 1 0\n")
        .put("/etc/rdma/modules/rdma.conf", "ib_uverbs\n# rdma_ucm\n");
    let (text, status) = tree.check(&["modules"]);
    finds(&text, "warning", "modules rdma_ucm", &["take the # from rdma_ucm"]);
    assert_eq!(status, 1, "{text}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_port_that_is_down_is_found() {
    for name in devices() {
        let restore = Restore::of(&name);
        run(&format!("ip link set {} down", restore.netdev));
        wait(|| check(&["port"]).1 == 2);
        let (text, status) = check(&["port"]);
        finds(&text, "fault", &format!("port {name}/1"), &["DOWN", &format!("=> ip link set {} up", restore.netdev)]);
        assert_eq!(status, 2);
        drop(restore);
        assert_eq!(check(&["port", "gid", "iwarp"]).1, 0, "{name} is not as it was");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_small_mtu_is_found() {
    for name in roce() {
        let restore = Restore::of(&name);
        run(&format!("ip link set {} mtu 1500", restore.netdev));
        wait(|| check(&["mtu"]).1 == 1);
        let (text, status) = check(&["mtu"]);
        finds(
            &text,
            "warning",
            &format!("mtu {name}/1"),
            &["RDMA MTU 1024 of 4096", &format!("ip link set {} mtu 4200", restore.netdev)],
        );
        assert_eq!(status, 1);
        // What is told to mend it does.
        run(&format!("ip link set {} mtu 4200", restore.netdev));
        wait(|| check(&["mtu"]).1 == 0);
        assert_eq!(check(&["mtu"]).1, 0);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_small_limit_of_locked_memory_is_found() {
    let names = devices();
    let mut limited = Command::new("prlimit");
    limited.args(["--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]);
    let (text, status) = output(limited.arg(env!("CARGO_BIN_EXE_ribinfo")).args(["check", "memlock"]));
    finds(&text, "warning", "memlock", &["soft limit 64 KiB, hard limit 64 KiB", "/etc/security/limits.conf"]);
    for name in names {
        finds(
            &text,
            "fault",
            &format!("memlock {name}"),
            &["16 MiB cannot be registered", "@rdma hard memlock unlimited"],
        );
    }
    assert_eq!(status, 2);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_missing_gid_is_found() {
    for name in devices() {
        let restore = Restore::of(&name);
        for address in &restore.addresses {
            run(&format!("ip addr del {address} dev {}", restore.netdev));
        }
        let subject = if roce().contains(&name) { "gid" } else { "iwarp" };
        wait(|| check(&[subject]).1 == 2);
        let (text, status) = check(&[subject]);
        finds(
            &text,
            "fault",
            &format!("{subject} {name}/1"),
            &["has no address", &format!("=> ip addr add ADDRESS/BITS dev {}", restore.netdev)],
        );
        assert_eq!(status, 2);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_rights_are_found() {
    for name in devices() {
        let uverbs = fs::read_dir("/sys/class/infiniband_verbs")
            .expect("verbs")
            .flatten()
            .find(|entry| fs::read_to_string(entry.path().join("ibdev")).is_ok_and(|device| device.trim() == name));
        let node = Path::new("/dev/infiniband").join(uverbs.expect("a node").file_name());
        let before = fs::metadata(&node).expect("a node").permissions();
        fs::set_permissions(&node, fs::Permissions::from_mode(0o600)).expect("rights");
        // By its descriptor, as nobody may not pass all directories that lead to it.
        let program = fs::File::open(env!("CARGO_BIN_EXE_ribinfo")).expect("the program");
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "/proc/self/fd/0"];
        let (text, status) = output(Command::new("setpriv").args(nobody).args(["check", "nodes"]).stdin(program));
        fs::set_permissions(&node, before).expect("rights");
        finds(
            &text,
            "fault",
            &format!("nodes {name}"),
            &["Permission denied", &format!("=> chmod 0666 {}", node.display())],
        );
        assert_eq!(status, 2);
    }
}

/// A tree in which rdma_cm prefers RoCE v1 on this device.
fn with_roce_v1(name: &str) -> Tree {
    let tree = Tree::new(&["/proc", "/dev", "/sys/class", "/sys/module", "/sys/devices"]);
    tree.put(&format!("/sys/kernel/config/rdma_cm/{name}/ports/1/default_roce_mode"), "IB/RoCE v1\n");
    tree
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_wrong_roce_mode_is_found() {
    for name in roce() {
        let (text, status) = with_roce_v1(&name).check(&["roce"]);
        let remedy = format!("echo 'RoCE v2' > /sys/kernel/config/rdma_cm/{name}/ports/1/default_roce_mode");
        finds(&text, "fault", &format!("roce {name}/1"), &["the GID table has only RoCE v2", &remedy]);
        assert_eq!(status, 2);
    }
}

/// Who answers `check --peer`, at this port; a process ends when this is dropped.
struct Served(Option<Child>, u16);

impl Served {
    fn by(serve: impl FnOnce(u16) -> Option<Child>) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let child = serve(port);
        wait(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self(child, port)
    }

    /// A process.
    fn process(mut command: Command, option: &str) -> Self {
        Self::by(|port| Some(command.args([option, &port.to_string()]).stderr(Stdio::null()).spawn().expect("it runs")))
    }

    /// A thread that answers for this tree, as long as the test runs.
    fn tree(tree: &Tree) -> Self {
        let root = Root::at(&tree.0).expect("a tree");
        Self::by(|port| {
            std::thread::spawn(move || facts::serve(&root, facts::ANY, port));
            None
        })
    }

    fn check(&self, subjects: &[&str]) -> (String, i32) {
        let port = self.1.to_string();
        check(&[subjects, &["--peer", "127.0.0.1", "--peer-port", &port]].concat())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_is_asked_and_its_roce_mode_compared() {
    for name in roce() {
        let mut serve = ribinfo();
        serve.arg("serve");
        let rperf = Command::new(env!("CARGO_BIN_EXE_rperf"));
        for same in [Served::process(serve, "--port"), Served::process(rperf, "--listen-port")] {
            let (text, status) = same.check(&["roce", "peer"]);
            finds(&text, "ok", &format!("roce {name}/1"), &["uses RoCE v2 too"]);
            assert_eq!(status, 0, "{text}");
        }
        let tree = with_roce_v1(&name);
        let other = Served::tree(&tree);
        let (text, status) = other.check(&["roce"]);
        finds(
            &text,
            "fault",
            &format!("roce {name}/1"),
            &["they must match", "a v2 client and a v1 server do not connect", "=> on "],
        );
        assert_eq!(status, 2);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_wrong_partitions_conf_is_found() {
    devices();
    let tree = Tree::whole();
    for (text, says, mends) in [
        ("storage=0x8002, ipoib : ALL=full;\n", "no default partition 0x7fff", "Default=0x7fff, ipoib : ALL=full;"),
        ("Default=0x7fff, ipoib : ALL=full\n a=0x2 : ALL;\n", "`;` of line 1 missing", "correct the line"),
        ("Default=0x7fff, ipoib\n", "there is no `:`: opensm reads no further", "correct the line"),
    ] {
        tree.put("/etc/rdma/partitions.conf", text);
        let (found, status) = tree.check(&["partitions"]);
        finds(&found, "fault", "partitions /etc/rdma/partitions.conf", &[says, mends]);
        assert_eq!(status, 2);
    }
    tree.put("/etc/rdma/partitions.conf", "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n");
    assert_eq!(tree.check(&["partitions"]).1, 0);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wrong_files_of_opensm_are_found() {
    devices();
    let tree = Tree::whole();
    tree.put("/etc/rdma/opensm.conf", "guid 0x1\n").put("/etc/rdma/opensm.conf.1", "guid 0x1\nsm_priority 99\n");
    tree.put("/etc/rdma/opensm.conf.2", "guid 0x1\n").put("/etc/rdma/opensm.conf.rpmnew", "");
    let (text, status) = tree.check(&["opensm"]);
    finds(&text, "warning", "opensm /etc/rdma/opensm.conf", &["it is ignored", "rm /etc/rdma/opensm.conf"]);
    finds(&text, "warning", "opensm /etc/rdma/opensm.conf.rpmnew", &["=> diff"]);
    finds(&text, "fault", "opensm /etc/rdma/opensm.conf.1", &["sm_priority 99", "=> sm_priority 15"]);
    finds(&text, "fault", "opensm /etc/rdma/opensm.conf.2", &["guid 0x1: /etc/rdma/opensm.conf.1 has the same"]);
    assert_eq!(status, 2);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_rule_that_keeps_roce_out_is_found() {
    roce();
    // The text of a rule as nft prints it: whether the kernel here has a packet filter does not matter.
    let tree = Tree::new(&[]);
    let rules = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t\tudp dport 4791 drop\n\t}\n}\n";
    let command = tree.0.join("nft");
    fs::write(&command, format!("#!/bin/sh\ncat <<'END'\n{rules}END\n")).expect("a command");
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).expect("rights");
    let path = format!("{}:{}", tree.0.display(), std::env::var("PATH").unwrap_or_default());
    let (text, status) = output(ribinfo().env("PATH", path).args(["check", "firewall"]));
    finds(&text, "fault", "firewall udp/4791", &["udp dport 4791 drop", "--add-port=4791/udp"]);
    assert_eq!(status, 2);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn json_says_what_the_text_says() {
    devices();
    let text = check(&[]).0;
    let report: Value = serde_json::from_str(&check(&["--json"]).0).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), text.lines().count());
    for (line, finding) in text.lines().zip(findings) {
        assert!(line.starts_with(finding["level"].as_str().expect("a level")), "{line}: {finding}");
        assert!(line.contains(finding["text"].as_str().expect("a text")), "{line}: {finding}");
    }
}
