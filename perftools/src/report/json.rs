//! The records of a run as one JSON document.

use serde::{Deserialize, Serialize};

use super::record::{Record, SCHEMA};
use crate::error::{Error, Result};

/// A run: what `--json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `rperf` and its version.
    pub program: String,
    /// The tests in their order; the last may have failed.
    pub tests: Vec<Record>,
}

impl Document {
    /// The document of these records.
    pub fn new(tests: Vec<Record>) -> Self {
        Self { schema: SCHEMA, program: format!("rperf {}", env!("CARGO_PKG_VERSION")), tests }
    }

    /// Reads what `--json` or `--json-lines` wrote.
    ///
    /// # Errors
    /// It is neither, or of another schema.
    pub fn read(text: &str) -> Result<Self> {
        let wrong = |e: serde_json::Error| Error::protocol(format!("this is no record of rperf: {e}"));
        let document = match serde_json::from_str::<Self>(text) {
            Ok(document) => document,
            Err(whole) => {
                let lines = text.lines().filter(|line| !line.is_empty()).map(serde_json::from_str::<Record>);
                let records = lines.collect::<std::result::Result<Vec<_>, _>>().map_err(|_| wrong(whole))?;
                Self::new(records)
            }
        };
        if document.schema != SCHEMA {
            return Err(Error::protocol(format!("a record of schema {}, this rperf reads {SCHEMA}", document.schema)));
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
    use crate::report::text::tests::{latency, one_way};

    #[test]
    fn the_document_reads_back() {
        let document = Document::new(vec![one_way(), latency()]);
        assert_eq!(serde_json::from_str::<Document>(&document.render()).unwrap(), document);
    }

    #[test]
    fn lines_read_back_as_a_document() {
        let lines = line(&one_way()) + &line(&latency());
        assert_eq!(Document::read(&lines).unwrap(), Document::new(vec![one_way(), latency()]));
        assert!(Document::read("nonsense").unwrap_err().to_string().contains("no record of rperf"));
        let other = Document { schema: 99, ..Document::new(vec![]) };
        assert!(Document::read(&other.render()).unwrap_err().to_string().contains("schema 99"));
    }

    #[test]
    fn the_schema_is_held() {
        insta::assert_snapshot!(Document::new(vec![one_way()]).render().replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }
}
