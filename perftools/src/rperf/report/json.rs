//! The records of a run as one JSON document.

use serde::{Deserialize, Serialize};

use super::advice::Advice;
use super::record::{Record, SCHEMA};
use crate::common::error::{Error, Result};
use crate::rperf::spec::test::Test;
use crate::rperf::stats::interval::Interval;

/// A run: what `--json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `rperf` and its version.
    pub program: String,
    /// The tests in their order; the last may have failed.
    pub tests: Vec<Record>,
    /// What `--auto` found by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<Advice>,
}

impl Document {
    /// The document of these records.
    pub fn new(tests: Vec<Record>) -> Self {
        Self {
            schema: SCHEMA,
            program: format!("rperf {}", env!("CARGO_PKG_VERSION")),
            tests,
            auto: None,
        }
    }

    /// Reads what `--json` or `--json-lines` wrote.
    ///
    /// # Errors
    /// It is neither, or of another schema.
    pub fn read(text: &str) -> Result<Self> {
        let wrong = |e: serde_json::Error| {
            Error::protocol(format!(
                "this is no record of rperf, as `rperf --json … > FILE` writes one: {e}"
            ))
        };
        let document = match serde_json::from_str::<Self>(text) {
            Ok(document) => document,
            Err(whole) => {
                let records = lines(text).ok().filter(|records| !records.is_empty());
                let Some(records) = records else {
                    return Err(wrong(whole));
                };
                Self::new(records)
            }
        };
        if document.schema != SCHEMA {
            return Err(Error::protocol(format!(
                "a record of schema {}, this rperf reads {SCHEMA}",
                document.schema
            )));
        }
        Ok(document)
    }

    /// The text.
    ///
    /// # Panics
    /// Never: a document has string keys only.
    pub fn render(&self) -> String {
        serde_json::to_string_pretty(self).expect("string keys") + "\n"
    }
}

/// An interval of a test that goes on, as `--json-lines` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IntervalLine {
    /// The test.
    pub test: Test,
    /// The host as it was named; none: both ends on this machine.
    pub host: Option<String>,
    /// What the interval brought.
    pub interval: Interval,
}

impl IntervalLine {
    /// The line.
    ///
    /// # Panics
    /// Never: it has string keys only.
    pub fn render(&self) -> String {
        serde_json::to_string(self).expect("string keys") + "\n"
    }
}

/// A line of `--json-lines`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Interval(#[allow(dead_code, reason = "the record has it too")] IntervalLine),
    Record(Box<Record>),
}

/// The records among lines; what their intervals said while they went on is in them.
fn lines(text: &str) -> serde_json::Result<Vec<Record>> {
    let mut records = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Line::Record(record) = serde_json::from_str(line)? {
            records.push(*record);
        }
    }
    Ok(records)
}

/// A record in one line.
///
/// # Panics
/// Never: a record has string keys only.
pub fn line(record: &Record) -> String {
    serde_json::to_string(record).expect("string keys") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::report::text::tests::{latency, one_way};

    #[test]
    fn the_document_reads_back() {
        let document = Document::new(vec![one_way(), latency()]);
        assert_eq!(
            serde_json::from_str::<Document>(&document.render()).unwrap(),
            document
        );
    }

    #[test]
    fn lines_read_back_as_a_document() {
        let interval = Interval {
            to: 5,
            bandwidth: Some(1.0),
            ..Interval::default()
        };
        let between = IntervalLine {
            test: Test::RcBw,
            host: None,
            interval,
        }
        .render();
        let lines = between + &line(&one_way()) + "\n" + &line(&latency());
        assert_eq!(
            Document::read(&lines).unwrap(),
            Document::new(vec![one_way(), latency()])
        );
        assert!(
            Document::read("nonsense")
                .unwrap_err()
                .to_string()
                .contains("no record of rperf")
        );
        assert!(Document::read("").is_err() && Document::read("\n{}\n").is_err());
        let other = Document {
            schema: 99,
            ..Document::new(vec![])
        };
        assert!(
            Document::read(&other.render())
                .unwrap_err()
                .to_string()
                .contains("schema 99")
        );
    }

    #[test]
    fn the_schema_is_held() {
        insta::assert_snapshot!(
            Document::new(vec![one_way()])
                .render()
                .replace(env!("CARGO_PKG_VERSION"), "VERSION")
        );
    }
}
