//! The judgement of results, which a session needs but does not make.

use base::error::{Error, Result};
use measure::result::{TestResult, Warning};
use measure::stats::port_counters::CounterChanges;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Judges results and failures for the sessions. The programs implement it with the crate `report`,
/// so that the sessions do not depend on formats and verdicts.
pub trait Diagnosis: Sync {
    /// Returns the conditions on this host that can distort results.
    fn host_warnings(&self) -> Vec<Warning>;

    /// Adds the cause that the counters of a port show to the error of a test that failed after
    /// `seconds`.
    fn explain(&self, error: Error, changes: &CounterChanges, seconds: f64) -> Error;

    /// Returns the record of a test, which this server ran for the coordinator of a mesh.
    fn record(&self, result: TestResult) -> Result<EncodedRecord>;
}

/// The record of a test as JSON text. Only the coordinator that requested the test parses it: any
/// peer can send some, and parsed JSON can take a hundred times the memory of its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EncodedRecord(pub Box<RawValue>);

impl PartialEq for EncodedRecord {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}
