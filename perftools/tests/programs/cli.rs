//! The command line of `rperf`, without a device.

use std::io::Write;
use std::net::TcpStream;

use crate::common::{Server, fails, json, records, rperf, run};
use test_support::process;
use test_support::temp_dir::TempDir;
use test_support::text::assert_contains;

#[test]
fn invalid_command_lines_exit_with_2_and_a_remedy() {
    for (line, expected) in [
        ("node rc_bv", "did you mean rc_bw"),
        ("node", "no test to run"),
        ("-m 1K", "is an option of a client"),
        ("node rc_bw --msgsize 1", "did you mean --msg-size"),
        ("node rc_bw -m much", "not a size"),
        ("node sdp_bw", "Linux no longer has SDP"),
        (
            "node rc_bw -oo msg_size:1:64:0",
            "never reaches the last value",
        ),
        ("node rc_bw -ap 2", "does not support path migration"),
        ("node rc_bw --post-list x", "expected a whole number"),
        ("node rc_bw --wait", "rperf: --wait needs a value\n"),
        ("node rc_bw --cpu-affinity x", "is not a list of CPUs"),
    ] {
        let text = fails(line, 2);
        assert!(text.contains(expected), "{line}: {text}");
    }
}

/// A host has the provider of its own adapter only.
#[test]
fn the_program_starts_without_libefa_and_libmlx5() {
    // The dynamic linker prints the libraries instead of starting the program.
    let output = process::output(rperf().env("LD_TRACE_LOADED_OBJECTS", "1"));
    let text = output.stdout.clone();
    assert!(text.contains("libibverbs.so.1"), "{text}");
    for provider in ["libefa", "libmlx5"] {
        assert!(!text.contains(provider), "{text}");
    }
}

#[test]
fn values_out_of_range_are_rejected_before_connecting() {
    let rows = "\
-m 8G rc_bw => message size of 8 GiB: the maximum is 1 GiB
-m 0 rc_bw => the minimum is 1 byte
-n 0 rc_lat => at least 1
--depth 99999 rc_bw => expected 1 to 16384
--post-list 65 rc_bw => expected 1 to 64
--qps 0 rc_bw => expected 1 to 16384
--burst 4 rc_bw => help: add --rate-limit, or remove --burst
--rate-limit 0B/s rc_bw => the minimum is 1 byte per second
--warm-up 1 -n 5 rc_bw => or remove --warm-up
-m 9 rc_fetch_add_mr => an atomic operation has 8 bytes
-cm1 uc_bw => has no effect on uc_bw: it is for tests over RC and UD
--threads 65 rc_bw => expected 1 to 64
--threads 16 --qps 1025 rc_bw => the maximum is 16384 queue pairs
--threads 3 -n 2 rc_bw => needs at least one
--flip on rc_lat => it is for tests with one sender
--multicast 2 rc_bw => has no effect on rc_bw: it is for ud_bw
--gpu 0 rc_bw => invalid GPU `0`; expected: cuda:N
--gpu cuda:0 tcp_bw => has no effect on tcp_bw: it is for tests over RDMA devices
--gpu cuda:0 --verify rc_bw => the CPU would read each received byte
--gpu remote=cuda:0 --access-received on rc_bw => the CPU would read each received byte
--local-gpu cuda:0 ver_rc_fetch_add => choose a test that does not verify its data
--gpu cuda:0 rc_rdma_write_poll_lat => or run rc_rdma_write_lat
--gpu cuda:0 --inline 64 rc_bw => help: remove --inline
--gpu cuda:0 --huge-pages 2M rc_bw => or use memory of a GPU at one end only: --gpu local=GPU";
    rejects("nowhere.invalid", rows);
}

/// Asserts that command lines are refused before anything is measured. A row is the rest of the
/// line, ` => `, and a part of the error.
pub(crate) fn rejects(begin: &str, rows: &str) {
    for row in rows.lines() {
        let (line, expected) = row.split_once(" => ").unwrap();
        let text = fails(&format!("{begin} {line}"), 2);
        assert!(text.contains(expected), "{line}: {text}");
    }
}

#[test]
fn unusable_payload_files_are_rejected() {
    let dir = TempDir::new();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("long"), vec![7; 32_769]).unwrap();
    std::fs::write(path("ok"), "pattern").unwrap();
    let fifo = process::command(&format!("mkfifo {}", path("fifo"))).status();
    assert!(fifo.unwrap().success());
    for (file, line, expected) in [
        ("missing", "nowhere.invalid tcp_bw", "No such file"),
        ("empty", "nowhere.invalid tcp_bw", "the file is empty"),
        ("long", "nowhere.invalid tcp_bw", "longer than 32768 bytes"),
        ("fifo", "nowhere.invalid tcp_bw", "not a regular file"),
        ("", "nowhere.invalid tcp_bw", "not a regular file"),
        (
            "ok",
            "nowhere.invalid rc_fetch_add_mr",
            "it is for tests other than those of atomics",
        ),
        ("ok", "mesh a,b tcp_bw", "does not support --payload-file"),
        ("ok", "", "is an option of a client"),
    ] {
        let text = fails(&format!("{line} --payload-file {}", path(file)), 2);
        assert!(text.contains(expected), "{file} {line}: {text}");
    }
}

#[test]
fn help_and_version_are_printed() {
    assert!(run("--version").success());
    let help = run("--help").stdout;
    for word in [
        "--msg-size",
        "-m,",
        "run a server",
        "rperf mesh",
        "--help tuning",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    for (topic, word) in [
        ("tests", "rc_lat"),
        ("qperf", "-oo "),
        ("ud_bw", "UD send/receive"),
        ("msg_size", "Size of each message in bytes"),
        ("-nr", "--rd-atomic"),
        ("perftest", "ib_send_bw"),
        ("compare", "--threshold <PERCENT>"),
        ("opts", "--msg-size SIZE (-m)"),
        ("categories", "examples"),
        ("tuning", "--recv-list <N>"),
        ("options", "rc_bi_bw"),
        ("sctp_lat", "messages of 1 byte"),
        ("rc_bw", "messages of 64 KiB"),
    ] {
        let text = run(&format!("--help {topic}")).stdout;
        assert!(text.contains(word), "{topic}: {text}");
    }
    let help = run("report --help").stdout;
    assert!(help.starts_with("Writes an HTML page"), "{help}");
    assert!(fails("--help nonsense", 2).contains("no help topic named `nonsense`"));
}

#[test]
fn options_of_ping_and_rping_have_a_hint() {
    for (line, expected) in [
        ("-s", "rping's -s is `ribping -S`"),
        ("-s node", "ping's -s BYTES is --size BYTES"),
        ("-c 1 -a node", "rping's -a HOST is `ribping HOST`"),
        ("-W 1 node", "ping's -W SECONDS is -t MILLISECONDS"),
    ] {
        let mut ribping = std::process::Command::new(env!("CARGO_BIN_EXE_ribping"));
        let output = process::output(ribping.args(line.split(' ')));
        assert!(output.stderr.contains(expected), "{line}: {output}");
        assert_eq!(output.code(), Some(2), "{line}");
    }
}

#[test]
fn unknown_host_and_closed_port_are_distinct_errors() {
    let text = fails("nowhere.invalid conf", 1);
    assert_contains(
        &text,
        &[
            "cannot resolve the host name nowhere.invalid",
            "check the spelling",
        ],
    );
    // These errors end the program immediately. Waiting for the server (`-ws`) would not help.
    let text = fails("-ws 1h fe80::1 conf", 1);
    assert_contains(
        &text,
        &["add the interface to the link-local address: fe80::1%INTERFACE"],
    );
    let text = fails("-ws 1h fe80::1%nope7 conf", 1);
    assert!(text.contains("this host has an interface nope7"), "{text}");
    let text = fails("-lp 1 -ws 300ms localhost conf", 1);
    assert_contains(&text, &["cannot reach the server", "start `rperf` there"]);
    for line in ["-ws 1h -lp 0 localhost conf", "tune -ws 1h -lp 0 localhost"] {
        let text = fails(line, 2);
        assert!(text.contains("the port that the server prints"), "{text}");
    }
}

#[test]
fn arguments_that_are_not_utf8_are_printed_with_escapes() {
    use std::os::unix::ffi::OsStrExt;
    let host = std::ffi::OsStr::from_bytes(b"a\xffb");
    let output = process::output(rperf().arg(host).arg("conf"));
    assert_eq!(output.code(), Some(1), "{output}");
    assert!(
        output
            .stderr
            .contains("cannot resolve the host name a\u{fffd}b"),
        "{output}"
    );
    assert!(fails("node:7 conf", 1).contains("--port (-lp)"));
}

#[test]
fn host_without_devices_is_an_error() {
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut d| d.next().is_some()) {
        return;
    }
    let text = fails("rc_bw", 1);
    assert!(text.contains("rc_bw: "), "{text}");
    for line in ["-S", "4", "-C mlx4_0 -L 2", "fd99::1", "--json localhost"] {
        let mut ribping = std::process::Command::new(env!("CARGO_BIN_EXE_ribping"));
        let output = process::output(ribping.args(line.split(' ')));
        let text = "ribping: no RDMA device on this host; help: `ribinfo check modules` finds \
                    missing drivers\n";
        assert_eq!(output.stderr, text, "{line}");
        assert_eq!(output.code(), Some(2), "{line}");
    }
}

#[test]
fn conf_shows_both_hosts_and_quit_ends_the_server() {
    let server = Server::start();
    let tests = json(&format!("{} conf", server.target()));
    assert_eq!(
        tests[0]["outcome"]["conf"]["remote"]["rperf"],
        env!("CARGO_PKG_VERSION")
    );
    assert!(run(&format!("{} quit", server.target())).success());
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn conf_runs_without_a_server() {
    let text = run("conf").stdout;
    assert!(text.starts_with("conf:\n    loc_node   =  "), "{text}");
}

#[test]
fn sigterm_ends_the_server_cleanly() {
    let server = Server::start();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn stray_bytes_are_logged_and_the_server_continues() {
    let server = Server::start();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 5000],
        &[0; 300],
    ] {
        let mut stream = TcpStream::connect(("localhost", server.port)).unwrap();
        let _ = stream.write_all(bytes);
        drop(stream);
        server.wait_for_log("neither rperf nor qperf");
    }
    server.assert_responds();
}

#[test]
fn refused_threads_are_an_error() {
    // No address space has room for such a stack, so no thread can be created.
    let stack = (1_u64 << 46).to_string();
    for line in ["-n 10 tcp_lat", "-n 10 --interval 1s tcp_lat"] {
        let mut command = rperf();
        command.args(line.split_whitespace());
        let output = process::output(command.env("RUST_MIN_STACK", &stack));
        assert_eq!(output.code(), Some(1), "{line}: {output}");
        assert!(
            output.stderr.contains("cannot create a thread") && !output.stderr.contains("panicked"),
            "{line}: {output}"
        );
    }
}

#[test]
fn second_server_on_a_port_is_an_error() {
    let server = Server::start();
    let text = fails(&format!("-lp {}", server.port), 1);
    assert_contains(&text, &["stop the server that uses the port"]);
}

#[test]
fn server_can_be_bound_to_loopback() {
    let server = Server::with_options(&["--bind", "127.0.0.1"]);
    assert!(run(&format!("-lp {} 127.0.0.1 conf", server.port)).success());
}

#[test]
fn compare_exits_with_1_if_a_run_is_slower() {
    let directory = TempDir::new();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let output = run("--json -n 2000 --repeat 3 tcp_bw tcp_lat");
    let mut tests = records(&output.stdout);
    assert_eq!(tests.len(), 6);
    let mut write = |name: &str, bandwidth: f64| {
        for test in &mut tests {
            test["outcome"]["measured"]["summary"]["bandwidth"] = serde_json::json!(bandwidth);
        }
        let lines: Vec<String> = tests.iter().map(ToString::to_string).collect();
        std::fs::write(file(name), lines.join("\n")).unwrap();
    };
    write("old", 1000.0);
    write("new", 1.0);
    let same = run(&format!("compare {} {}", file("old"), file("old")));
    assert!(same.success(), "{}", same.stderr);
    assert_eq!(same.stdout.clone().matches("same").count(), 2);
    let text = fails(
        &format!("compare {} {} --threshold 10%", file("old"), file("new")),
        1,
    );
    assert!(text.contains("worse by more than 10 %"), "{text}");
    assert!(fails("compare one", 2).contains("two files"));
    assert!(fails("compare one two --threshold x", 2).contains("--threshold"));
}

#[test]
fn sweep_prints_a_table() {
    let text = run("-n 50 --sizes 64,4K tcp_lat").stdout;
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(
        text.starts_with("tcp_lat:  ") && text.contains("p99.9") && text.contains("4 KiB"),
        "{text}"
    );
}
