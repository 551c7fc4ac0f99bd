//! SIGINT, SIGTERM and SIGHUP at a client and at a server, with tests over sockets, and programs
//! whose standard output is closed.

use std::process::{Command, Stdio};

use crate::common::{Server, fails, records, rperf, spawn};
use test_support::process::{Finished, Process, send_signal};
use test_support::text::assert_contains;

/// Interrupts a client in the middle of its second test, and returns its output.
fn interrupted(line: &str, signal: &str) -> Finished {
    let server = Server::with_options(&["-v"]);
    let client = spawn(&format!("{} {line}", server.target()));
    for _ in 0..2 {
        server.wait_for_log("begins");
    }
    // The second test measures for a while.
    std::thread::sleep(std::time::Duration::from_millis(400));
    send_signal(client.id(), signal);
    let output = client.wait();
    server.assert_responds();
    output
}

#[test]
fn an_interrupted_run_writes_what_it_measured() {
    for (signal, status, test) in [
        ("INT", 130, "tcp_bw"),
        ("TERM", 143, "udp_bw"),
        ("INT", 130, "tcp_lat"),
        ("HUP", 129, "tcp_bw"),
    ] {
        let line = format!("--json -t 300ms tcp_lat -t 60 {test} tcp_bw");
        let output = interrupted(&line, signal);
        assert_eq!(output.code(), Some(status), "{output}");
        assert!(
            output
                .stderr
                .contains(&format!("interrupted by SIG{signal}")),
            "{output}"
        );
        let tests = records(&output.stdout);
        assert_eq!(tests.len(), 2, "{output}");
        let measured = |n: usize| &tests[n]["outcome"]["measured"];
        assert!(measured(0)["partial"].is_null(), "{output}");
        assert_eq!(measured(1)["partial"], true, "{output}");
        // Both ends stopped their clocks when the signal arrived.
        for side in ["local_stats", "remote_stats"] {
            let nanos = measured(1)[side]["nanos"].as_u64().expect("nanos");
            assert!((200_000_000..20_000_000_000).contains(&nanos), "{nanos}");
        }
        let received = &measured(1)["remote_stats"]["received"]["msgs"];
        assert!(received.as_u64() > Some(0), "{output}");
    }
}

#[test]
fn a_test_by_count_ends_early_too() {
    let output = interrupted("--json -n 10 tcp_lat -n 4000000000 tcp_bw", "INT");
    assert_eq!(output.code(), Some(130), "{output}");
    let measured = &records(&output.stdout)[1]["outcome"]["measured"];
    assert_eq!(measured["partial"], true, "{output}");
    let count = |end: &str, way: &str| measured[end][way]["msgs"].as_u64().expect("a number");
    let received = count("remote_stats", "received");
    assert!(received > 0 && received < 4_000_000_000, "{output}");
}

#[test]
fn text_marks_the_partial_test() {
    let output = interrupted("-t 300ms tcp_lat -t 60 tcp_bw", "INT");
    assert!(
        output.stdout.contains("tcp_bw:") && output.stdout.contains("=  interrupted after "),
        "{output}"
    );
}

#[test]
fn both_ends_in_one_process_are_interrupted() {
    let mut command = rperf();
    command.args(["--json", "-t", "300ms", "tcp_lat", "-t", "60", "tcp_bw"]);
    command.stdout(Stdio::piped());
    let client = Process::spawn(&mut command);
    client.next_stdout_line("tcp_lat");
    std::thread::sleep(std::time::Duration::from_millis(700));
    client.interrupt();
    let output = client.wait();
    assert_eq!(output.code(), Some(130), "{output}");
    assert!(output.stdout.contains(r#""partial":true"#), "{output}");
}

#[test]
fn waiting_for_a_server_is_interrupted() {
    let client = spawn("-lp 1 -ws 1h localhost conf");
    std::thread::sleep(std::time::Duration::from_millis(500));
    send_signal(client.id(), "TERM");
    let output = client.wait();
    assert_eq!(output.code(), Some(143), "{output}");
}

#[test]
fn a_stopped_server_does_not_blame_the_client() {
    for test in ["tcp_bw", "tcp_lat", "udp_bw"] {
        let server = Server::with_options(&["-v"]);
        let client = spawn(&format!("{} -t 60 {test}", server.target()));
        server.wait_for_log("begins");
        server.signal("INT");
        let log = server.wait_for_exit();
        assert!(log.success(), "{test}: {log}");
        assert!(
            log.stderr.contains("the server was stopped") && !log.stderr.contains("the client"),
            "{test}: {log}"
        );
        let output = client.wait();
        assert_eq!(output.code(), Some(1), "{test}: {output}");
    }
}

#[test]
fn the_progress_bar_is_erased() {
    let program = format!("{} -t 300ms tcp_bw", env!("CARGO_BIN_EXE_rperf"));
    let output = |term: &str| {
        let mut script = Command::new("script");
        script
            .args(["-qec", &program, "/dev/null"])
            .env("TERM", term);
        test_support::process::output(&mut script).stdout
    };
    // Blanks erase the bar on a terminal that ignores the sequence for that.
    let text = output("xterm");
    let (_, after) = text.rsplit_once("tcp_bw [").expect("a bar");
    assert!(
        after.contains(&format!("\r{}\r", " ".repeat(79))),
        "{text:?}"
    );
    assert!(!output("dumb").contains("tcp_bw ["));
}

#[test]
fn a_test_without_end_runs_until_it_is_interrupted() {
    let server = Server::with_options(&["-v", "--max-time", "unlimited"]);
    let client = spawn(&format!(
        "{} --json --time unlimited tcp_bw",
        server.target()
    ));
    server.wait_for_log("begins");
    std::thread::sleep(std::time::Duration::from_millis(400));
    send_signal(client.id(), "INT");
    let output = client.wait();
    assert_eq!(output.code(), Some(130), "{output}");
    let measured = &records(&output.stdout)[0]["outcome"]["measured"];
    assert_eq!(measured["partial"], true, "{output}");
    let server = Server::start();
    let text = fails(&format!("{} --time unlimited tcp_bw", server.target()), 1);
    assert_contains(
        &text,
        &["duration unlimited: the server allows at most 3600 s"],
    );
}

#[test]
fn a_closed_terminal_stops_servers_unless_they_ignore_it() {
    let ribinfo = env!("CARGO_BIN_EXE_ribinfo");
    let server = Server::start();
    let monitor = format!("rperf monitor --json localhost:{}", server.port);
    let rperf = env!("CARGO_BIN_EXE_rperf");
    for line in [
        format!("{rperf} -lp 0"),
        format!("{ribinfo} export --no-check --listen 127.0.0.1:0"),
        monitor.replacen("rperf", rperf, 1),
    ] {
        let program = Process::spawn(&mut test_support::process::command(&line));
        program.next_stderr_line("");
        send_signal(program.id(), "HUP");
        let output = program.wait();
        assert_eq!(output.code(), Some(0), "{line}: {output}");
        // As nohup does it.
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("trap '' HUP; exec {line}")]);
        let mut program = Process::spawn(&mut shell);
        program.next_stderr_line("");
        send_signal(program.id(), "HUP");
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(program.is_running(), "{line}");
        send_signal(program.id(), "TERM");
        assert_eq!(program.wait().code(), Some(0), "{line}");
    }
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let server = Server::start();
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hosts/mlx4");
    let (rperf, ribinfo) = (env!("CARGO_BIN_EXE_rperf"), env!("CARGO_BIN_EXE_ribinfo"));
    for (line, program) in [
        (format!("{} -t 200ms tcp_lat", server.target()), rperf),
        (
            format!("{} --json -t 200ms tcp_lat", server.target()),
            rperf,
        ),
        (format!("monitor --json localhost:{}", server.port), rperf),
        ("--help".to_owned(), rperf),
        (format!("--root {tree} check"), ribinfo),
        (format!("--root {tree} --json devices"), ribinfo),
        (format!("--root {tree} export --no-check"), ribinfo),
        ("--help".to_owned(), env!("CARGO_BIN_EXE_ribping")),
    ] {
        // The pipe has no reader when the program writes.
        let script = format!("{{ sleep 0.2; {program} {line}; echo status $? >&2; }} | true");
        let output = test_support::process::output(Command::new("bash").args(["-c", &script]));
        let text = &output.stderr;
        assert!(!text.contains("panicked"), "{line}: {output}");
        let status = text.lines().last().unwrap_or_default();
        assert_eq!(status, "status 1", "{line}: {output}");
    }
    server.assert_responds();
}
