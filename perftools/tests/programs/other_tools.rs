//! Command lines of the manual pages of qperf, perftest and ibping, typed at `rperf` and `ribping`:
//! each one means the same here, or the answer names the equivalent.

use clap::Parser;
use perftools::ribping::args::PingArgs;
use perftools::rperf::args::{self, Invocation};

/// Returns the error text, if the command line is refused.
fn answer(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("rperf") => match args::parse(words) {
            Ok(Invocation::Client { tests, .. }) => tests
                .iter()
                .find_map(|run| run.options.to_specs(run.test).err())
                .map(|error| error.to_string()),
            Ok(Invocation::Server(_)) => None,
            Ok(other) => panic!("{line}: {other:?}"),
            Err(error) => {
                assert_eq!(error.exit_status(), 2, "{line}");
                Some(error.to_string())
            }
        },
        _ => PingArgs::try_parse_from(line.split_whitespace())
            .err()
            .map(|error| error.to_string()),
    }
}

#[test]
fn command_lines_of_other_tools_are_right_or_refused() {
    let lines = include_str!("../fixtures/other_tools.txt").lines();
    let mut count = 0;
    for row in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        count += 1;
        let (line, expected) = row.split_once(" => ").unwrap_or((row, ""));
        let text = answer(line);
        match expected.split_once(": ") {
            None => assert_eq!(text, None, "{line}"),
            Some((kind, part)) => {
                let text = text.unwrap_or_else(|| panic!("{line} is accepted"));
                if kind == "run" {
                    assert!(text.contains(&format!("run `{part}")), "{line}: {text}");
                    let run = part.split('`').next().unwrap();
                    assert_eq!(answer(run), None, "{line}: {run}");
                } else {
                    assert!(text.contains(part), "{line}: {text}");
                }
            }
        }
    }
    assert!(count >= 106, "{count} lines");
}
