//! Tests of the translation of perftest's command lines.

use super::*;
use crate::rperf::args::{Invocation, check, parse};

/// Returns the remedy for a command line.
fn remedy(line: &str) -> String {
    let error = parse(line.split_whitespace()).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    error.help().unwrap_or_default().to_owned()
}

#[test]
fn command_lines_of_perftest_get_the_equivalent_line() {
    for (line, expected) in [
        (
            "ib_send_bw -s 64K -q 4 -x 1 HOST",
            "rperf HOST --msg-size 64K --qps 4 --gid-index 1 rc_bw",
        ),
        (
            "ib_write_bw -d mlx5_0 -i 1 -aF --report_gbits -w 380 10.0.0.2",
            "rperf 10.0.0.2 --sizes 2..8M --immediate off --id mlx5_0:1 --min-bw 380Gb/s --bits rc_rdma_write_bw",
        ),
        (
            "ib_send_bw -b -c UC -D 10 -t512 HOST",
            "rperf HOST --time 10 --depth 512 uc_bi_bw",
        ),
        ("ib_send_lat -c SRD HOST", "rperf HOST srd_lat"),
        ("ib_write_lat -c SRD HOST", "rperf HOST srd_rdma_write_lat"),
        (
            "ib_read_bw -c SRD -a -x 0 HOST",
            "rperf HOST --gid-index 0 --sizes 2..8M srd_rdma_read_bw",
        ),
        (
            "ib_write_lat -c DC HOST",
            "rperf HOST dc_rdma_write_poll_lat",
        ),
        (
            "ib_atomic_bw -c DC -u 14 HOST",
            "rperf HOST --qp-timeout 14 dc_fetch_add_mr",
        ),
        ("ib_write_lat HOST", "rperf HOST rc_rdma_write_poll_lat"),
        (
            "ib_atomic_bw -A CMP_AND_SWAP --rate_limit=5 HOST",
            "rperf HOST --rate-limit 5Gb/s rc_compare_swap_mr",
        ),
        (
            "ib_write_bw --use_cuda=1 --use_cuda_dmabuf HOST",
            "rperf HOST --gpu cuda:1 --immediate off rc_rdma_write_bw",
        ),
        // perftest counts the messages of each queue pair, and its duration has precedence.
        (
            "ib_send_bw -n 1000 -q 4 HOST",
            "rperf HOST --messages 4000 --qps 4 rc_bw",
        ),
        (
            "ib_send_bw -D 5 -n 1000 -q 4 -- HOST",
            "rperf HOST --time 5 --qps 4 rc_bw",
        ),
        ("ib_send_bw -g HOST", "rperf HOST --multicast 1 ud_bw"),
        (
            "/usr/bin/ib_read_lat -R -e HOST",
            "rperf HOST --use-cm on --wait events rc_rdma_read_lat",
        ),
    ] {
        let help = remedy(line);
        assert_eq!(help, format!("run `{expected}`"), "{line}");
        let words = expected.split_whitespace().skip(1);
        assert!(
            matches!(parse(words), Ok(Invocation::Client { .. })),
            "{expected}"
        );
    }
}

#[test]
fn servers_and_invalid_lines_of_perftest_are_answered() {
    for (line, expected) in [
        ("ib_send_bw -d mlx5_0", "run `rperf`"),
        ("ib_send_bw -r 512 --dlid 3", "run `rperf`"),
        (
            "ib_send_bw -d mlx5_0 -p 18516 -a",
            "run `rperf --port 18516`",
        ),
        (
            "ib_send_lat -U -H HOST",
            "run `rperf HOST --samples --json rc_lat`",
        ),
        (
            "ib_send_bw -s 64 -s 128 HOST",
            "run `rperf HOST --msg-size 64 --msg-size 128 rc_bw`",
        ),
        (
            "ib_send_bw --burst_size 4 --rate_limit 5 HOST",
            "run `rperf HOST --rate-limit 5Gb/s --burst 4 rc_bw`",
        ),
        (
            "ib_send_bw -D 10 HOST OTHER",
            "perftest takes one host, not HOST and OTHER",
        ),
        ("ib_send_bw HOST -d", "-d needs a value"),
        ("ib_send_bw HOST --size", "--size needs a value"),
        (
            "ib_atomic_bw -A SWAP HOST",
            "-A, --atomic_type SWAP: expected FETCH_AND_ADD or CMP_AND_SWAP",
        ),
    ] {
        assert_eq!(remedy(line), expected, "{line}");
    }
}

#[test]
fn options_that_rperf_refuses_are_omitted_with_a_reason() {
    for (line, run, reason) in [
        (
            "ib_write_lat -e HOST",
            "rperf HOST rc_rdma_write_poll_lat",
            "-e, --events (--wait (-cp) has no effect on rc_rdma_write_poll_lat",
        ),
        (
            "ib_send_lat -b HOST",
            "rperf HOST rc_lat",
            "-b, --bidirectional (a latency test has both directions)",
        ),
        (
            "ib_send_bw --burst_size 4 HOST",
            "rperf HOST rc_bw",
            "--burst_size (--burst without a rate limit",
        ),
        (
            "ib_atomic_bw -s 4096 HOST",
            "rperf HOST rc_fetch_add_mr",
            "-s, --size (message size of 4 KiB: an atomic operation has 8 bytes",
        ),
        (
            "ib_send_bw -n 1000 --perform_warm_up HOST",
            "rperf HOST --messages 1000 rc_bw",
            "--perform_warm_up (warm-up in a test with a number of messages",
        ),
        (
            "ib_send_bw -s 64Q -m 1500 HOST",
            "rperf HOST rc_bw",
            "-m, --mtu (MTU of 1500 bytes",
        ),
    ] {
        let help = remedy(line);
        let (line, reasons) = help.split_once("`; without an equivalent: ").unwrap();
        assert_eq!(line, format!("run `{run}"), "{help}");
        assert!(reasons.contains(reason), "{help}");
    }
    assert_eq!(
        remedy("ib_send_bw -u 14 --dlid 3 HOST"),
        "run `rperf HOST --qp-timeout 14 rc_bw`; without an equivalent: --dlid (the server sends its LID)"
    );
    assert!(remedy("ib_send_bw --kk HOST").contains("--kk is not known here"));
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
