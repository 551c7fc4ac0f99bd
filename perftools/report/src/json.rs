//! JSON output: a line for each interval and for each completed test, in the order of their ends.

use base::error::{Error, Result};
use base::peer_text::printable_json;
use measure::spec::test::Test;
use measure::stats::interval::Interval;
use serde::{Deserialize, Serialize};
use serde_json::{Deserializer, Value};

use super::advice::TuneResult;
use super::record::{Record, SCHEMA};

/// Line of `rperf --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct JsonLine {
    /// Version of the schema.
    pub schema: u32,
    /// The content.
    #[serde(flatten)]
    pub content: JsonContent,
}

/// Content of a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JsonContent {
    /// A completed test.
    Test(Box<Record>),
    /// With `--interval`: an interval of a running test.
    Interval(TestInterval),
    /// With `rperf tune`: the best settings, after all measurements.
    Tune(TuneResult),
}

/// Interval of a running test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct TestInterval {
    /// Name of the test.
    pub test: Test,
    /// Host name given on the command line; null if both ends are on this host.
    pub host: Option<String>,
    /// Results of the interval.
    pub interval: Interval,
}

impl JsonContent {
    /// Formats the line with this content.
    ///
    /// # Panics
    /// Never: all keys are strings.
    pub fn render(self) -> String {
        let line = JsonLine {
            schema: SCHEMA,
            content: self,
        };
        serde_json::to_string(&line).expect("string keys") + "\n"
    }
}

/// Records of a run, read from the output of `--json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Records {
    /// Records of the tests, in order of execution.
    pub tests: Vec<Record>,
}

impl Records {
    /// Creates the records of a run.
    pub fn new(tests: Vec<Record>) -> Self {
        Self { tests }
    }

    /// Parses the output of `--json`. The records contain their intervals, and the measurements of
    /// `rperf tune` have records of their own, so the other lines are not needed.
    ///
    /// # Errors
    /// Returns [`Kind::Protocol`](base::error::Kind::Protocol) if `text` is not the output of the
    /// option, or if it has another version of the schema.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |cause: &str| {
            Error::protocol(format!("cannot parse the records: {cause}"))
                .with_help("create a file of records with `rperf --json … > FILE`")
        };
        // The file may come from another host, and its strings are printed.
        let text = &printable_json(text);
        let mut tests = Vec::new();
        let mut lines = 0;
        for value in Deserializer::from_str(text).into_iter::<Value>() {
            let not_a_record =
                |e: serde_json::Error| invalid(&format!("not a record of rperf: {e}"));
            let value = value.map_err(not_a_record)?;
            let schema = value.get("schema").and_then(Value::as_u64);
            if let Some(schema) = schema.filter(|schema| *schema != u64::from(SCHEMA)) {
                return Err(invalid(&format!(
                    "schema {schema}, expected schema {SCHEMA}"
                )));
            }
            let line: JsonLine = serde_json::from_value(value).map_err(not_a_record)?;
            lines += 1;
            if let JsonContent::Test(record) = line.content {
                tests.push(*record);
            }
        }
        match lines {
            0 => Err(invalid("not a record of rperf: it is empty")),
            _ => Ok(Self::new(tests)),
        }
    }

    /// Formats a line for each record.
    pub fn render(&self) -> String {
        let records = self.tests.iter().cloned();
        let lines = records.map(|record| JsonContent::Test(Box::new(record)).render());
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{latency, one_way};

    #[test]
    fn lines_read_back_as_the_records_of_a_run() {
        let interval = Interval {
            to: 5,
            bandwidth: Some(1.0),
            ..Interval::default()
        };
        let line = JsonContent::Interval(TestInterval {
            test: Test::RcBw,
            host: None,
            interval,
        });
        let records = Records::new(vec![one_way(), latency()]);
        let text = line.render() + &records.render();
        assert_eq!(Records::parse(&text).unwrap(), records);
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn other_texts_are_errors() {
        for (text, expected) in [
            ("nonsense", "not a record of rperf"),
            ("", "it is empty"),
            ("\n{}\n", "not a record of rperf"),
            (r#"{"schema": 99, "type": "test"}"#, "schema 99"),
        ] {
            let error = Records::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_line_has_the_documented_fields() {
        let line = JsonContent::Test(Box::new(one_way())).render();
        let value: Value = serde_json::from_str(&line).unwrap();
        let text = serde_json::to_string_pretty(&value).unwrap();
        insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }
}
