//! `rperf mesh` with real servers on this host.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Server, fails, rperf, run, spawn};
use serde_json::Value;
use test_support::process::{self, Finished, wait_until};
use test_support::temp_dir::TempDir;
use test_support::text::assert_contains;

/// Options of a server that takes part in a mesh.
const MESH: [&str; 3] = ["--mesh", "--allow", "127.0.0.0/8"];

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::with_options(&MESH)).collect()
}

fn list(servers: &[Server]) -> String {
    let names: Vec<String> = servers
        .iter()
        .map(|s| format!("127.0.0.1:{}", s.port))
        .collect();
    names.join(",")
}

/// Runs `rperf mesh --json`, and returns its record and its output. The figures of servers on one
/// host differ, so there may be outliers.
fn mesh(line: &str) -> (Value, Finished) {
    let output = run(&format!("mesh --json {line}"));
    assert!(!output.stderr.contains("panicked"), "{output}");
    let record = serde_json::from_str(&output.stdout);
    let record = record.unwrap_or_else(|e| panic!("{line}: {e}: {output}"));
    (record, output)
}

fn cells(record: &Value) -> Vec<Value> {
    record["cells"].as_array().expect("cells").clone()
}

fn errors(record: &Value) -> Vec<String> {
    let all = cells(record).into_iter();
    all.filter_map(|c| c["error"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn all_ordered_pairs_are_measured_by_the_servers() {
    let servers = servers(4);
    let dir = TempDir::new();
    let page = dir.path().join("mesh.html");
    let line = format!(
        "{} -n 200 tcp_bw tcp_lat --html {}",
        list(&servers),
        page.display()
    );
    let (record, output) = mesh(&line);
    assert!(matches!(output.code(), Some(0 | 3)), "{output}");
    assert_eq!(record["schema"], 1);
    let cells = cells(&record);
    assert_eq!(cells.len(), 2 * 4 * 3);
    for cell in &cells {
        let figure = match cell["test"].as_str().unwrap() {
            "tcp_bw" => &cell["bandwidth"],
            "tcp_lat" => &cell["latency"],
            other => panic!("{other}"),
        };
        assert!(figure.as_f64().unwrap() > 0.0, "{cell}");
        assert_ne!(cell["from"], cell["to"]);
        assert!(
            cell["counters"]["received"].as_u64().unwrap() >= 200,
            "{cell}"
        );
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("class=\"detail\"").count(), 24);
}

#[test]
fn a_fault_of_all_hosts_has_one_line() {
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut d| d.next().is_some()) {
        return;
    }
    let servers = [(); 3].map(|()| Server::with_options(&MESH));
    let output = run(&format!("mesh {} -n 10 rc_bw", list(&servers)));
    let lines: Vec<&str> = output
        .stdout
        .lines()
        .filter(|l| l.contains("help:"))
        .collect();
    assert_eq!(lines.len(), 1, "{output}");
    assert!(
        lines[0].starts_with("all hosts: rc_bw: failed: ") && !lines[0].contains("127.0.0.1"),
        "{output}"
    );
    assert_eq!(output.code(), Some(1), "{output}");
}

#[test]
fn servers_run_tests_for_others_only_with_permission() {
    let text = fails("-lp 0 --mesh", 2);
    assert!(text.contains("add --token-file, or --allow"), "{text}");
    let plain = Server::start();
    let allowing = Server::with_options(&MESH);
    let both = [plain, allowing];
    let (record, output) = mesh(&format!("{} -n 10 tcp_lat", list(&both)));
    assert_eq!(output.code(), Some(1), "{output}");
    // The server without --mesh still serves the tests of the other one.
    let errors = errors(&record);
    assert_eq!(errors.len(), 1, "{record:#}");
    assert!(
        errors[0].contains("help: start it with --mesh"),
        "{errors:?}"
    );
}

#[test]
fn delegated_tests_keep_the_limits_of_the_server() {
    let limited = Server::with_options(&["--mesh", "--allow", "127.0.0.1/32", "--max-time", "1"]);
    let line = format!(
        "127.0.0.1:{},192.0.2.1:9 -ws 0.2 -t 0.1 tcp_lat",
        limited.port
    );
    let (record, _) = mesh(&line);
    let text = errors(&record).join("\n");
    assert_contains(&text, &["servers at 192.0.2.1 are not allowed"]);
    let other = Server::with_options(&MESH);
    let both = [limited, other];
    let line = format!("{} -t 2 tcp_lat", list(&both));
    let (record, _) = mesh(&line);
    let cells = cells(&record);
    assert_eq!(cells.len(), 2, "{record:#}");
    for cell in cells {
        let (client, error) = (cell["from"].as_str(), cell["error"].as_str());
        let client = format!("{}: ", client.unwrap());
        let reported = error.and_then(|error| error.strip_prefix(&client));
        let reported = reported.unwrap_or_else(|| panic!("{cell}"));
        assert!(reported.contains("--max-time"), "{cell}");
        assert!(reported.matches("the server: ").count() <= 1, "{cell}");
    }
}

#[test]
fn all_servers_of_a_mesh_share_the_token() {
    let dir = TempDir::new();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = dir.write(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let token = file("token", "a secret of some length");
    let other = file("other", "another secret of length");
    let option = format!("--token-file={}", token.display());
    let servers: Vec<Server> = (0..2)
        .map(|_| Server::with_options(&["--mesh", &option]))
        .collect();
    let (record, _) = mesh(&format!("{option} {} -n 10 tcp_lat", list(&servers)));
    assert_eq!(errors(&record), Vec::<String>::new());
    for option in [String::new(), format!("--token-file={}", other.display())] {
        let (record, _) = mesh(&format!("{option} {} -n 10 tcp_lat", list(&servers)));
        let errors = errors(&record);
        assert_eq!(errors.len(), 2, "{record:#}");
        assert!(errors.iter().all(|e| e.contains("token")), "{errors:?}");
    }
}

#[test]
fn dead_host_costs_only_its_own_cells() {
    let servers = servers(4);
    // The server is stopped, so its host looks dead: connections succeed, but nothing answers.
    servers[1].signal("STOP");
    let line = format!("{} -ws 0.5 -to 1 -n 10 tcp_lat", list(&servers));
    let begin = Instant::now();
    let (record, output) = mesh(&line);
    let elapsed = begin.elapsed();
    servers[1].signal("CONT");
    // A second for each of ten tests with the host. Without --timeout, each would take five.
    assert!(elapsed < Duration::from_secs(25), "{elapsed:?}");
    assert_eq!(output.code(), Some(1), "{output}");
    let dead = format!("127.0.0.1:{}", servers[1].port);
    for cell in cells(&record) {
        let involved = cell["from"] == dead.as_str() || cell["to"] == dead.as_str();
        assert_eq!(cell["error"].is_string(), involved, "{cell}");
    }
    let outliers = record["outliers"].as_array().unwrap();
    let failed: Vec<&Value> = outliers.iter().filter(|o| o["state"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{outliers:#?}");
    assert_eq!(
        (&failed[0]["kind"], &failed[0]["ports"][0]),
        (&"host".into(), &dead.clone().into())
    );
}

#[test]
fn death_of_the_coordinator_ends_its_tests() {
    // A server with one client at a time is free again when the test of the mesh has ended.
    let options = [&MESH[..], &["--max-clients", "1", "--verbose"]].concat();
    let servers = [
        Server::with_options(&options),
        Server::with_options(&options),
    ];
    let coordinator = spawn(&format!("mesh {} -t 60 tcp_bw", list(&servers)));
    servers[0].wait_for_log("tcp_bw begins");
    process::send_signal(coordinator.id(), "KILL");
    let begin = Instant::now();
    for server in &servers {
        let is_free = || run(&format!("-ws 0 {} conf", server.target())).success();
        assert!(
            wait_until(Duration::from_secs(30), is_free),
            "the server is busy"
        );
    }
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn supervised_server_stops_with_its_standard_input() {
    let mut command = rperf();
    command.args(["-lp", "0", "--mesh", "--supervised"]);
    command.stdin(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a secret of some length\n").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "the server runs");
    drop(stdin);
    assert!(child.wait().unwrap().success());
    let text = fails("-lp 0 --mesh --supervised", 1);
    assert!(text.contains("the token has 0 bytes"), "{text}");
}

#[test]
fn tests_that_share_a_port_start_together() {
    let servers = servers(3);
    let (record, _) = mesh(&format!("--pattern incast {} -t 1 tcp_bw", list(&servers)));
    assert_eq!(errors(&record), Vec::<String>::new());
    let groups = record["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3);
    for group in groups {
        assert_eq!(group["completed"], 2, "{group}");
        assert!(group["sum"].as_f64().unwrap() > 0.0 && group["fairness"].as_f64().unwrap() > 0.5);
    }
}

#[test]
fn a_limit_names_the_pair_and_the_excess() {
    let servers = servers(2);
    let list = list(&servers);
    let (record, output) = mesh(&format!("{list} -n 50 tcp_lat --max-lat 1us"));
    assert_eq!(output.code(), Some(3), "{output}");
    let pair = format!(
        "127.0.0.1:{} → 127.0.0.1:{}",
        servers[0].port, servers[1].port
    );
    let back = format!(
        "127.0.0.1:{} → 127.0.0.1:{}",
        servers[1].port, servers[0].port
    );
    let line = output.stderr.lines().last().unwrap_or_default();
    assert!(line.contains("2 of 2 results exceed a limit"), "{line}");
    assert!(line.contains(&pair) || line.contains(&back), "{line}");
    assert!(line.contains(": tcp_lat: mean latency of "), "{line}");
    assert!(line.contains(" % above --max-lat 1 us"), "{line}");
    for cell in cells(&record) {
        let text = cell["exceeded"][0].as_str().unwrap();
        assert!(text.contains("above --max-lat"), "{cell}");
    }
    // Limits that the results keep; each test has its own.
    let line = format!("{list} -n 50 --slow-latency 1000 --slow-bandwidth 0 --max-lost 0");
    let (record, output) = mesh(&format!(
        "{line} tcp_lat --max-p99 10 tcp_bw --min-bw 1Kb/s"
    ));
    assert_eq!(output.code(), Some(0), "{output}");
    assert!(cells(&record).iter().all(|c| c["exceeded"].is_null()));
    let output = run(&format!("mesh {line} tcp_lat tcp_bw --min-bw 9000Gb/s"));
    assert_eq!(output.code(), Some(3), "{output}");
    assert!(
        output
            .stdout
            .contains(&format!("{pair}: tcp_bw: bandwidth of ")),
        "{output}"
    );
    // The loopback interface has no rate, so the results cannot be checked.
    let (record, output) = mesh(&format!("{line} tcp_bw --min-bw 90%"));
    assert_eq!(output.code(), Some(1), "{output}");
    assert!(errors(&record)[0].contains("is unknown"), "{record:#}");
}

#[test]
fn records_are_written_to_no_file_of_another_user() {
    let dir = TempDir::new();
    let servers = servers(2);
    let path = |name: &str| dir.path().join(name);
    let run_with = |record: &str, options: &str| {
        let record = path(record);
        let line = format!("{} -n 50 tcp_lat {options} --record", list(&servers));
        run(&format!("mesh {line} {}", record.display()))
    };
    std::fs::write(path("victim"), "precious").unwrap();
    for name in ["record.new", "page"] {
        std::os::unix::fs::symlink(path("victim"), path(name)).unwrap();
    }
    let page = path("page").display().to_string();
    let output = run_with("record", &format!("--html {page}"));
    assert!(matches!(output.code(), Some(0 | 3)), "{output}");
    assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "precious");
    assert!(path("record").metadata().unwrap().is_file());
    assert!(path("page").symlink_metadata().unwrap().is_file());
    // The permissions are those that the umask leaves.
    let mode = |name: &str| path(name).metadata().unwrap().permissions().mode();
    assert_eq!(mode("record"), mode("victim"));
    let names = std::fs::read_dir(dir.path()).unwrap();
    assert_eq!(names.count(), 4);
    // Special files are not replaced.
    let fifo = path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
    std::os::unix::fs::symlink(path("fifo"), path("link")).unwrap();
    for name in ["fifo", "zero", "link", "."] {
        let output = run_with(name, "");
        assert_eq!(output.code(), Some(1), "{output}");
        let text = &output.stderr;
        assert!(text.contains("it is not a regular file"), "{output}");
    }
}

#[test]
fn a_malicious_record_is_an_error() {
    let dir = TempDir::new();
    let servers = servers(2);
    let path = dir.path().join("record");
    let line = format!("mesh {} -n 10 tcp_lat --record", list(&servers));
    let output = run(&format!("{line} {}", path.display()));
    assert!(matches!(output.code(), Some(0 | 3)), "{output}");
    let valid = std::fs::read_to_string(&path).unwrap();
    let deep = "[".repeat(200_000);
    let name = "\u{1b}[2J\u{202e}";
    let (first, second) = valid.split_once("\"cells\": [").unwrap();
    for (name, text) in [
        ("empty", String::new()),
        ("no JSON", "precious".to_owned()),
        ("other JSON", "{\"tests\": []}".to_owned()),
        ("deep", deep.clone()),
        ("deep cells", format!("{first}\"cells\": {deep}")),
        (
            "other schema",
            valid.replace("\"schema\":1", "\"schema\":2"),
        ),
        (
            "numbers",
            valid.replace("\"latency\":", "\"latency\":1e999,\"x\":"),
        ),
        (
            "other cell",
            format!("{first}\"cells\": [{{\"from\":\"{name}\"}},\n{second}"),
        ),
        ("binary", "\0".repeat(100_000)),
    ] {
        std::fs::write(&path, &text).unwrap();
        let output = run(&format!("report {}", path.display()));
        let error = &output.stderr;
        assert!(matches!(output.code(), Some(1 | 2)), "{name}: {output}");
        assert!(
            error.starts_with("rperf: ") && error.len() < 2000,
            "{name}: {output}"
        );
        assert!(!error.contains(['\u{1b}', '\u{202e}']), "{name}: {output}");
        // The file is kept.
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
    }
    // A file without content that is longer than any record.
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(3 << 30).unwrap();
    let output = run(&format!("report {}", path.display()));
    assert_eq!(output.code(), Some(1), "{output}");
    assert!(output.stderr.contains("longer than 2 GiB"), "{output}");
}

#[test]
fn servers_that_ask_each_other_end() {
    // Each has one place, which the request of the coordinator takes.
    let options = ["--mesh", "--allow", "127.0.0.0/8", "--max-clients", "1"];
    let servers: Vec<_> = (0..2).map(|_| Server::with_options(&options)).collect();
    let begin = Instant::now();
    let (record, output) = mesh(&format!(
        "--pattern all-to-all {} -ws 1 -to 2 -n 10 tcp_lat",
        list(&servers)
    ));
    println!("{:?}: {output}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(40), "{output}");
    assert_eq!(cells(&record).len(), 2, "{record:#}");
    // A server that is its own peer.
    let server = Server::with_options(&MESH);
    let port = server.port;
    let line = format!("127.0.0.1:{port},127.0.0.2:{port} -n 10 tcp_lat");
    let (record, output) = mesh(&line);
    assert!(matches!(output.code(), Some(0 | 3)), "{output}");
    assert_eq!(errors(&record), [""; 0]);
    for server in servers.iter().chain([&server]) {
        assert!(wait_until(Duration::from_secs(20), || {
            run(&format!("{} conf", server.target())).success()
        }));
    }
}
