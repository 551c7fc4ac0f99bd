//! Runs the tests of a command line and prints their records.

use std::time::SystemTime;

use base::error::{Error, Kind, Result};
use measure::spec::ResultLimits;
use measure::stats::monitor::MonitorOptions;
use measure::transport::verbs::VerbsBackend;
use report::limits;
use report::record::{Outcome, Record};
use session::answer::Answer;
use session::client;
use session::connect::ServerAddr;
use session::rperf::devices;

use super::diagnosis::{RecordDiagnosis, outcome};
use super::failures::Failures;
use super::output::Output;
use super::plan::{PlannedRun, plan};
use super::with_server;
use crate::rperf::args::TestRun;
use crate::rperf::args::command_line::Options;

/// Runs the tests in order: plans all of them, then measures and prints one after the other.
///
/// # Errors
/// Returns an error if a test failed or was interrupted, or if a result exceeds a limit. One error
/// is returned as it is; several are logged, and the returned error has their number.
pub(super) fn run(
    host: Option<&str>,
    tests: Vec<TestRun>,
    global: &Options,
    command_line: &str,
) -> Result<()> {
    let mut failures = Failures::new(tests.len());
    let runs = plan(host, tests, global, &mut failures)?;
    with_server(host, global, |server_addr| {
        let output = Output::new(host, global, runs.len());
        run_tests(server_addr, &runs, output, command_line, failures)
    })
}

fn run_tests(
    server_addr: &ServerAddr,
    runs: &[PlannedRun],
    mut output: Output<'_>,
    command_line: &str,
    mut failures: Failures,
) -> Result<()> {
    let mut interrupted = None;
    for run in runs {
        let started = SystemTime::now();
        let answer = run_test(server_addr, run, &output);
        output.live.end()?;
        interrupted = server_addr.interrupt.error();
        let (outcome, error) = judge(answer, &run.limits, interrupted.as_ref());
        let record = Record {
            command: Some(command_line.to_owned()),
            parameters: run.parameters.clone(),
            ..Record::new(run.test, output.host, outcome).started_at(started)
        };
        output.write(record)?;
        if interrupted.is_some() {
            break;
        }
        if let Some(error) = error {
            let stops = error.kind() != Kind::Exceeded && !output.global.keep_going;
            failures.add(error.context(run.test.name()));
            // The following tests would most likely fail for the same reason.
            if stops {
                break;
            }
        }
    }
    interrupted.map_or_else(|| failures.into_result(), Err)
}

fn run_test(server_addr: &ServerAddr, run: &PlannedRun, output: &Output<'_>) -> Result<Answer> {
    let monitor_options = MonitorOptions {
        interval: output.global.interval,
        observer: output.live.begin(run.test),
    };
    match run.specs.as_slice() {
        [spec] => client::run(
            server_addr,
            spec,
            &VerbsBackend,
            &RecordDiagnosis,
            monitor_options,
        ),
        specs => devices::run(
            server_addr,
            specs,
            &VerbsBackend,
            &RecordDiagnosis,
            monitor_options,
        ),
    }
}

/// Returns the outcome of a test, and the error that it is for the run.
fn judge(
    answer: Result<Answer>,
    limits: &ResultLimits,
    interrupted: Option<&Error>,
) -> (Outcome, Option<Error>) {
    match answer {
        Ok(answer) => check_limits(outcome(answer), limits),
        // The interrupt explains the failure.
        Err(error) => {
            let error = interrupted.cloned().unwrap_or(error);
            let text = error.to_string();
            (Outcome::Failed { error: text }, Some(error))
        }
    }
}

/// Adds the limits that a result exceeds to its outcome, and returns the error that reports them.
fn check_limits(mut outcome: Outcome, limits: &ResultLimits) -> (Outcome, Option<Error>) {
    let error = match &mut outcome {
        // The figures of an interrupted test cover any length of time.
        Outcome::Measured(m) if !m.partial => match limits::exceeded(limits, m) {
            Ok(exceeded) => {
                m.exceeded = exceeded;
                let text = m.exceeded.join("; ");
                (!text.is_empty()).then(|| Error::new(Kind::Exceeded, text))
            }
            Err(error) => Some(error),
        },
        _ => None,
    };
    (outcome, error)
}
