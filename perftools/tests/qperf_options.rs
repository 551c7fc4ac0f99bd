//! `rperf` accepts each option of `qperf` 0.4.11, or gives a reason why not.

use base::error::Error;
use perftools::rperf::args::{self, Invocation};
use test_support::process;

/// Returns the options listed by `qperf --help opts`, with a value for those that take one.
fn options() -> Vec<(String, Option<&'static str>)> {
    let text = process::output(&mut process::command("qperf --help opts")).stdout;
    let mut all = Vec::new();
    for line in text.lines() {
        // At least two spaces separate an option from its description.
        let names = line.trim_start().split("  ").next().unwrap();
        let words: Vec<&str> = names
            .split_whitespace()
            .map(|word| word.trim_matches(['(', ')']))
            .collect();
        let value = words
            .iter()
            .find(|word| !word.starts_with('-'))
            .map(|word| match *word {
                "OnOff" | "num" | "Max" | "SL" | "PN" | "Port" | "Count" | "Digits" | "Time" => "1",
                "Size" => "1K",
                "Topic" => "tests",
                "Node" => "localhost",
                "Device:Port" => "rxe0:1",
                "Var:Init:Last:Incr" => "msg_size:1:4:*2",
                other => panic!("{other}: a new kind of value in {line}"),
            });
        // The list does not show that `static_rate` takes a value.
        let value = value.or_else(|| names.contains("static_rate").then_some("10"));
        all.extend(
            words
                .iter()
                .filter(|word| word.starts_with('-'))
                .map(|word| ((*word).to_owned(), value)),
        );
    }
    all
}

#[test]
fn all_options_are_accepted_or_rejected_with_a_reason() {
    let all = options();
    assert!(all.len() > 90, "{all:?}");
    let mut refused = Vec::new();
    for (option, value) in all {
        let value = if option.starts_with("-mt") || option == "--mtu_size" {
            Some("2K")
        } else {
            value
        };
        let tests = ["rc_bw", "tcp_bw", "rc_rdma_read_bw"];
        let results =
            tests.map(|test| args::parse(["node", test, &option].into_iter().chain(value)));
        // An option without an effect on a test is refused there.
        let is_unknown = |error: &Error| !error.to_string().contains("has no effect on");
        match results
            .into_iter()
            .find(|result| result.as_ref().err().is_none_or(is_unknown))
        {
            Some(Ok(Invocation::Client { .. } | Invocation::Print(_))) => {}
            other @ (None | Some(Ok(_))) => panic!("{option}: {other:?}"),
            // The command line already has a host.
            Some(Err(error)) if option == "-H" || option == "--host" => {
                assert!(error.to_string().contains("two hosts"));
            }
            Some(Err(error)) => {
                assert!(
                    error.to_string().contains("rperf does not support"),
                    "{option}: {error}"
                );
                refused.push(option);
            }
        }
    }
    let expected = [
        "--alt_port",
        "-ap",
        "--loc_alt_port",
        "-lap",
        "--rem_alt_port",
        "-rap",
        "--src_path_bits",
        "-sp",
        "--loc_src_path_bits",
        "-lsp",
        "--rem_src_path_bits",
        "-rsp",
    ];
    assert_eq!(refused, expected);
}

#[test]
fn options_for_one_end_apply_only_to_that_end() {
    let line = "node -lsl 3 -rsl 4 -lnr 1 -rnr 2 -lsr 10 -f1 -ar 1 rc_rdma_read_bw";
    let Ok(Invocation::Client { tests, .. }) = args::parse(line.split(' ')) else {
        panic!("{line}")
    };
    let spec = tests[0].options.to_spec(tests[0].test).unwrap();
    let (client, server) = (spec.client.path, spec.server.path);
    assert_eq!(
        (client.service_level, server.service_level),
        (Some(3), Some(4))
    );
    assert_eq!((client.rd_atomic, server.rd_atomic), (Some(1), Some(2)));
    assert_eq!(
        client.static_rate.map(|rate| rate.to_string()).as_deref(),
        Some("10 Gbit/s")
    );
    assert!(spec.flip && spec.tuning.access_received);
}
