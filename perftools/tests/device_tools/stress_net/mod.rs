//! `rperf` and `ribping` over networks that lose, repeat, reorder, damage and delay packets.
//!
//! Whatever the network does, a test ends in a limited time, reports no wrong data, and its counts
//! are exact: what was sent is what arrived and what was lost. `ci/stress net` runs all networks
//! with more messages.

mod counts;
mod link;

use std::process::Command;
use std::time::{Duration, Instant};

use counts::{Totals, check};
use link::Link;
use measure::spec::test::Test;
use serde_json::Value;
use test_support::process::{self, Process};

use crate::common::{Server, connects_directly, devices, records, rperf};

/// A network: the arguments of netem, and whether every reliable test must succeed on it.
struct Network {
    netem: &'static str,
    mild: bool,
}

/// The networks of a long run.
const NETWORKS: &[Network] = &[
    mild("loss 0.1%"),
    mild("loss 1%"),
    bad("loss 5%"),
    bad("loss 20%"),
    mild("delay 1ms reorder 25% 50%"),
    mild("duplicate 20%"),
    mild("corrupt 1%"),
    bad("delay 50ms 20ms"),
];

/// The networks of a short run.
const SHORT: &[Network] = &[mild("loss 1% duplicate 5% corrupt 1%")];

/// Tests of a short run.
const SHORT_TESTS: &[&str] = &[
    "rc_bw",
    "rc_rdma_read_lat",
    "uc_bw",
    "uc_rdma_write_poll_lat",
    "ud_bw",
    "udp_bw",
];

const fn mild(netem: &'static str) -> Network {
    Network { netem, mild: true }
}

const fn bad(netem: &'static str) -> Network {
    Network { netem, mild: false }
}

/// Number of messages of each test in a short run.
const SHORT_MESSAGES: u64 = 30;
/// Bytes of a message: two or three packets of the lab's devices.
const SIZE: u64 = 9000;
/// Longest time of one test, including the time limits of its steps.
const TEST_LIMIT: Duration = Duration::from_secs(120);

/// Returns the number of messages of a long run, or `None` for a short one.
fn long_run() -> Option<u64> {
    let messages = std::env::var("STRESS_NET_MESSAGES").ok()?;
    Some(messages.parse().expect("a number of messages"))
}

/// Returns the tests of a device that carry data.
fn tests_of(device: &str) -> Vec<&'static str> {
    let is_supported = |name: &&str| {
        let service = name.trim_start_matches("ver_").split('_').next();
        let is_atomic = name.contains("compare") || name.contains("fetch");
        match service {
            Some("rc") => connects_directly(device) || !is_atomic,
            Some("uc" | "ud") => connects_directly(device),
            Some("tcp" | "udp" | "sctp") => true,
            _ => false,
        }
    };
    let all = Test::names().filter(is_supported);
    let is_chosen = |name: &&str| long_run().is_some() || SHORT_TESTS.contains(name);
    all.filter(is_chosen).collect()
}

/// Returns `true` for the name of a test over an RDMA device.
fn is_rdma(test: &str) -> bool {
    Test::from_name(test).is_ok_and(|test| test.plan().is_some())
}

/// Runs tests one after the other and returns their records.
fn run_tests(
    server: &Server,
    address: &str,
    device: &str,
    options: &str,
    tests: &[&str],
) -> Vec<Value> {
    // The device is for the tests that come after it.
    let (rdma, sockets): (Vec<&str>, Vec<&str>) =
        tests.iter().copied().partition(|test| is_rdma(test));
    let line = format!(
        "-lp {} {address} --json --keep-going --verify -to 20 {options} {} -i {device} {}",
        server.port,
        sockets.join(" "),
        rdma.join(" ")
    );
    let mut command = rperf();
    command.args(line.split_whitespace());
    let limit = TEST_LIMIT * u32::try_from(tests.len()).expect("few tests");
    let output = Process::spawn(&mut command).wait_timeout(limit);
    assert!(
        matches!(output.code(), Some(0 | 1)) && !output.stderr.contains("panicked"),
        "{line}: {output}"
    );
    records(&output.stdout)
}

/// Runs all tests of a device over a network and returns the totals. Adds what is wrong to
/// `problems`, so that a long run shows all of it.
fn test_network(
    link: &Link,
    device: &str,
    network: &Network,
    problems: &mut Vec<String>,
) -> Totals {
    let server = Server::start();
    let begin = Instant::now();
    let mut totals = Totals::default();
    link.disturb(network.netem);
    let messages = long_run().unwrap_or(SHORT_MESSAGES);
    let mut tests = tests_of(device);
    if !tests.is_empty() && device != devices()[0] {
        // Sockets behave the same on all interfaces.
        tests.retain(|test| test.starts_with("rc"));
    }
    let is_atomic = |test: &str| test.contains("compare") || test.contains("fetch");
    // rxe receives no more writes of several packets after it lost a packet (docs/drivers.md, fault
    // 55).
    let has_one_packet = |test: &str| test.starts_with("ud_") || test.starts_with("uc_rdma");
    let chosen = |is_wanted: &dyn Fn(&str) -> bool| {
        let tests = tests.iter().copied();
        tests.filter(|test| is_wanted(test)).collect::<Vec<_>>()
    };
    let mut records = Vec::new();
    for (options, tests) in [
        (
            format!("-n {messages} -m {SIZE}"),
            chosen(&|test| !is_atomic(test) && !has_one_packet(test)),
        ),
        (format!("-n {messages}"), chosen(&is_atomic)),
        (format!("-n {messages} -m 4000"), chosen(&has_one_packet)),
    ] {
        if !tests.is_empty() {
            records.extend(run_tests(&server, link.server(), device, &options, &tests));
        }
    }
    for record in &records {
        if let Err(problem) = check(record, network.mild, &mut totals) {
            println!("    {problem}");
            problems.push(format!("{device}, {}: {problem}", network.netem));
        }
    }
    link.restore();
    server.assert_responds();
    println!(
        "{device}, {}: {totals}, {:?}",
        network.netem,
        begin.elapsed()
    );
    totals
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn counts_are_exact_on_a_bad_network() {
    let networks = if long_run().is_some() {
        NETWORKS
    } else {
        SHORT
    };
    let mut problems = Vec::new();
    for device in devices() {
        let link = Link::new(&device);
        let before = link.packets();
        for network in networks {
            let totals = test_network(&link, &device, network, &mut problems);
            assert!(totals.measured > 0, "{device}, {}", network.netem);
        }
        assert!(
            link.packets() > before + 100,
            "the packets did not pass the network"
        );
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_ping_is_answered_or_lost_on_a_bad_network() {
    let networks = if long_run().is_some() {
        NETWORKS
    } else {
        SHORT
    };
    let count = long_run().map_or(20, |messages| messages.max(100));
    let ribping = env!("CARGO_BIN_EXE_ribping");
    for device in devices() {
        let link = Link::new(&device);
        // It listens on the addresses that the host has when it starts.
        let server = Process::spawn(Command::new(ribping).arg("-S"));
        server.next_stderr_line("answering connections");
        for network in networks {
            let mut addresses = vec![link.server()];
            if connects_directly(&device) {
                addresses.push(link.server_v6());
            }
            for address in addresses {
                link.disturb(network.netem);
                let line = format!("{ribping} --json -c {count} -i 0.02 -t 2000 {address}");
                let begin = Instant::now();
                let output =
                    Process::spawn(&mut process::command(&line)).wait_timeout(TEST_LIMIT * 2);
                link.restore();
                assert!(matches!(output.code(), Some(0 | 1)), "{line}: {output}");
                let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
                let number = |name: &str| report[name].as_u64().expect("a number");
                println!(
                    "{device}, {}: {} of {} pings answered, {} duplicates, {:?}",
                    network.netem,
                    number("received"),
                    number("transmitted"),
                    number("duplicates"),
                    begin.elapsed()
                );
                assert_eq!(number("transmitted"), count, "{line}: {report}");
                assert_eq!(number("received") + number("lost"), count, "{report}");
                assert!(!network.mild || number("received") > 0, "{line}: {report}");
            }
        }
    }
}
