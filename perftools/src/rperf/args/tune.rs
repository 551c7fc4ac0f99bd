//! The command line of `rperf --auto`.

use base::error::{Error, Result};
use measure::spec::test::Test;

use super::Invocation;
use super::command_line::Options;
use super::option::{self, OtherCommand, Scope};
use super::scope;
use super::to_spec::several;

/// Tests that the search runs.
const TESTS: [Test; 2] = [Test::RcBw, Test::RcLat];

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
    let is_unsupported =
        |word: &&String| scope::is_not_in(word, OtherCommand::Tune) || is_refused(word);
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
    let is_repeated = |word: &&String| {
        option::find(scope::name(word)).is_none_or(|option| !option.entry.is_varied_by_tune)
    };
    let words = options.iter().filter(is_repeated).cloned().collect();
    Ok(Invocation::Auto {
        host,
        words,
        options: Box::new(global),
    })
}
