//! Tests that the checked-in JSON schemas match the types of the program.

use super::json::JsonLine;
use super::record::SCHEMA;

#[test]
fn checked_in_schemas_are_up_to_date() {
    base::schema::assert_up_to_date::<JsonLine>("rperf", SCHEMA, "Line of rperf --json");
}
