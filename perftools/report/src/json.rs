//! JSON output: the records of a run as one document, or one line per record.

use base::error::{Error, Result};
use base::peer_text::printable_json;
use measure::spec::test::Test;
use measure::stats::interval::Interval;
use serde::{Deserialize, Serialize};

use super::advice::Advice;
use super::record::{Record, SCHEMA};

/// Records of a run, printed by `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Document {
    /// Version of the schema.
    pub schema: u32,
    /// Name and version of the program.
    pub program: String,
    /// Records of the tests, in order of execution.
    pub tests: Vec<Record>,
    /// Best settings found by `--auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<Advice>,
}

impl Document {
    /// Creates a document from records.
    pub fn new(tests: Vec<Record>) -> Self {
        Self {
            schema: SCHEMA,
            program: format!("rperf {}", env!("CARGO_PKG_VERSION")),
            tests,
            auto: None,
        }
    }

    /// Parses the output of `--json` or `--json-lines`.
    ///
    /// # Errors
    /// Returns [`Kind::Protocol`](base::error::Kind::Protocol) if `text` is not the output
    /// of either option, or if it has another version of the schema.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |e: serde_json::Error| {
            Error::protocol(format!("parse the records: not a record of rperf: {e}"))
                .with_help("create a file of records with `rperf --json … > FILE`")
        };
        // The file may come from another host, and its strings are printed.
        let text = &printable_json(text);
        let document = match serde_json::from_str::<Self>(text) {
            Ok(document) => document,
            Err(error) => {
                let records = parse_lines(text).ok().filter(|records| !records.is_empty());
                let Some(records) = records else {
                    return Err(invalid(error));
                };
                Self::new(records)
            }
        };
        if document.schema != SCHEMA {
            return Err(Error::protocol(format!(
                "parse the records: schema {}, expected schema {SCHEMA}",
                document.schema
            )));
        }
        Ok(document)
    }

    /// Formats the document.
    ///
    /// # Panics
    /// Never: all keys of a document are strings.
    pub fn render(&self) -> String {
        serde_json::to_string_pretty(self).expect("string keys") + "\n"
    }
}

/// Interval of a running test, printed by `--json-lines`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct IntervalLine {
    /// Name of the test.
    pub test: Test,
    /// Host name given on the command line; null if both ends are on this host.
    pub host: Option<String>,
    /// Results of the interval.
    pub interval: Interval,
}

impl IntervalLine {
    /// Formats the interval as one line.
    ///
    /// # Panics
    /// Never: all keys are strings.
    pub fn render(&self) -> String {
        serde_json::to_string(self).expect("string keys") + "\n"
    }
}

/// Parses the records of `--json-lines`. Skips interval lines, because the records contain the
/// intervals too.
fn parse_lines(text: &str) -> serde_json::Result<Vec<Record>> {
    let mut records = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(error) if serde_json::from_str::<IntervalLine>(line).is_err() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(records)
}

/// Formats a record as one line.
///
/// # Panics
/// Never: all keys of a record are strings.
pub fn record_line(record: &Record) -> String {
    serde_json::to_string(record).expect("string keys") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{latency, one_way};

    #[test]
    fn documents_read_back_as_written() {
        let document = Document::new(vec![one_way(), latency()]);
        assert_eq!(
            serde_json::from_str::<Document>(&document.render()).unwrap(),
            document
        );
    }

    #[test]
    fn json_lines_read_back_as_a_document() {
        let interval = Interval {
            to: 5,
            bandwidth: Some(1.0),
            ..Interval::default()
        };
        let interval_line = IntervalLine {
            test: Test::RcBw,
            host: None,
            interval,
        }
        .render();
        let lines = interval_line + &record_line(&one_way()) + "\n" + &record_line(&latency());
        assert_eq!(
            Document::parse(&lines).unwrap(),
            Document::new(vec![one_way(), latency()])
        );
        assert!(
            Document::parse("nonsense")
                .unwrap_err()
                .to_string()
                .contains("not a record of rperf")
        );
        assert!(Document::parse("").is_err() && Document::parse("\n{}\n").is_err());
        let other = Document {
            schema: 99,
            ..Document::new(vec![])
        };
        assert!(
            Document::parse(&other.render())
                .unwrap_err()
                .to_string()
                .contains("schema 99")
        );
    }

    #[test]
    fn the_document_has_the_documented_fields() {
        insta::assert_snapshot!(
            Document::new(vec![one_way()])
                .render()
                .replace(env!("CARGO_PKG_VERSION"), "VERSION")
        );
    }
}
