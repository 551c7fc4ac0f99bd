//! The judgement of results by the crate `report`, as the programs have it.

use base::error::{Error, Result};
use measure::result::{TestResult, Warning};
use measure::stats::port_counters::CounterChanges;
use report::record::Measured;
use report::warning::cause;

use crate::answer::Answer;
use crate::diagnosis::{Diagnosis, EncodedRecord};

/// Judges results with the crate `report`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report;

impl Diagnosis for Report {
    fn host_warnings(&self) -> Vec<Warning> {
        Vec::new()
    }

    fn explain(&self, error: Error, changes: &CounterChanges, seconds: f64) -> Error {
        cause::explain(error, changes, seconds)
    }

    fn record(&self, result: TestResult) -> Result<EncodedRecord> {
        Measured::new(result, &[]).encode().map(EncodedRecord)
    }
}

/// Returns the record of a test that transferred data.
pub(super) fn measured(answer: Answer) -> Measured {
    match answer {
        Answer::Measured(run) => Measured::from_run(*run, &[]),
        other => panic!("{other:?}"),
    }
}
