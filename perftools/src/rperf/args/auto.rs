//! The command line of `rperf --auto`.

use base::error::{Error, Result};
use measure::spec::test::Test;

use super::Invocation;
use super::command_line::Options;
use super::scope;
use super::to_spec::several;

/// Options that `--auto` varies itself or that only format its output. The commands that it
/// suggests do not repeat them.
const NOT_REPEATED: &[&str] = &[
    "auto",
    "json",
    "time",
    "tries",
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
    if global.json_lines
        || global.csv
        || global.interval.is_some()
        || global.messages.is_some()
        || global.tuning.is_sweep()
        // The search includes a latency test, which has one thread and no direction, and uses RC,
        // which has no multicast.
        || global.threads.is_some_and(|threads| threads > 1)
        || global.flip == Some(true)
        || global.multicast.is_some()
    {
        return Err(Error::usage(
            "--auto cannot be combined with --messages, --sizes, --loop, --interval, --threads, --flip, --multicast, --json-lines or --csv",
        )
        .with_help("remove these options; --time and --json are accepted"));
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
