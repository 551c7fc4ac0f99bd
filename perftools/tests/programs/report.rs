//! `rperf report`, and progress on a terminal.

use std::fs;
use std::process::Command;

use super::cli::rejects;
use crate::common::{Server, fails, run};
use test_support::process;
use test_support::temp_dir::TempDir;
use test_support::text::assert_contains;

/// Writes a file and returns its path.
fn write(dir: &TempDir, name: &str, contents: &str) -> String {
    dir.write(name, contents).display().to_string()
}

#[test]
fn report_contains_all_tests_of_its_inputs() {
    let server = Server::start();
    let directory = TempDir::new();
    let sweep = run(&format!(
        "--json --sizes 64,4K -n 500 {} tcp_bw tcp_lat",
        server.target()
    ));
    let lines = run(&format!(
        "--json --interval 50ms -t 300ms {} tcp_bw tcp_lat conf",
        server.target()
    ));
    let (a, b) = (
        write(&directory, "a.json", &sweep.stdout),
        write(&directory, "b.json", &lines.stdout),
    );
    let page = directory.path().join("page.html").display().to_string();
    // A link is replaced, and the file that it names stays as it is.
    std::os::unix::fs::symlink(&a, &page).unwrap();
    assert!(run(&format!("report first={a} {b} --output {page}")).success());
    assert_eq!(fs::read_to_string(&a).unwrap(), sweep.stdout);
    let text = fs::read_to_string(page).unwrap();
    for part in [
        "first, tcp_bw",
        "b, tcp_lat",
        "Bandwidth against message size",
        "Latency by percentile",
        "over time",
        "Environment",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Without `--output`, the page is written to a pipe.
    assert_eq!(run(&format!("report first={a} {b}")).stdout, text);
}

#[test]
fn invalid_input_files_are_rejected_by_name() {
    let directory = TempDir::new();
    for (name, text, expected) in [
        ("empty.json", &b""[..], "not a record of rperf"),
        ("other.json", b"{\"schema\": 1}", "not a record of rperf"),
        (
            "later.json",
            b"{\"schema\": 9, \"type\": \"test\"}",
            "schema 9",
        ),
        (
            "none.json",
            b"{\"schema\": 1, \"type\": \"tune\", \"path\": \"a\", \"measurements\": 0, \"findings\": [], \"crossing\": null, \"refused\": []}",
            "it has no tests",
        ),
        ("bytes.json", b"\xff\xfe\x00\x01", "cannot read"),
        (
            "cut.json",
            b"{\"schema\": 1, \"type\": \"test\", \"test\": \"rc_bw\"",
            "not a record of rperf",
        ),
        ("deep.json", &[b'['; 10_000], "not a record of rperf"),
    ] {
        let file = directory.write(name, text);
        let file = file.display();
        let output = run(&format!("report {file}"));
        let error = output.stderr.clone();
        assert!(!output.success() && output.stdout.is_empty(), "{name}");
        assert!(
            error.contains(name) && error.contains(expected) && !error.contains("panicked"),
            "{name}: {error}"
        );
    }
    assert!(fails("report /nowhere.json", 1).contains("cannot read /nowhere.json"));
    assert!(fails("report", 2).contains("<[NAME=]FILE>"));
}

#[test]
fn progress_is_shown_only_on_a_terminal() {
    let server = Server::start();
    let line = format!("-t 1 {} tcp_bw", server.target());
    let piped = run(&line);
    assert!(
        piped.success() && piped.stderr.is_empty(),
        "{}",
        piped.stderr
    );
    let program = format!("{} {line}", env!("CARGO_BIN_EXE_rperf"));
    let mut script = Command::new("script");
    script
        .args(["-qec", &program, "/dev/null"])
        .env("NO_COLOR", "1")
        .env("TERM", "xterm");
    let text = process::output(&mut script).stdout;
    assert_contains(&text, &["tcp_bw [", "    bw "]);
    // Escape sequences only move the cursor. There are no colors, with or without `NO_COLOR`.
    let colors = text.split('\u{1b}').skip(1).filter(|rest| {
        rest.trim_start_matches(|c: char| !c.is_alphabetic())
            .starts_with('m')
    });
    assert_eq!(colors.count(), 0, "{text:?}");
}

#[test]
fn incompatible_options_are_rejected() {
    let rows = "\
tune localhost rc_bw => does not accept tests
tune --repeat 2 localhost => --repeat has no effect on `rperf tune`
tune --flood localhost => --flood has no effect on `rperf tune`
tune --sock-buf-size 1M localhost => (-sb) has no effect on `rperf tune`
tune --max-lat 1us localhost => --max-lat has no effect on `rperf tune`
tune -lp 5 => (-lp) has no effect without a host
-lp 5 tcp_bw => (-lp) has no effect without a host
--wait-server 9 tcp_bw => (-ws) has no effect without a host
tune --threads 2 localhost => --threads
--interval 1ms localhost tcp_bw => the minimum is 10 ms
--interval 1 => is an option of a client";
    rejects("", rows);
}
