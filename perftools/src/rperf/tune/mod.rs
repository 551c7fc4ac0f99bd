//! `rperf tune` searches for the best settings between two hosts, and for their bottleneck.
//!
//! `search` varies one setting at a time and measures through a [`Runner`]. [`verdict`] derives the
//! bottleneck from the measurements of both ends. [`run`](crate::rperf::run) uses it, and
//! [`report`] prints the resulting [`TuneResult`].

mod search;
mod settings;
#[cfg(test)]
mod tests;
pub(super) mod verdict;

use base::error::Result;
use measure::spec::test::Test;
use measure::spec::{Limit, Spec};
use report::advice::{Goal, GoalResult, TuneResult};
use report::record::Measured;

use search::{Search, figure};
use verdict::PathLimits;

pub(super) use search::MAX_MEASUREMENTS;

/// Runs one test.
pub(super) trait Runner {
    /// Runs a test and returns its measurements.
    ///
    /// # Errors
    /// Returns an error if the test fails, or if the device or the server does not support these
    /// settings.
    fn run(&mut self, spec: &Spec) -> Result<Measured>;
}

/// Searches for the best settings of each goal.
///
/// Runs at most `max_measurements` tests (default: [`MAX_MEASUREMENTS`]), each until `limit`.
/// `path_limits` returns the known limits of the path of a measurement. `command` returns the
/// `rperf` command that runs the named test on the same hosts with the user's own options.
///
/// # Errors
/// Returns an error if the first measurement of a goal fails, or if the peer is gone.
pub(super) fn run<R: Runner>(
    runner: &mut R,
    spec: &Spec,
    limit: Limit,
    max_measurements: u32,
    path_limits: impl Fn(&Measured) -> PathLimits,
    command: impl Fn(Test) -> String,
) -> Result<TuneResult> {
    let mut search = Search::new(runner, limit, max_measurements);
    let mut findings = Vec::new();
    let mut path = String::new();
    for goal in [Goal::Latency, Goal::Rate, Goal::Bandwidth] {
        let mut found = search.find_best(goal, spec)?;
        path = found.best.measured.local.to_string();
        let (bound, why) = if goal == Goal::Latency {
            (None, verdict::explain_latency(&found))
        } else {
            let sleeping = search.measure_sleeping(&mut found)?;
            let (bound, why) = verdict::find_bottleneck(
                &found,
                sleeping.as_ref(),
                path_limits(&found.best.measured),
            );
            (Some(bound), why)
        };
        let size = found.spec.msg_size;
        let mut command = vec![command(found.spec.test), format!("--msg-size {size}")];
        command.extend(found.best.settings.options(found.start.settings));
        findings.push(GoalResult {
            goal,
            size,
            best: figure(goal, &found.best.measured),
            start: figure(goal, &found.start.measured),
            command: command.join(" "),
            bound,
            why,
        });
    }
    Ok(TuneResult {
        path,
        measurements: search.measurements,
        crossing: crossing(&findings),
        findings,
        refused: search.refused,
    })
}

/// Returns the message size at which the highest message rate gives the highest bandwidth.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // From 65 to 1e9.
fn crossing(findings: &[GoalResult]) -> Option<u64> {
    let best = |goal| findings.iter().find(|f| f.goal == goal).map(|f| f.best);
    let size = best(Goal::Bandwidth)? / best(Goal::Rate)?;
    // The measurements are not exact enough for more than a power of two.
    let size = 2_f64.powf(size.log2().round());
    (size.is_finite() && (65.0..1e9).contains(&size)).then_some(size as u64)
}
