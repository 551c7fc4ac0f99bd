//! The command line of `rperf tune`.

use base::error::{Error, Result};
use measure::spec::test::Test;

use super::option::{self, KnownOption, OtherCommand, Scope};
use super::split::{self, SplitArgs};
use super::to_spec::several;
use super::{Invocation, parse_options, scope};

/// Tests that the search runs.
const TESTS: [Test; 2] = [Test::RcBw, Test::RcLat];

/// Returns `true` if `rperf tune` has the option.
fn is_supported(option: &KnownOption) -> bool {
    let acts = match option.entry.scope {
        Scope::Tests(class) => TESTS.into_iter().any(class.contains),
        Scope::Results(_) | Scope::Server => false,
        Scope::Run | Scope::Both => true,
    };
    acts && !option.entry.not_in.contains(&OtherCommand::Tune)
}

/// Returns the command, with the options of tests that it has.
pub(super) fn command() -> clap::Command {
    let supported = option::all().filter(|option| is_supported(option));
    clap::Command::new("rperf tune")
        .disable_help_flag(true)
        .args(supported.map(|option| option.arg.clone().hide(false)))
        .about("Find the best settings and the bottleneck")
        .override_usage("rperf tune [OPTIONS] [HOST]")
        .after_help("Varies depth, post list, inline size, waiting and queue pairs in about 40 tests of 0.3 s each, or\nof --time or --messages.\n\nExample:\n    rperf tune node1")
}

/// Parses `tune [OPTIONS] [HOST]`.
pub(super) fn parse(args: &[String]) -> Result<Invocation> {
    let SplitArgs {
        host,
        tests,
        options,
    } = split::split(args)?;
    let global = parse_options(&options)?;
    scope::check_client(&options)?;
    if let Some((test, _)) = tests.first() {
        return Err(Error::usage(format!(
            "`rperf tune` does not accept tests, but the command line names {}",
            test.name()
        ))
        .with_help("remove the tests: `rperf tune HOST`"));
    }
    if host.is_none() {
        scope::check_one_host(&options)?;
    }
    let is_unsupported = |word: &&String| {
        option::find(scope::name(word)).is_some_and(|option| !is_supported(option))
    };
    if let Some(option) = options.iter().find(is_unsupported) {
        return Err(Error::usage(format!(
            "{} has no effect on `rperf tune`, which finds the best settings of {}",
            scope::display(option),
            TESTS.map(Test::name).join(" and ")
        ))
        .with_help("remove it"));
    }
    if global.names_several_devices() {
        return Err(several("`rperf tune`"));
    }
    let is_repeated = |word: &&String| {
        option::find(scope::name(word)).is_none_or(|option| !option.entry.is_varied_by_tune)
    };
    let words = options.iter().filter(is_repeated).cloned().collect();
    Ok(Invocation::Tune {
        host,
        words,
        options: Box::new(global),
    })
}
