//! What is made of records, and what is shown while they are made.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{Server, fails, run};

/// A directory that goes when it is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rperf-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_page_is_made_of_what_tests_wrote() {
    let server = Server::start();
    let directory = Directory::new("report");
    let sweep = run(&format!(
        "--json --sizes 64,4K -t 100ms {} tcp_bw tcp_lat",
        server.here()
    ));
    let lines = run(&format!(
        "--json-lines --interval 50ms -t 300ms {} tcp_bw tcp_lat conf",
        server.here()
    ));
    let (a, b) = (
        directory.file("a.json", &sweep.stdout),
        directory.file("b.json", &lines.stdout),
    );
    let page = directory.0.join("page.html").display().to_string();
    assert!(
        run(&format!("report first={a} {b} --output {page}"))
            .status
            .success()
    );
    let text = fs::read_to_string(page).unwrap();
    for part in [
        "first, tcp_bw",
        "b, tcp_lat",
        "Bandwidth against message size",
        "Latency by percentile",
        "over time",
        "Hosts",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // To a pipe it goes without an option.
    assert_eq!(
        String::from_utf8(run(&format!("report first={a} {b}")).stdout).unwrap(),
        text
    );
}

#[test]
fn files_that_are_no_records_are_refused_by_name() {
    let directory = Directory::new("foreign");
    for (name, text, says) in [
        ("empty.json", &b""[..], "no record of rperf"),
        ("other.json", b"{\"schema\": 1}", "no record of rperf"),
        (
            "later.json",
            b"{\"schema\": 9, \"program\": \"rperf 9\", \"tests\": []}",
            "schema 9",
        ),
        (
            "none.json",
            b"{\"schema\": 1, \"program\": \"rperf\", \"tests\": []}",
            "no test is in it",
        ),
        ("bytes.json", b"\xff\xfe\x00\x01", "cannot read"),
        (
            "cut.json",
            b"{\"schema\": 1, \"program\": \"rperf\", \"tests\": [{\"test\": \"rc_bw\"",
            "no record of rperf",
        ),
        ("deep.json", &[b'['; 10_000], "no record of rperf"),
    ] {
        let file = directory.file(name, text);
        let output = run(&format!("report {file}"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{name}"
        );
        assert!(
            error.contains(name) && error.contains(says) && !error.contains("panicked"),
            "{name}: {error}"
        );
    }
    assert!(fails("report /nowhere.json", 1).contains("cannot read /nowhere.json"));
    assert!(fails("report", 2).contains("needs files"));
}

#[test]
fn progress_is_shown_on_a_terminal_and_not_in_a_pipe() {
    let server = Server::start();
    let line = format!("-t 1 {} tcp_bw", server.here());
    let piped = run(&line);
    assert!(
        piped.status.success() && piped.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&piped.stderr)
    );
    let program = format!("{} {line}", env!("CARGO_BIN_EXE_rperf"));
    let shown = Command::new("script")
        .args(["-qec", &program, "/dev/null"])
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .output();
    let text = String::from_utf8(shown.unwrap().stdout).unwrap();
    assert!(
        text.contains("tcp_bw [") && text.contains("bw  ="),
        "{text}"
    );
    // No colour, with or without NO_COLOR: movements of the cursor only.
    let colours = text.split('\u{1b}').skip(1).filter(|rest| {
        rest.trim_start_matches(|c: char| !c.is_alphabetic())
            .starts_with('m')
    });
    assert_eq!(colours.count(), 0, "{text:?}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    for (line, says) in [
        ("--auto localhost rc_bw", "leave rc_bw away"),
        ("--auto --csv localhost", "--auto goes with"),
        ("--auto --threads 2 localhost", "--threads"),
        ("--auto --tries 4 localhost", "5..=1000"),
        ("--tries 9 localhost rc_bw", "--auto"),
        ("--interval 1ms localhost tcp_bw", "at least 10 ms"),
        ("--interval 1", "is for a client"),
    ] {
        let text = fails(line, 2);
        assert!(text.contains(says), "{line}: {text}");
    }
}
