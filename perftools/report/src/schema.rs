//! Tests that the checked-in JSON schemas match the types of the program.

use super::json::{Document, IntervalLine};
use super::record::{Record, SCHEMA};

/// Asserts that the checked-in schema of rperf's current version matches the type.
fn assert_up_to_date<T: schemars::JsonSchema>(name: &str, title: &str) {
    base::schema::assert_up_to_date::<T>(name, SCHEMA, title);
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
