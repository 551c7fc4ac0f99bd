//! The errors of the tests of a run.

use base::error::{Error, Kind, Result};
use base::log;

/// The errors of the tests so far.
pub(super) struct Failures {
    tests: usize,
    failed: usize,
    exceeded: usize,
    /// Latest error, which is not yet logged.
    last: Option<Error>,
}

impl Failures {
    pub(super) fn new(tests: usize) -> Self {
        Self {
            tests,
            failed: 0,
            exceeded: 0,
            last: None,
        }
    }

    /// Adds an error, and logs the one before it.
    pub(super) fn add(&mut self, error: Error) {
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
    pub(super) fn into_result(self) -> Result<()> {
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
