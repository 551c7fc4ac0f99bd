//! The schema of what `--json` writes: made of the types, and held against the file that is checked
//! in for others to use.

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

/// Where a type of the program is not what is checked in, this fails; with `UPDATE_SCHEMA` set it
/// writes the file anew.
fn held<T: schemars::JsonSchema>(name: &str, title: &str) {
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
        "{} is not what the program writes: UPDATE_SCHEMA=1 cargo test -p perftools schema, and read the difference (one field less, or of another meaning, is another SCHEMA)",
        path.display()
    );
}

#[test]
fn the_schema_that_is_checked_in_is_that_of_the_program() {
    held::<Document>("rperf", "What rperf --json writes");
    held::<Record>(
        "rperf-record",
        "A line of rperf --json-lines: a test that has ended",
    );
    held::<IntervalLine>(
        "rperf-interval",
        "A line of rperf --json-lines --interval: an interval of a test that goes on",
    );
}
