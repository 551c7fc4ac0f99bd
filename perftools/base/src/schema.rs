//! Compares the checked-in JSON schemas with the types, in tests.

use std::path::Path;
use std::{env, fs};

use schemars::generate::SchemaSettings;

/// Asserts that the checked-in schema of a version matches the type. Updates the file first if
/// `UPDATE_SCHEMA` is set.
///
/// # Panics
/// Panics if the file does not match the type or cannot be written.
pub fn assert_up_to_date<T: schemars::JsonSchema>(name: &str, version: u32, title: &str) {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../schema")
        .join(format!("{name}-{version}.json"));
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == text,
        "{} is out of date: run `UPDATE_SCHEMA=1 cargo test -p 'perftools*' schema` and review the difference; increase SCHEMA if a field was removed or changed its meaning",
        path.display()
    );
}
