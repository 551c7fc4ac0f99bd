//! The table of options: where each one acts. An option that has no effect on a selected test is
//! refused.

use base::error::{Error, Result};
use measure::spec::plan::{Pattern, Plan, Service};
use measure::spec::test::Test;

use super::qperf;

/// Place where an option acts.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// A server.
    Server,
    /// A server, and the run of a client.
    Both,
    /// The run of a client.
    Run,
    /// Each test of this kind, and no other.
    Tests(&'static TestClass),
    /// The results of tests of this kind. Other tests of the same run are not affected.
    Results(&'static TestClass),
}

/// A kind of tests.
pub(super) struct TestClass {
    contains: fn(Test) -> bool,
    /// Description of the tests, such as "tests over sockets".
    name: &'static str,
}

fn plan(test: Test, condition: fn(Plan) -> bool) -> bool {
    test.plan().is_some_and(condition)
}

fn is_bandwidth(plan: Plan) -> bool {
    !plan.is_latency()
}

const DATA: &TestClass = &TestClass {
    contains: Test::moves_data,
    name: "tests that transfer data",
};
const PAYLOAD: &TestClass = &TestClass {
    contains: |test| test.moves_data() && !plan(test, |plan| plan.verb.is_atomic()),
    name: "tests other than those of atomics",
};
const BANDWIDTH: &TestClass = &TestClass {
    contains: |test| test.moves_data() && !test.is_latency(),
    name: "bandwidth tests",
};
const BYTES: &TestClass = &TestClass {
    contains: |test| (BANDWIDTH.contains)(test) && (PAYLOAD.contains)(test),
    name: "bandwidth tests other than those of atomics",
};
const LATENCY: &TestClass = &TestClass {
    contains: Test::is_latency,
    name: "latency tests",
};
const EVENTS: &TestClass = &TestClass {
    contains: |test| test.moves_data() && !plan(test, |plan| plan.pattern == Pattern::Polled),
    name: "tests that wait for completions; a write to memory causes no event",
};
const ONE_WAY: &TestClass = &TestClass {
    contains: Test::is_one_way,
    name: "tests with one sender",
};
const RDMA: &TestClass = &TestClass {
    contains: |test| test.plan().is_some(),
    name: "tests over RDMA devices",
};
const RDMA_BANDWIDTH: &TestClass = &TestClass {
    contains: |test| plan(test, is_bandwidth),
    name: "bandwidth tests over RDMA devices",
};
const CM: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.service.uses_cm()),
    name: "tests over RC and UD",
};
const CONNECTED: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.service.has_path()),
    name: "tests over RC, UC, XRC and DC",
};
const DC: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.service == Service::Dc),
    name: "tests over DC",
};
const RELIABLE: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            plan.service.has_path() && plan.service.is_reliable()
        })
    },
    name: "tests over RC, XRC and DC",
};
const HEADERS: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.service != Service::Srd),
    name: "tests over RDMA devices, except SRD, whose packets have no such fields",
};
const FLOOD: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            !plan.service.is_reliable() && is_bandwidth(plan)
        })
    },
    name: "bandwidth tests over UC and UD",
};
const MULTICAST: &TestClass = &TestClass {
    contains: |test| test == Test::UdBw,
    name: "ud_bw",
};
const IMMEDIATE: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            plan.verb.takes_receives()
                && (plan.verb.is_one_sided() || !plan.service.numbers_messages())
        })
    },
    name: "tests of RDMA writes, except those that poll memory, and of sends over RC, XRC and DC",
};
const RECEIVES: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.verb.takes_receives()),
    name: "tests of sends and of RDMA writes with immediate data",
};
const OWN_RECEIVES: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            let has_choice = !plan.service.always_shares_receives() && plan.service != Service::Srd;
            plan.verb.takes_receives() && has_choice
        })
    },
    name: "tests of sends and of RDMA writes with immediate data; XRC and DC always have a shared queue, and SRD has none",
};
const INLINE: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| !plan.verb.fetches()),
    name: "tests of sends and of RDMA writes",
};
const FETCHES: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.verb.fetches() && plan.service.has_path()),
    name: "tests of RDMA reads and atomics, except SRD",
};
const MODERATED: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            !(plan.is_latency() && plan.verb.fetches()) && plan.service.is_ordered()
        }) && !test.verifies()
    },
    name: "tests that need no completion of each request",
};
const SOCKETS: &TestClass = &TestClass {
    contains: |test| test.socket().is_some(),
    name: "tests over sockets",
};
const STREAMS: &TestClass = &TestClass {
    contains: |test| test.socket().is_some() && !test.is_latency(),
    name: "bandwidth tests over sockets",
};

/// The scope of each long option. A row with a value comes before the one of its option.
const TABLE: &[(&str, Scope)] = {
    use Scope::{Both, Results, Run, Server, Tests};
    &[
        ("id", Tests(RDMA)),
        ("use-cm", Tests(CM)),
        ("mtu", Tests(CONNECTED)),
        ("msg-size", Tests(DATA)),
        ("messages", Tests(DATA)),
        ("time", Tests(DATA)),
        ("depth", Tests(RDMA_BANDWIDTH)),
        ("qps", Tests(RDMA_BANDWIDTH)),
        ("multicast", Tests(MULTICAST)),
        ("multicast-group", Tests(MULTICAST)),
        ("threads", Tests(RDMA_BANDWIDTH)),
        ("immediate", Tests(IMMEDIATE)),
        ("flip", Tests(ONE_WAY)),
        ("flood", Tests(FLOOD)),
        ("verify", Tests(DATA)),
        ("auto", Run),
        ("sizes", Tests(DATA)),
        ("loop", Tests(DATA)),
        ("repeat", Run),
        ("warm-up", Tests(RDMA)),
        ("rate-limit", Tests(BANDWIDTH)),
        ("burst", Tests(BANDWIDTH)),
        ("post-list", Tests(RDMA_BANDWIDTH)),
        ("recv-list", Tests(RECEIVES)),
        ("dc-targets", Tests(DC)),
        ("srq", Tests(OWN_RECEIVES)),
        ("access-received", Tests(DATA)),
        ("payload-file", Tests(PAYLOAD)),
        ("inline", Tests(INLINE)),
        ("cq-moderation", Tests(MODERATED)),
        ("rd-atomic", Tests(FETCHES)),
        ("gid-index", Tests(RDMA)),
        ("pkey-index", Tests(RDMA)),
        ("service-level", Tests(HEADERS)),
        ("static-rate", Tests(HEADERS)),
        ("traffic-class", Tests(HEADERS)),
        ("flow-label", Tests(HEADERS)),
        ("qp-timeout", Tests(RELIABLE)),
        ("retry-count", Tests(RELIABLE)),
        ("cq-vector", Tests(RDMA)),
        ("relaxed-ordering", Tests(RDMA)),
        ("samples", Tests(LATENCY)),
        ("huge-pages", Tests(RDMA)),
        ("on-demand", Tests(RDMA)),
        ("gpu", Tests(RDMA)),
        ("cpu-affinity", Tests(DATA)),
        ("wait=events", Tests(EVENTS)),
        ("wait", Tests(DATA)),
        ("timeout", Run),
        ("wait-server", Run),
        ("ip-port", Tests(SOCKETS)),
        ("parallel", Tests(STREAMS)),
        ("bidir", Tests(STREAMS)),
        ("sock-buf-size", Tests(SOCKETS)),
        ("min-bw", Results(BYTES)),
        ("max-lat", Results(LATENCY)),
        ("max-p99", Results(LATENCY)),
        ("max-lost", Results(DATA)),
        ("json", Run),
        ("interval", Tests(DATA)),
        ("keep-going", Run),
        ("precision", Run),
        ("bits", Run),
        ("unify-units", Run),
        ("qperf", Run),
        ("verbose", Both),
        ("port", Both),
        ("bind", Both),
        ("token-file", Both),
        ("allow", Server),
        ("max-clients", Server),
        ("max-memory", Server),
        ("max-threads", Server),
        ("max-qps", Server),
        ("max-time", Server),
        ("max-size", Server),
        ("max-timeout", Server),
        ("allow-quit", Server),
        ("mesh", Server),
        ("supervised", Server),
    ]
};

/// Options with another one of the same purpose for the other tests.
const ALTERNATIVES: &[(&str, &str)] = &[
    ("qps", STREAMS_OF_SOCKETS),
    ("threads", STREAMS_OF_SOCKETS),
    (
        "parallel",
        "for several queue pairs, use --qps or --threads",
    ),
    ("bidir", "for both directions, run a test such as rc_bi_bw"),
    ("ip-port", "the port of the server is --port (-lp)"),
];
const STREAMS_OF_SOCKETS: &str = "for several streams of a test over sockets, use --parallel";

/// Returns the scope of an option. A word of the command line is `--NAME` or `--NAME=VALUE`.
pub(super) fn of(word: &str) -> Scope {
    let (name, value) = (name(word), word.rsplit('=').next().unwrap_or_default());
    let row = TABLE.iter().find(|row| match row.0.split_once('=') {
        Some(with_value) => with_value == (name, value),
        None => row.0 == name,
    });
    // A test holds that each option has a row.
    row.map_or(Scope::Run, |row| row.1)
}

/// Returns the tests on which an option acts; `None` if it acts on a whole run.
pub(super) fn kind(option: &str) -> Option<&'static str> {
    match of(option) {
        Scope::Tests(kind) | Scope::Results(kind) => Some(kind.name),
        _ => None,
    }
}

/// Returns `true` if a word of the command line is no option, or one that acts on the test.
pub(in crate::rperf) fn acts_on(word: &str, test: Test) -> bool {
    match of(word) {
        Scope::Tests(kind) | Scope::Results(kind) if word.starts_with("--") => {
            (kind.contains)(test)
        }
        _ => true,
    }
}

/// Returns the name of the option in a word of the command line, without dashes.
pub(super) fn name(word: &str) -> &str {
    let word = word.trim_start_matches('-');
    word.split('=').next().unwrap_or(word)
}

/// Returns the name of an option with its short name, such as `--msg-size (-m)`.
pub(super) fn display(word: &str) -> String {
    let name = name(word);
    match qperf::short(name) {
        Some(short) => format!("--{name} ({short})"),
        None => format!("--{name}"),
    }
}

/// Returns `true` if a word of the command line is an option of a server.
pub(super) fn is_of_server(word: &str) -> bool {
    matches!(of(word), Scope::Server | Scope::Both)
}

/// Checks the options of a server.
///
/// # Errors
/// A usage error if one is an option of a client.
pub(super) fn check_server(options: &[String]) -> Result<()> {
    match options.iter().find(|word| !is_of_server(word)) {
        Some(option) => Err(Error::usage(format!(
            "{} is an option of a client, but rperf runs a server because no test is named",
            display(option)
        ))
        .with_help("name a test: `rperf [OPTIONS] HOST TEST…`")),
        None => Ok(()),
    }
}

/// Checks the options of a client.
///
/// # Errors
/// A usage error if one is an option of a server.
pub(super) fn check_client(options: &[String]) -> Result<()> {
    let is_of_server = |word: &&String| matches!(of(word), Scope::Server);
    match options.iter().find(is_of_server) {
        Some(option) => Err(Error::usage(format!(
            "{} is an option of the server, not of a client",
            display(option)
        ))
        .with_help("pass it to `rperf` without tests, which runs a server")),
        None => Ok(()),
    }
}

/// Options that describe the connection to the server.
const CONNECTION: &[&str] = &["bind", "port", "qperf", "token-file", "wait-server"];

/// Checks the options of a run with both ends on this host.
///
/// # Errors
/// A usage error if one describes the connection to another host.
pub(super) fn check_one_host(options: &[String]) -> Result<()> {
    match options.iter().find(|word| CONNECTION.contains(&name(word))) {
        Some(option) => Err(Error::usage(format!(
            "{} has no effect without a host: both ends of the test are in this process",
            display(option)
        ))
        .with_help("name the server's host before the tests, such as localhost, or remove it")),
        None => Ok(()),
    }
}

/// Checks that each option acts on the tests that it applies to. Tests that transfer no data, such
/// as `conf`, take no part in this if others do.
///
/// # Errors
/// A usage error that names the option, the first test on which it does not act, and the tests that
/// it is for.
pub(super) fn check_tests(tests: &[(Test, Vec<String>)]) -> Result<()> {
    let moves_data = tests.iter().any(|(test, _)| test.moves_data());
    for (test, options) in tests.iter().filter(|run| run.0.moves_data() || !moves_data) {
        for option in options {
            let (kind, is_for_another) = match of(option) {
                Scope::Tests(kind) if !(kind.contains)(*test) => {
                    (kind, tests.iter().any(|run| (kind.contains)(run.0)))
                }
                Scope::Results(kind) if !tests.iter().any(|run| (kind.contains)(run.0)) => {
                    (kind, false)
                }
                _ => continue,
            };
            let alternative = ALTERNATIVES.iter().find(|row| row.0 == name(option));
            let remedy = match alternative {
                Some((_, alternative)) => format!("remove it; {alternative}"),
                None if is_for_another => {
                    format!("remove it, or name {} before it", test.name())
                }
                None => "remove it".to_owned(),
            };
            return Err(Error::usage(format!(
                "{} has no effect on {}: it is for {}",
                display(option),
                test.name(),
                kind.name
            ))
            .with_help(remedy));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::args::command_line::Options;
    use crate::rperf::args::{Invocation, parse};
    use clap::Parser;
    use measure::spec::Spec;
    use report::record::Outcome;
    use std::collections::HashMap;

    #[test]
    fn each_option_has_one_row() {
        let mut options: Vec<&str> = Options::all().filter_map(clap::Arg::get_long).collect();
        let names = TABLE.iter().map(|row| row.0);
        let mut rows: Vec<&str> = names.filter(|name| !name.contains('=')).collect();
        options.sort_unstable();
        rows.sort_unstable();
        assert_eq!(rows, options);
    }

    /// Words that give each option a value other than the default, after the words that it needs.
    const SAMPLES: &[(&str, &str)] = &[
        ("", "--id=dev1"),
        ("", "--use-cm=off"),
        ("", "--mtu=1024"),
        ("", "--msg-size=72"),
        ("", "--messages=1000"),
        ("", "--time=7"),
        ("", "--depth=3"),
        ("", "--qps=3"),
        ("", "--multicast=3"),
        ("--multicast=1", "--multicast-group=239.255.1.2"),
        ("", "--threads=3"),
        ("", "--immediate=off"),
        ("", "--flip=on"),
        ("", "--flood"),
        ("", "--verify"),
        ("", "--sizes=72"),
        ("", "--loop=m:72:72"),
        ("", "--warm-up=1"),
        ("", "--rate-limit=1Gb/s"),
        ("--rate-limit=1Gb/s", "--burst=3"),
        ("", "--post-list=3"),
        ("", "--recv-list=3"),
        ("", "--srq"),
        ("", "--access-received=on"),
        ("", "--payload-file=Cargo.toml"),
        ("", "--inline=3"),
        ("", "--cq-moderation=3"),
        ("", "--rd-atomic=3"),
        ("", "--gid-index=3"),
        ("", "--pkey-index=3"),
        ("", "--service-level=3"),
        ("", "--static-rate=10"),
        ("", "--traffic-class=3"),
        ("", "--flow-label=3"),
        ("", "--qp-timeout=3"),
        ("", "--retry-count=3"),
        ("", "--cq-vector=3"),
        ("", "--dc-targets=3"),
        ("", "--relaxed-ordering=off"),
        ("", "--samples"),
        ("", "--huge-pages=2M"),
        ("", "--on-demand"),
        ("", "--gpu=cuda:3"),
        ("", "--cpu-affinity=3"),
        ("", "--wait=events"),
        ("", "--wait=poll"),
        ("", "--ip-port=3"),
        ("", "--parallel=3"),
        ("", "--bidir"),
        ("", "--sock-buf-size=3"),
        ("", "--interval=3"),
    ];

    /// Combinations that are refused for another reason, or that have the effect anyway.
    fn is_exception(option: &str, test: Test) -> bool {
        let is_atomic = plan(test, |plan| plan.verb.is_atomic());
        match option {
            "msg-size" | "sizes" | "loop" => is_atomic, // 8 bytes
            "gpu" => test.verifies() || plan(test, |plan| plan.pattern == Pattern::Polled),
            "verify" => test.verifies(),
            "interval" => true, // not a part of the specification
            _ => false,
        }
    }

    fn specs(words: &[&str]) -> Result<Vec<Spec>> {
        match parse(words.iter().filter(|word| !word.is_empty()).copied())? {
            Invocation::Client { tests, .. } => {
                let specs = tests.iter().map(|run| run.options.to_specs(run.test));
                Ok(specs.collect::<Result<Vec<_>>>()?.concat())
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }

    /// Each cell of the table: an option changes the specification of a test, or is refused.
    #[test]
    fn an_option_acts_on_a_test_or_is_refused() {
        // To parse a line takes milliseconds without optimization.
        let mut without_option: HashMap<(&str, Test), Vec<Spec>> = HashMap::new();
        for (name, scope) in TABLE {
            let Scope::Tests(kind) = scope else { continue };
            let prefix = format!("--{name}");
            let is_of_row = |word: &str| {
                word.strip_prefix(&prefix)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            };
            let mut samples = SAMPLES.iter().filter(|sample| is_of_row(sample.1));
            let (needed, word) = samples.next_back().unwrap_or_else(|| panic!("{name}"));
            for test in Test::names().map(|name| Test::from_name(name).unwrap()) {
                let with = specs(&[needed, word, "node", test.name()]);
                let line = format!("{needed} {word} {}", test.name());
                if !(kind.contains)(test) {
                    let text = with.unwrap_err().to_string();
                    assert!(text.contains("has no effect on"), "{line}: {text}");
                } else if is_exception(name, test) {
                    let text = with.map_or_else(|e| e.to_string(), |_| String::new());
                    assert!(!text.contains("has no effect on"), "{line}: {text}");
                } else {
                    let without = without_option
                        .entry((needed, test))
                        .or_insert_with(|| specs(&[needed, "node", test.name()]).unwrap());
                    let with = with.unwrap_or_else(|error| panic!("{line}: {error}"));
                    assert_ne!(with, *without, "{line}");
                }
            }
        }
    }

    #[test]
    fn each_parameter_that_was_set_is_printed() {
        let mut format = report::text::Format::default();
        format.verbosity.used = 1;
        let text = |words: &[&str]| {
            let mut record = report::samples::one_way();
            let Outcome::Measured(m) = &mut record.outcome else {
                panic!("{record:?}")
            };
            m.spec = specs(words).unwrap().swap_remove(0);
            format.render(&record)
        };
        for (needed, word) in SAMPLES.iter().filter(|sample| sample.1 != "--interval=3") {
            let is_acted_on = |name: &&str| acts_on(word, Test::from_name(name).unwrap());
            let test = Test::names().find(is_acted_on).unwrap();
            let without = text(&[needed, "node", test]);
            assert_ne!(text(&[needed, word, "node", test]), without, "{word}");
        }
    }

    #[test]
    fn options_for_one_end_take_a_value_for_it() {
        let mut options: Vec<&str> = Vec::new();
        let words = SAMPLES.iter().filter_map(|(_, word)| word.split_once('='));
        // Loops and sizes are parsed later.
        for (option, value) in words.filter(|(option, _)| !["--loop", "--sizes"].contains(option)) {
            let word = format!("{option}=local={value},remote={value}");
            let is_accepted = Options::try_parse_from(["rperf", &word]).is_ok();
            let long = option.trim_start_matches('-');
            assert_eq!(is_accepted, qperf::is_per_end(long), "{word}");
            options.extend(is_accepted.then_some(long));
        }
        options.dedup();
        assert!(options.len() >= 9, "{options:?}");
    }

    #[test]
    fn tests_without_data_take_no_part() {
        for (line, is_accepted) in [
            ("-m 1K node conf rc_bw", true),
            ("node rc_bw conf -t 1", true),
            ("-m 1K node conf", false),
            ("-i dev1 node conf", false),
            ("-to 9 node conf", true),
            ("node rc_bw --mtu 1K tcp_bw", false),
            ("node tcp_bw --mtu 1K rc_bw", true),
            ("node rc_bw rc_lat --min-bw 90% --max-lat 9us", true),
            ("node rc_lat --min-bw 90%", false),
            ("node rc_fetch_add_mr --min-bw 90%", false),
            ("node --loop depth:1:4 rc_lat", false),
            ("node --loop -li:1:4 rc_lat", false),
            ("node -lcp0 rc_rdma_write_poll_lat", false),
            ("node -lcp1 rc_rdma_write_poll_lat", true),
        ] {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(parse(words).is_ok(), is_accepted, "{line}");
        }
    }
}
