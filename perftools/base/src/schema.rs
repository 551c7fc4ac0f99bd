//! Compares the checked-in JSON schemas with the types, in tests.

use std::path::Path;
use std::{env, fs};

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema whose definitions the other ones use.
const SHARED: &str = "rperf-1.json";

/// Asserts that the checked-in schema of a version matches the type. Updates the file first if
/// `UPDATE_SCHEMA` is set.
///
/// # Panics
/// Panics if the file does not match the type or cannot be written.
pub fn assert_up_to_date<T: schemars::JsonSchema>(name: &str, version: u32, title: &str) {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    schema["title"] = title.into();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema");
    let file = format!("{name}-{version}.json");
    if file != SHARED {
        let shared = fs::read_to_string(directory.join(SHARED)).unwrap();
        refer(&mut schema, &serde_json::from_str(&shared).unwrap());
    }
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = directory.join(file);
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == text,
        "{} is out of date: run `UPDATE_SCHEMA=1 cargo test -p 'perftools*' --lib schema`, twice if rperf-1.json changes, and review the difference; increase SCHEMA if a field was removed or changed its meaning",
        path.display()
    );
}

/// Replaces the definitions that the shared schema has too by references to it.
fn refer(schema: &mut Value, shared: &Value) {
    let title = schema["title"].clone();
    let shared = shared["$defs"].as_object().unwrap();
    let definitions = match schema.as_object_mut().unwrap().remove("$defs") {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    // The shared schema may use a name for something else, directly or in a part of it.
    let mut own: Vec<String> = Vec::new();
    loop {
        let is_own = |(name, value): &(&String, &Value)| {
            let text = value.to_string();
            let has_own_part = own.iter().any(|name| text.contains(&reference("", name)));
            !own.contains(name) && (shared.get(*name) != Some(*value) || has_own_part)
        };
        let Some((name, _)) = definitions.iter().find(is_own) else {
            break;
        };
        own.push(name.clone());
    }
    let is_own = |name: &String| own.contains(name);
    let root = schema.as_object_mut().unwrap();
    let dialect = root.remove("$schema").unwrap();
    root.remove("title");
    let same = shared
        .iter()
        .find(|(_, value)| value.as_object() == Some(root));
    if let Some((name, _)) = same.filter(|_| own.is_empty()) {
        let reference = format!("{SHARED}#/$defs/{name}");
        *schema = serde_json::json!({ "$schema": dialect, "title": title, "$ref": reference });
        return;
    }
    let names = definitions.keys().filter(|name| !is_own(name));
    let mut text = schema.to_string();
    let kept = definitions.iter().filter(|(name, _)| is_own(name));
    let mut kept = Value::Object(kept.map(|(k, v)| (k.clone(), v.clone())).collect()).to_string();
    for name in names {
        for text in [&mut text, &mut kept] {
            *text = text.replace(&reference("", name), &reference(SHARED, name));
        }
    }
    *schema = serde_json::from_str(&text).unwrap();
    schema["$schema"] = dialect;
    schema["title"] = title;
    schema["$defs"] = serde_json::from_str(&kept).unwrap();
}

/// Returns the JSON text of a reference to a definition in a file.
fn reference(file: &str, name: &str) -> String {
    format!("\"{file}#/$defs/{name}\"")
}
