//! `rperf --auto` searches for the best settings between two hosts and for what limits them.
//!
//! `search` measures through a [`Runner`], one setting varied at a time; [`verdict`] derives the
//! bottleneck from the figures of both ends. [`run`](crate::rperf::run) uses it, and
//! [`report`](crate::rperf::report) prints the resulting [`Advice`].

mod search;
mod settings;
#[cfg(test)]
mod tests;
pub mod verdict;

use std::time::Duration;

use search::{Search, figure};
use verdict::PathLimits;

use crate::common::error::Result;
use crate::rperf::report::advice::{Advice, Finding, Goal};
use crate::rperf::report::record::Measured;
use crate::rperf::spec::Spec;

pub use search::MOST;

/// Runs one test.
pub trait Runner {
    /// Runs it.
    ///
    /// # Errors
    /// The test failed, or is not possible with these settings.
    fn run(&mut self, spec: &Spec) -> Result<Measured>;
}

/// Measures for `time` each, at most `most` times ([`MOST`], if nobody asks for less).
/// `path_limits` says what is known of the path that the first measurement took; `command` is what
/// leads to the same hosts, and what the user asked for beside.
///
/// # Errors
/// A first measurement failed, or the peer is gone.
pub fn run<R: Runner>(
    runner: &mut R,
    spec: &Spec,
    time: Duration,
    most: u32,
    path_limits: impl Fn(&Measured) -> PathLimits,
    command: impl Fn(&str) -> String,
) -> Result<Advice> {
    let mut search = Search::new(runner, time, most);
    let mut findings = Vec::new();
    let mut path = String::new();
    for goal in [Goal::Latency, Goal::Rate, Goal::Bandwidth] {
        let mut found = search.find_best(goal, spec)?;
        path = found.best.measured.local.to_string();
        let (bound, why) = if goal == Goal::Latency {
            (None, verdict::of_latency(&found))
        } else {
            let asleep = search.asleep(&mut found)?;
            let (bound, why) =
                verdict::bound(&found, asleep.as_ref(), path_limits(&found.best.measured));
            (Some(bound), why)
        };
        let size = found.spec.msg_size;
        let mut words = vec![
            command(found.spec.test.name()),
            format!("--msg-size {size}"),
        ];
        words.extend(found.best.settings.words(found.start.settings));
        findings.push(Finding {
            goal,
            size,
            best: figure(goal, &found.best.measured),
            start: figure(goal, &found.start.measured),
            command: words.join(" "),
            bound,
            why,
        });
    }
    Ok(Advice {
        path,
        measurements: search.made,
        crossing: crossing(&findings),
        findings,
        refused: search.refused,
    })
}

/// The size at which as many messages as go at most make as many bytes as go at most.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A size below 2^53.
fn crossing(findings: &[Finding]) -> Option<u64> {
    let of = |goal| findings.iter().find(|f| f.goal == goal).map(|f| f.best);
    let size = of(Goal::Bandwidth)? / of(Goal::Rate)?;
    // To a power of two: more would be more than is known.
    let size = 2_f64.powf(size.log2().round());
    (size.is_finite() && (65.0..1e9).contains(&size)).then_some(size as u64)
}
