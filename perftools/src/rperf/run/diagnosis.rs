//! The judgement of results by the crate `report`, for the sessions.

use base::error::{Error, Result};
use host::conditions::Conditions;
use host::root::Root;
use measure::result::{TestResult, Warning};
use measure::stats::port_counters::CounterChanges;
use report::record::{Measured, Outcome};
use report::warning::{self, cause};
use session::answer::Answer;
use session::diagnosis::{Diagnosis, EncodedRecord};

/// Judges results with the crate `report` and the conditions of this host.
#[derive(Clone, Copy, Debug)]
pub struct RecordDiagnosis;

impl Diagnosis for RecordDiagnosis {
    fn host_warnings(&self) -> Vec<Warning> {
        warning::host(&Conditions::read(&Root::host()))
    }

    fn explain(&self, error: Error, changes: &CounterChanges, seconds: f64) -> Error {
        cause::explain(error, changes, seconds)
    }

    fn record(&self, result: TestResult) -> Result<EncodedRecord> {
        let record = Measured::new(result, &self.host_warnings());
        record.encode().map(EncodedRecord)
    }
}

/// Makes the outcome of a test, which a record contains, from the answer of its server.
pub fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Measured(run) => {
            let measured = Measured::from_run(*run, &RecordDiagnosis.host_warnings());
            Outcome::Measured(Box::new(measured))
        }
        Answer::Conf { local, remote } => Outcome::Conf { local, remote },
        Answer::Quit => Outcome::Quit,
    }
}
