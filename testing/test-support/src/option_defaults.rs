//! Comparison of the documented defaults of an option struct with its values.

use std::fmt::Debug;

/// Returns the text of an expression and the `Debug` text of its value, for defaults that are
/// documented by name: `named_value!(PortSpace::TCP)`.
#[macro_export]
macro_rules! named_value {
    ($value:expr) => {
        (stringify!($value), format!("{:?}", $value))
    };
}

/// Checks that the documentation of each field ends its statement "Default: `VALUE`." with the
/// value that the field has in `defaults`.
///
/// `source` is the source file that declares the struct `name`. Fields in `required` have no
/// default, so their documentation must not state one. `named` are values documented by name.
///
/// # Panics
/// Panics if a default is missing or differs, or if the struct is not found.
pub fn assert_documented(
    source: &str,
    name: &str,
    defaults: &impl Debug,
    required: &[&str],
    named: &[(&str, String)],
) {
    let problems = problems(source, name, &format!("{defaults:?}"), required, named);
    assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
}

fn problems(
    source: &str,
    name: &str,
    debug: &str,
    required: &[&str],
    named: &[(&str, String)],
) -> Vec<String> {
    let documented = documented_fields(source, name);
    let actual = debug_fields(debug);
    let names = |fields: &[(String, String)]| -> Vec<String> {
        fields.iter().map(|(field, _)| field.clone()).collect()
    };
    if documented.is_empty() || names(&documented) != names(&actual) {
        return vec![format!("the fields in the source and in {debug} differ")];
    }
    let mut problems = Vec::new();
    for ((field, doc), (_, value)) in documented.iter().zip(&actual) {
        let stated = stated_default(doc);
        if required.contains(&field.as_str()) {
            if stated.is_some() {
                problems.push(format!("{field}: states a default, but is required"));
            }
            continue;
        }
        let Some(stated) = stated else {
            problems.push(format!("{field}: states no default; it is {value}"));
            continue;
        };
        let by_name = named.iter().find(|(name, _)| *name == stated);
        if by_name.map_or(stated, |(_, value)| value) != value {
            problems.push(format!("{field}: states {stated}, but is {value}"));
        }
    }
    problems
}

/// Returns the value in "Default: `VALUE`" or "Default: [`VALUE`]".
fn stated_default(doc: &str) -> Option<&str> {
    let (_, stated) = doc.split_once("Default: ")?;
    let stated = stated.strip_prefix('[').unwrap_or(stated);
    stated.strip_prefix('`')?.split('`').next()
}

/// Returns the names of the public fields of a struct, each with its documentation on one line.
fn documented_fields(source: &str, name: &str) -> Vec<(String, String)> {
    let is_declaration = |line: &&str| {
        line.strip_prefix("pub struct ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with([' ', '<']))
    };
    let mut lines = source.lines();
    let mut fields = Vec::new();
    if lines.find(is_declaration).is_none() {
        return fields;
    }
    let mut doc = String::new();
    for line in lines.take_while(|line| *line != "}").map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push_str(text);
        } else if let Some((field, _)) = line
            .strip_prefix("pub ")
            .and_then(|line| line.split_once(": "))
        {
            fields.push((field.to_owned(), std::mem::take(&mut doc)));
        }
    }
    fields
}

/// Returns the names and values of the fields in the `Debug` text of a struct.
fn debug_fields(debug: &str) -> Vec<(String, String)> {
    let inner = debug
        .split_once(" { ")
        .and_then(|(_, rest)| rest.strip_suffix(" }"))
        .unwrap_or_default();
    let mut depth = 0;
    inner
        .split_inclusive(|c| {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        })
        .filter_map(|field| field.trim_end_matches(',').trim().split_once(": "))
        .map(|(field, value)| (field.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
pub struct Other {
    /// Default: `9`.
    pub depth: u32,
}

pub struct Options<'a> {
    /// Name.
    pub name: &'a str,
    /// Number of entries. Default:
    /// `64`.
    pub depth: u32,
    /// Service. Default: [`Port::TCP`].
    pub port: Port,
}
";
    const DEBUG: &str = "Options { name: \"\", depth: 64, port: Port(1, [2]) }";

    fn check(source: &str, debug: &str) -> Vec<String> {
        let port = ("Port::TCP", "Port(1, [2])".to_owned());
        problems(source, "Options", debug, &["name"], &[port])
    }

    #[test]
    fn equal_defaults_pass() {
        assert_eq!(check(SOURCE, DEBUG), Vec::<String>::new());
    }

    #[test]
    fn wrong_and_missing_defaults_are_reported() {
        let report = |from, to| check(&SOURCE.replace(from, to), DEBUG);
        assert_eq!(report("`64`", "`32`"), ["depth: states 32, but is 64"]);
        assert_eq!(report("Port::TCP", "Port::UDP").len(), 1);
        assert_eq!(report(" Default: [`Port::TCP`].", "").len(), 1);
        assert_eq!(report("/// Name.", "/// Name. Default: ``.").len(), 1);
    }

    #[test]
    fn a_struct_that_does_not_match_is_reported() {
        assert_eq!(check("", DEBUG).len(), 1);
        assert_eq!(check(SOURCE, "Options { name: \"\" }").len(), 1);
        assert_eq!(check(SOURCE, "Options").len(), 1);
    }
}
