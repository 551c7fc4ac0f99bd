//! The command line of `--auto`.

use super::Invocation;
use super::options::Options;
use crate::common::error::{Error, Result};
use crate::rperf::spec::test::Test;

/// Options that `--auto` chooses itself, or that say how its own output looks.
const CHOSEN: &[&str] = &[
    "--auto",
    "--json",
    "--time",
    "--tries",
    "--depth",
    "--post-list",
    "--inline",
    "--qps",
    "--wait",
    "--local-wait",
    "--remote-wait",
    "--msg-size",
    "--bits",
    "--precision",
    "--unify-units",
];

/// What `--auto` asks for.
pub(super) fn invocation(
    host: Option<String>,
    tests: &[(Test, Vec<String>)],
    global: Options,
    options: &[String],
) -> Result<Invocation> {
    global.refuse_server_only()?;
    if let Some((test, _)) = tests.first() {
        return Err(Error::usage(format!(
            "--auto chooses its tests itself: leave {} away, `rperf --auto HOST`",
            test.name()
        )));
    }
    if global.json_lines
        || global.csv
        || global.interval.is_some()
        || global.messages.is_some()
        || global.tuning.is_sweep()
        // Tests of latency have one thread and no direction, and a group has no rc_bw.
        || global.threads.is_some_and(|threads| threads > 1)
        || global.flip == Some(true)
        || global.multicast.is_some()
    {
        return Err(Error::usage(
            "--auto goes with --time and --json, not with --messages, sweeps, --interval, --threads, --flip, --multicast and other formats",
        ));
    }
    let own = |word: &&String| !CHOSEN.contains(&word.split('=').next().unwrap_or_default());
    let words = options.iter().filter(own).cloned().collect();
    Ok(Invocation::Auto {
        host,
        words,
        options: Box::new(global),
    })
}
