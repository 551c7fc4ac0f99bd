//! Runs the tests of a command line and prints their records.

use std::time::SystemTime;

use base::error::{Error, Kind, Result};
use base::log;
use measure::spec::test::Test;
use measure::spec::{Parameter, ResultLimits, Spec};
use measure::stats::monitor::MonitorOptions;
use measure::transport::verbs::VerbsBackend;
use report::json::{self, Document};
use report::record::{Outcome, Record};
use report::table::Table;
use report::text::Format;
use report::{csv, limits};
use session::rperf::client::{self as control, ServerAddr};
use session::rperf::devices;

use super::diagnosis::{Report, outcome};
use super::live::LiveOutput;
use super::{print, share_device, with_server};
use crate::rperf::args::TestRun;
use crate::rperf::args::command_line::Options;

/// Runs the tests in order.
///
/// # Errors
/// Returns an error if a test failed or was interrupted, or if a result exceeds a limit. It is
/// about the only such test, or counts them; the errors of the tests are logged then.
pub(super) fn run(
    host: Option<&str>,
    tests: Vec<TestRun>,
    global: &Options,
    command_line: &str,
) -> Result<()> {
    // Check all specifications before the first test runs.
    let mut failures = Failures::new(tests.len());
    let mut runs = Vec::new();
    for run in tests {
        match run.options.to_specs(run.test).map_err(Error::into_usage) {
            Ok(mut specs) => {
                for spec in &mut specs {
                    share_device(host, spec);
                }
                runs.push(Run {
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
    with_server(host, global, |server_addr| {
        let output = Output::new(host, global, runs.len())?;
        run_all(server_addr, &runs, output, command_line, failures)
    })
}

/// A test to run.
struct Run {
    test: Test,
    /// One specification, or one for each of several devices.
    specs: Vec<Spec>,
    parameters: Vec<Parameter>,
    limits: ResultLimits,
}

fn run_all(
    server_addr: &ServerAddr,
    runs: &[Run],
    mut output: Output<'_>,
    command_line: &str,
    mut failures: Failures,
) -> Result<()> {
    let mut interrupted = None;
    for run in runs {
        let started = SystemTime::now();
        let monitor_options = MonitorOptions {
            interval: output.global.interval,
            observer: output.live.begin(run.test),
        };
        let answer = match run.specs.as_slice() {
            [spec] => control::run(server_addr, spec, &VerbsBackend, &Report, monitor_options),
            specs => devices::run(server_addr, specs, &VerbsBackend, &Report, monitor_options),
        };
        output.live.end()?;
        interrupted = server_addr.interrupt.error();
        let (outcome, error) = match answer {
            Ok(answer) => check_limits(outcome(answer), &run.limits),
            // The interrupt explains the failure.
            Err(error) => {
                let error = interrupted.clone().unwrap_or(error);
                let text = error.to_string();
                (Outcome::Failed { error: text }, Some(error))
            }
        };
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
    output.finish()?;
    interrupted.map_or_else(|| failures.into_result(), Err)
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

/// The errors of the tests so far.
struct Failures {
    tests: usize,
    failed: usize,
    exceeded: usize,
    /// Latest error, which is not yet logged.
    last: Option<Error>,
}

impl Failures {
    fn new(tests: usize) -> Self {
        Self {
            tests,
            failed: 0,
            exceeded: 0,
            last: None,
        }
    }

    /// Adds an error, and logs the one before it.
    fn add(&mut self, error: Error) {
        if error.kind() == Kind::Exceeded {
            self.exceeded += 1;
        } else {
            self.failed += 1;
        }
        if let Some(earlier) = self.last.replace(error) {
            log::log(format_args!("rperf: {earlier}"));
        }
    }

    /// Returns the only error, or logs the last one and returns the number of errors. A failed test
    /// determines the exit status, because its result is unknown.
    fn into_result(self) -> Result<()> {
        let Some(last) = self.last else { return Ok(()) };
        if self.failed + self.exceeded == 1 {
            return Err(last);
        }
        log::log(format_args!("rperf: {last}"));
        let kind = match self.failed {
            0 => Kind::Exceeded,
            _ if last.kind() == Kind::Exceeded => Kind::Test,
            _ => last.kind(),
        };
        let mut parts = Vec::new();
        if self.failed > 0 {
            parts.push(format!("{} of {} tests failed", self.failed, self.tests));
        }
        if self.exceeded > 0 {
            parts.push(format!(
                "{} of {} results exceed a limit",
                self.exceeded, self.tests
            ));
        }
        Err(Error::new(kind, parts.join(", ")))
    }
}

/// The output of a run in one of the formats.
struct Output<'a> {
    host: Option<&'a str>,
    global: &'a Options,
    format: Format,
    live: LiveOutput,
    table: Option<Table>,
    records: Vec<Record>,
}

impl<'a> Output<'a> {
    fn new(host: Option<&'a str>, global: &'a Options, tests: usize) -> Result<Self> {
        let format = global.text_format();
        if global.csv {
            print(&csv::header())?;
        }
        Ok(Self {
            host,
            global,
            format,
            live: LiveOutput::new(global, host, format.style, tests),
            table: global.tuning.is_sweep().then(|| Table::new(format)),
            records: Vec::new(),
        })
    }

    /// Prints a record, or keeps it for the document of `--json`.
    fn write(&mut self, record: Record) -> Result<()> {
        let global = self.global;
        let text = if global.json {
            self.records.push(record);
            return Ok(());
        } else if global.json_lines {
            json::record_line(&record)
        } else if global.csv {
            csv::render(&record)
        } else if let Some(table) = &mut self.table {
            table.render(&record)
        } else if self.live.is_name_printed() {
            self.format.figures(&record)
        } else {
            self.format.render(&record)
        };
        print(&text)
    }

    /// Prints the document of `--json`.
    fn finish(self) -> Result<()> {
        if self.global.json {
            return print(&Document::new(self.records).render());
        }
        Ok(())
    }
}
