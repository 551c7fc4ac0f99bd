//! The program from outside, without a device.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use assert_cmd::assert::OutputAssertExt;
use common::{Server, fails, json, rperf, run};

#[test]
fn a_wrong_command_line_ends_with_status_2_and_says_what_to_do() {
    for (line, says) in [
        ("node rc_bv", "did you mean rc_bw"),
        ("node", "no test named"),
        ("-m 1K", "is for a client"),
        ("node rc_bw --msgsize 1", "did you mean --msg-size"),
        ("node rc_bw -m much", "not a size"),
        ("node sdp_bw", "gone from Linux"),
        ("node rc_bw -oo msg_size:1:64:0", "never ends"),
        ("node rc_bw -ap 2", "is InfiniBand's alone"),
        ("node rc_bw --post-list x", "--post-list"),
        ("node rc_bw --cpu-affinity x", "names no processors"),
    ] {
        let text = fails(line, 2);
        assert!(text.contains(says), "{line}: {text}");
    }
}

#[test]
fn numbers_beyond_the_limits_are_refused_before_anything_is_contacted() {
    for (line, says) in [
        (
            "nowhere.invalid -m 8G rc_bw",
            "message of 8 GiB: the limit is 1 GiB",
        ),
        ("nowhere.invalid -m 0 rc_bw", "at least 1 byte"),
        ("nowhere.invalid -n 0 rc_lat", "at least 1"),
        ("nowhere.invalid --depth 99999 rc_bw", "from 1 to 16384"),
        ("nowhere.invalid --post-list 65 rc_bw", "from 1 to 64"),
        ("nowhere.invalid --qps 0 rc_bw", "from 1 to 256"),
        (
            "nowhere.invalid --rate-limit 0 rc_bw",
            "at least 1 byte a second",
        ),
        ("nowhere.invalid --warm-up 1 -n 5 rc_bw", "no warm-up"),
        (
            "nowhere.invalid -m 9 rc_fetch_add_mr",
            "an atomic has 8 bytes",
        ),
        ("nowhere.invalid -cm1 uc_bw", "leave --use-cm (-cm1) away"),
        ("nowhere.invalid --threads 65 rc_bw", "from 1 to 64"),
        ("nowhere.invalid --threads 16 --qps 17 rc_bw", "256 in all"),
        (
            "nowhere.invalid --threads 3 -n 2 rc_bw",
            "at least one for each",
        ),
        ("nowhere.invalid --flip on rc_lat", "leave it away"),
        (
            "nowhere.invalid --multicast 2 rc_bw",
            "ud_bw sends to a group",
        ),
    ] {
        let text = fails(line, 1);
        assert!(text.contains(says), "{line}: {text}");
    }
}

#[test]
fn help_and_version_are_printed() {
    rperf().arg("--version").assert().success();
    let help = String::from_utf8(run("--help").stdout).unwrap();
    for word in ["--msg-size", "rc_bi_bw", "be the server", "-cm1"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    for (topic, word) in [
        ("tests", "rc_lat"),
        ("qperf", "-oo "),
        ("ud_bw", "UD send/receive"),
        ("msg_size", "Bytes a message"),
        ("-nr", "--rd-atomic"),
        ("opts", "--msg-size SIZE (-m)"),
        ("categories", "examples"),
        ("sctp_lat", "messages of 1 byte"),
        ("rc_bw", "messages of 64 KiB"),
    ] {
        let text = String::from_utf8(run(&format!("--help {topic}")).stdout).unwrap();
        assert!(text.contains(word), "{topic}: {text}");
    }
    assert!(fails("--help nonsense", 2).contains("no such help topic"));
}

#[test]
fn an_unknown_host_and_a_closed_port_are_clear_errors() {
    let text = fails("nowhere.invalid conf", 1);
    assert!(
        text.contains("cannot find the host nowhere.invalid")
            && text.contains("is it spelt right?"),
        "{text}"
    );
    // Told at once: waiting mends neither.
    let text = fails("-ws 1h fe80::1 conf", 1);
    assert!(
        text.contains("wants the interface with it: fe80::1%INTERFACE"),
        "{text}"
    );
    let text = fails("-ws 1h fe80::1%nope7 conf", 1);
    assert!(text.contains("is there an interface nope7 here?"), "{text}");
    let text = fails("-lp 1 -ws 300ms localhost conf", 1);
    assert!(
        text.contains("cannot reach the server") && text.contains("start `rperf` there"),
        "{text}"
    );
}

#[test]
fn words_that_are_no_text_are_answered_as_words() {
    use std::os::unix::ffi::OsStrExt;
    let output = rperf()
        .arg(std::ffi::OsStr::from_bytes(b"a\xffb"))
        .arg("conf")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot find the host a\u{fffd}b"), "{text}");
    assert!(fails("node:7 conf", 1).contains("--listen-port (-lp)"));
}

#[test]
fn a_machine_without_devices_says_so() {
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut d| d.next().is_some()) {
        return;
    }
    let text = fails("rc_bw", 1);
    assert!(text.contains("rc_bw: "), "{text}");
}

#[test]
fn conf_shows_both_hosts_and_quit_ends_the_server() {
    let server = Server::start();
    let tests = json(&format!("{} conf", server.here()));
    assert_eq!(
        tests[0]["outcome"]["conf"]["remote"]["rperf"],
        env!("CARGO_PKG_VERSION")
    );
    run(&format!("{} quit", server.here())).assert().success();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn conf_runs_with_both_ends_here() {
    let text = String::from_utf8(run("conf").stdout).unwrap();
    assert!(text.starts_with("conf:\n    loc_node   =  "), "{text}");
}

#[test]
fn sigterm_ends_the_server_cleanly() {
    let server = Server::start();
    Command::new("kill")
        .arg(server.pid().to_string())
        .assert()
        .success();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn stray_bytes_are_logged_and_the_server_serves_on() {
    let server = Server::start();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 5000],
        &[0; 300],
    ] {
        let mut stream = TcpStream::connect(("localhost", server.port)).unwrap();
        let _ = stream.write_all(bytes);
        drop(stream);
        server.says("neither rperf nor qperf");
    }
    server.assert_alive();
}

#[test]
fn two_servers_on_one_port_are_a_clear_error() {
    let server = Server::start();
    let text = fails(&format!("-lp {}", server.port), 1);
    assert!(text.contains("another server runs there"), "{text}");
}

#[test]
fn a_server_bound_to_loopback_says_where_it_listens() {
    let server = Server::with(&["--bind", "127.0.0.1"]);
    run(&format!("-lp {} 127.0.0.1 conf", server.port))
        .assert()
        .success();
}

#[test]
fn two_runs_are_compared_and_the_status_says_which_is_worse() {
    let directory = std::env::temp_dir().join(format!("rperf-compare-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str| directory.join(name).display().to_string();
    let output = run("--json -n 2000 --repeat 3 tcp_bw tcp_lat");
    let mut document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["tests"].as_array().unwrap().len(), 6);
    let mut write = |name: &str, bandwidth: f64| {
        for test in document["tests"].as_array_mut().unwrap() {
            test["outcome"]["measured"]["summary"]["bandwidth"] = serde_json::json!(bandwidth);
        }
        std::fs::write(file(name), document.to_string()).unwrap();
    };
    write("old", 1000.0);
    write("new", 1.0);
    let same = run(&format!("compare {} {}", file("old"), file("old")));
    assert!(
        same.status.success(),
        "{}",
        String::from_utf8_lossy(&same.stderr)
    );
    assert_eq!(
        String::from_utf8(same.stdout)
            .unwrap()
            .matches("same")
            .count(),
        2
    );
    let text = fails(
        &format!("compare {} {} --threshold 10%", file("old"), file("new")),
        1,
    );
    assert!(text.contains("worse by more than 10 %"), "{text}");
    assert!(fails("compare one", 2).contains("two files"));
    assert!(fails("compare one two --threshold x", 2).contains("--threshold"));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_sweep_is_a_table_and_csv_has_a_line_for_each_test() {
    let text = String::from_utf8(run("-n 50 --sizes 64,4K tcp_lat").stdout).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(
        text.starts_with("tcp_lat:  ") && text.contains("p99.9") && text.contains("4 KiB"),
        "{text}"
    );
    let text = String::from_utf8(run("--csv -n 50 tcp_bw tcp_lat").stdout).unwrap();
    let columns: Vec<usize> = text.lines().map(|line| line.matches(',').count()).collect();
    assert_eq!(columns.len(), 3);
    assert!(columns.iter().all(|n| *n == columns[0]), "{text}");
    let text = String::from_utf8(run("--json-lines -n 50 tcp_bw tcp_lat").stdout).unwrap();
    let tests: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(tests[1]["test"], "tcp_lat");
}
