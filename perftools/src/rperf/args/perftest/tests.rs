//! Tests of the translation of perftest's command lines.

use super::*;
use crate::rperf::args::{check, parse};

/// Returns the remedy for a command line.
fn remedy(line: &str) -> String {
    let error = parse(line.split_whitespace()).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    error.help().unwrap_or_default().to_owned()
}

#[test]
fn options_of_perftest_get_a_hint() {
    for (line, expected) in [
        (
            "-s 64K HOST rc_bw",
            "perftest's -s, --size is --msg-size in rperf",
        ),
        ("HOST rc_bw -q 4", "perftest's -q, --qp is --qps in rperf"),
        (
            "HOST rc_bw --report_gbits",
            "perftest's --report_gbits is --bits in rperf",
        ),
        ("HOST rc_bw -b", "such as rc_bi_bw"),
        ("HOST rc_bw -F", "has no equivalent: not needed"),
        ("HOST rc_bw -D 10", "--time"),
    ] {
        let help = remedy(line);
        assert!(help.contains(expected), "{line}: {help}");
    }
}

#[test]
fn every_equivalent_is_an_option_of_rperf() {
    for row in options::all() {
        let words = match row.meaning {
            Value("bind") => "--bind ::1".to_owned(),
            Value("burst") => "--burst 1 --rate-limit 1Gb/s".to_owned(),
            Value(option) => format!("--{option} 1"),
            Words(words) => words.to_owned(),
            _ => continue,
        };
        let is_valid = |test: &str| {
            let line = format!("{words} HOST {test}");
            parse(line.split_whitespace()).is_ok()
        };
        let tests = ["rc_bw", "ud_bw", "rc_lat", "rc_rdma_read_bw"];
        assert!(tests.into_iter().any(is_valid), "{words}");
    }
    for (program, verb, latency) in PROGRAMS {
        let test = Selection::new(*verb, *latency).test();
        assert!(
            measure::spec::test::Test::from_name(&test).is_ok(),
            "{program}: {test}"
        );
    }
}

#[test]
fn the_help_lists_programs_and_options() {
    let text = help();
    for line in [
        "    ib_send_bw              rc_bw\n",
        "    -s, --size              --msg-size\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_words_cause_no_panic(words in proptest::collection::vec("-{0,2}[a-zA-Z=0-9_]{0,6}", 0..6)) {
        let words = words.into_iter().chain(["ib_send_bw".to_owned()]).collect::<Vec<_>>();
        proptest::prop_assert!(reject(&words, check).is_err());
    }
}
