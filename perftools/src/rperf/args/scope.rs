//! Checks that each option of a command line acts on its tests, on the run or on the server. An
//! option that has no effect is refused.

use base::error::{Error, Result};
use measure::spec::test::Test;

use super::option::{self, OtherCommand, Scope};
use super::qperf;

/// Returns the scope of an option. A word of the command line is `--NAME` or `--NAME=VALUE`.
pub(super) fn of(word: &str) -> Scope {
    let value = word.rsplit('=').next().unwrap_or_default();
    // A word that names no option acts on the run.
    option::find(name(word)).map_or(Scope::Run, |option| match option.entry.with_value {
        Some((with_value, scope)) if with_value == value => scope,
        _ => option.entry.scope,
    })
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

/// Returns `true` if a command does not have the option in a word of its command line.
pub(super) fn is_not_in(word: &str, command: OtherCommand) -> bool {
    option::find(name(word)).is_some_and(|option| option.entry.not_in.contains(&command))
}

/// Checks the options of a server.
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

/// Checks the options of a run with both ends on this host.
pub(super) fn check_one_host(options: &[String]) -> Result<()> {
    let is_of_connection =
        |word: &&String| option::find(name(word)).is_some_and(|o| o.entry.is_of_connection);
    match options.iter().find(is_of_connection) {
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
            let remedy = match option::find(name(option)).and_then(|o| o.entry.alternative) {
                Some(alternative) => format!("remove it; {alternative}"),
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
    use crate::rperf::args::option::KnownOption;
    use crate::rperf::args::test_class::{TestClass, plan};
    use crate::rperf::args::{Invocation, parse};
    use clap::{CommandFactory, Parser};
    use measure::spec::Spec;
    use measure::spec::plan::Pattern;
    use report::record::Outcome;
    use std::collections::HashMap;

    /// Returns the samples of each option of tests, after the options that they require, with the
    /// tests on which they act.
    fn samples() -> impl Iterator<Item = (&'static KnownOption, String, String, &'static TestClass)>
    {
        option::all().flat_map(|option| {
            let (required, sample) = option.sample();
            let with_value = option.entry.with_value;
            let word = with_value.map(|(value, _)| format!("--{}={value}", option.long()));
            let rows = [
                Some((sample, option.entry.scope)),
                word.zip(with_value.map(|row| row.1)),
            ];
            rows.into_iter().flatten().filter_map(move |(word, scope)| {
                let Scope::Tests(class) = scope else {
                    return None;
                };
                Some((option, required.to_owned(), word, class))
            })
        })
    }

    /// Options that act on tests, but not by their specification.
    const NOT_IN_SPEC: &[&str] = &["interval", "loop", "sizes", "multicast-group"];

    #[test]
    fn each_option_has_a_row_with_all_that_it_needs() {
        let command = Options::command();
        let names: Vec<_> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        assert_eq!(
            names,
            option::all().map(KnownOption::long).collect::<Vec<_>>()
        );
        for option in option::all() {
            let (name, entry) = (option.long(), option.entry);
            let acts_on_tests = matches!(entry.scope, Scope::Tests(_));
            assert_eq!(!entry.sample.is_empty(), acts_on_tests, "sample of {name}");
            let is_set = acts_on_tests && !NOT_IN_SPEC.contains(&name);
            assert_eq!(
                entry.set.is_some(),
                is_set || name == "timeout",
                "setter of {name}"
            );
            assert!(option.arg.get_help().is_some(), "help of {name}");
        }
    }

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
        let mut samples: Vec<_> = samples().collect();
        samples.sort_by_key(|sample| sample.1.clone());
        for (option, needed, word, kind) in &samples {
            let name = option.long();
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
                        .entry((needed.as_str(), test))
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
        for (_, needed, word, _) in samples().filter(|sample| sample.0.long() != "interval") {
            let is_acted_on = |name: &&str| acts_on(&word, Test::from_name(name).unwrap());
            let test = Test::names().find(is_acted_on).unwrap();
            let without = text(&[&needed, "node", test]);
            assert_ne!(text(&[&needed, &word, "node", test]), without, "{word}");
        }
    }

    #[test]
    fn options_for_one_end_take_a_value_for_it() {
        let mut count = 0;
        for (option, _, word, _) in samples() {
            // Loops and sizes are parsed later.
            let Some((_, value)) = word.split_once('=') else {
                continue;
            };
            if ["loop", "sizes"].contains(&option.long()) {
                continue;
            }
            let word = format!("--{}=local={value},remote={value}", option.long());
            let is_accepted = Options::try_parse_from(["rperf", &word]).is_ok();
            assert_eq!(is_accepted, option.is_per_end(), "{word}");
            count += usize::from(is_accepted);
        }
        assert!(count >= 9, "{count}");
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
