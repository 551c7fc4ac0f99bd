//! The command line of `rperf --auto`.

use base::error::{Error, Result};
use measure::spec::test::Test;

use super::Invocation;
use super::command_line::Options;
use super::scope::{self, Scope};
use super::to_spec::several;

/// Options that `--auto` varies itself or that only format its output. The commands that it
/// suggests do not repeat them.
const NOT_REPEATED: &[&str] = &[
    "auto",
    "json",
    "time",
    "depth",
    "post-list",
    "inline",
    "qps",
    "wait",
    "msg-size",
    "bits",
    "precision",
    "unify-units",
];

/// Tests that the search runs.
const TESTS: [Test; 2] = [Test::RcBw, Test::RcLat];

/// Options of a list of tests and of its output, which `--auto` and a mesh do not have.
pub(super) const OF_RUNS: &[&str] = &[
    "interval",
    "keep-going",
    "loop",
    "qperf",
    "repeat",
    "sizes",
    "verbose",
];

/// Further options that `--auto` does not have.
const UNSUPPORTED: &[&str] = &["flip", "messages", "threads"];

/// Makes the invocation of `--auto` from the command line.
pub(super) fn invocation(
    host: Option<String>,
    tests: &[(Test, Vec<String>)],
    global: Options,
    options: &[String],
) -> Result<Invocation> {
    scope::check_client(options)?;
    if let Some((test, _)) = tests.first() {
        return Err(Error::usage(format!(
            "--auto does not accept tests, but the command line names {}",
            test.name()
        ))
        .with_help("remove the tests: `rperf --auto HOST`"));
    }
    if host.is_none() {
        scope::check_one_host(options)?;
    }
    let is_refused = |word: &&String| match scope::of(word) {
        Scope::Tests(_) => !TESTS.iter().any(|test| scope::acts_on(word, *test)),
        Scope::Results(_) => true,
        _ => false,
    };
    let unsupported = [UNSUPPORTED, OF_RUNS].concat();
    let is_unsupported =
        |word: &&String| unsupported.contains(&scope::name(word)) || is_refused(word);
    if let Some(option) = options.iter().find(is_unsupported) {
        return Err(Error::usage(format!(
            "{} has no effect on --auto, which finds the best settings of {}",
            scope::display(option),
            TESTS.map(Test::name).join(" and ")
        ))
        .with_help("remove it"));
    }
    if global.names_several_devices() {
        return Err(several("--auto"));
    }
    let is_repeated = |word: &&String| !NOT_REPEATED.contains(&scope::name(word));
    let words = options.iter().filter(is_repeated).cloned().collect();
    Ok(Invocation::Auto {
        host,
        words,
        options: Box::new(global),
    })
}
