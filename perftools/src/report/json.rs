//! The records of a run as one JSON document.

use serde::{Deserialize, Serialize};

use super::record::{Record, SCHEMA};

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

    /// The text.
    ///
    /// # Panics
    /// Never: a document has string keys only.
    pub fn render(&self) -> String {
        serde_json::to_string_pretty(self).expect("string keys") + "\n"
    }
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
    fn the_schema_is_held() {
        insta::assert_snapshot!(Document::new(vec![one_way()]).render().replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }
}
