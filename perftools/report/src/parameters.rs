//! The parameters of a test as names and values, for comparing and naming records.

use std::collections::BTreeMap;

use measure::spec::Spec;
use serde_json::Value;

use super::record::{Measured, to_value};

/// Values of the parameters by name, such as `qps` or `client wait`.
pub(super) type Parameters = BTreeMap<String, String>;

/// Returns the parameters of a test, without its name and its message size. Defaults that depend
/// only on the message size, and the names of devices, are omitted.
pub(super) fn parameters(m: &Measured) -> Parameters {
    let mut parameters = of_spec(&m.spec);
    if !m.devices.is_empty() {
        parameters.insert("devices".to_owned(), m.devices.len().to_string());
    }
    parameters
}

/// Returns the parameters of a specification, as [`parameters`].
pub(super) fn of_spec(spec: &Spec) -> Parameters {
    let mut parameters = Parameters::new();
    if let Ok(Value::Object(mut fields)) = to_value(spec) {
        for ignored in ["test", "msg_size"] {
            fields.remove(ignored);
        }
        if spec.has_default_depth() {
            fields.remove("depth");
        }
        for side in ["client", "server"] {
            let side = fields.get_mut(side).and_then(Value::as_object_mut);
            side.map(|side| side.remove("id"));
        }
        flatten("", &Value::Object(fields), &mut parameters);
    }
    parameters
}

/// Adds the fields of a JSON value to `parameters`. The name of a nested field includes the name of
/// the outer field.
fn flatten(name: &str, value: &Value, parameters: &mut Parameters) {
    match value {
        // A duration.
        Value::Object(fields) if fields.contains_key("secs") => {
            let part = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or(0);
            #[allow(clippy::cast_precision_loss)] // Only shown.
            let seconds = part("secs") as f64 + part("nanos") as f64 / 1e9;
            parameters.insert(name.to_owned(), format!("{seconds} s"));
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                let field = field.replace('_', " ");
                let name = match name {
                    "" | "tuning" | "limit" => field,
                    outer => format!("{outer} {field}"),
                };
                flatten(&name, value, parameters);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(parameters.insert(name.to_owned(), text.clone())),
        other => drop(parameters.insert(name.to_owned(), other.to_string())),
    }
}

/// Returns the differences as sentences such as `depth 128 → 512`. A missing value is `default`.
pub(super) fn differences(old: &Parameters, new: &Parameters) -> Vec<String> {
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let value = |all: &Parameters, name: &String| {
        all.get(name)
            .map_or_else(|| "default".to_owned(), Clone::clone)
    };
    let differing = names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name));
    differing
        .map(|name| format!("{name} {} → {}", value(old, name), value(new, name)))
        .collect()
}
