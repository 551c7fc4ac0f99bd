//! Tests that the checked-in JSON schemas match the types of the program.

use std::path::PathBuf;
use std::{env, fs};

use schemars::generate::SchemaSettings;

use super::json::{Document, IntervalLine};
use super::record::{Record, SCHEMA};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("schema")
        .join(format!("{name}-{SCHEMA}.json"))
}

/// Asserts that the checked-in schema matches the type. Updates the file first if `UPDATE_SCHEMA`
/// is set.
pub(in crate::rperf) fn assert_up_to_date<T: schemars::JsonSchema>(name: &str, title: &str) {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = path(name);
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == text,
        "{} is out of date: run `UPDATE_SCHEMA=1 cargo test -p perftools schema` and review the difference; increase SCHEMA if a field was removed or changed its meaning",
        path.display()
    );
}

#[test]
fn checked_in_schemas_are_up_to_date() {
    assert_up_to_date::<Document>("rperf", "Output of rperf --json");
    assert_up_to_date::<Record>(
        "rperf-record",
        "Line of rperf --json-lines: a completed test",
    );
    assert_up_to_date::<IntervalLine>(
        "rperf-interval",
        "Line of rperf --json-lines --interval: an interval of a running test",
    );
}
