//! The tests to run, from the command line.

use base::error::{Error, Result};
use measure::spec::test::Test;
use measure::spec::{Parameter, ResultLimits, Spec};

use super::failures::Failures;
use super::share_device;
use crate::rperf::args::TestRun;
use crate::rperf::args::command_line::Options;

/// A test to run.
pub(super) struct PlannedRun {
    pub(super) test: Test,
    /// One specification, or one for each of several devices.
    pub(super) specs: Vec<Spec>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) limits: ResultLimits,
}

/// Plans all tests, so that invalid options are reported before the first test runs. With
/// `--keep-going`, a test that cannot be planned is a failure.
pub(super) fn plan(
    host: Option<&str>,
    tests: Vec<TestRun>,
    global: &Options,
    failures: &mut Failures,
) -> Result<Vec<PlannedRun>> {
    let mut runs = Vec::new();
    for run in tests {
        match run.options.to_specs(run.test).map_err(Error::into_usage) {
            Ok(mut specs) => {
                for spec in &mut specs {
                    share_device(host, spec);
                }
                runs.push(PlannedRun {
                    test: run.test,
                    specs,
                    parameters: run.parameters,
                    limits: run.options.limits.to_limits(),
                });
            }
            Err(error) if global.keep_going => failures.add(error),
            Err(error) => return Err(error),
        }
    }
    Ok(runs)
}
