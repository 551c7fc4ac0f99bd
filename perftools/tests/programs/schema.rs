//! The output of `rperf` matches the committed JSON schemas.

use crate::common::{Server, run};
use serde_json::{Map, Value};

const RPERF: &str = include_str!("../../schema/rperf-1.json");
const MONITOR: &str = include_str!("../../schema/rperf-monitor-1.json");

/// A JSON schema validator for the keywords that the schemas use.
struct Schema(Value);

impl Schema {
    fn new(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap())
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        self.holds(self.0.as_object().unwrap(), value, "")
    }

    fn holds(&self, schema: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
        for (word, rule) in schema {
            let fine = match word.as_str() {
                "$ref" => {
                    let (file, name) = rule.as_str().unwrap().split_once("#/$defs/").unwrap();
                    match file {
                        "" => self.any(&self.0["$defs"][name], value, at)?,
                        "rperf-1.json" => {
                            let shared = Schema::new(RPERF);
                            shared.any(&shared.0["$defs"][name], value, at)?;
                        }
                        other => panic!("{other}"),
                    }
                    true
                }
                "type" => match rule {
                    Value::Array(all) => all.iter().any(|t| is(t, value)),
                    one => is(one, value),
                },
                "const" => rule == value,
                "enum" => rule.as_array().unwrap().contains(value),
                "anyOf" => rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|one| self.any(one, value, at).is_ok()),
                "oneOf" => {
                    rule.as_array()
                        .unwrap()
                        .iter()
                        .filter(|one| self.any(one, value, at).is_ok())
                        .count()
                        == 1
                }
                "required" => rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|name| value.get(name.as_str().unwrap()).is_some()),
                "additionalProperties" => {
                    rule != &Value::Bool(false)
                        || value
                            .as_object()
                            .unwrap()
                            .keys()
                            .all(|k| schema["properties"].get(k).is_some())
                }
                "properties" => {
                    for (name, rule) in rule.as_object().unwrap() {
                        if let Some(part) = value.get(name) {
                            self.any(rule, part, &format!("{at}/{name}"))?;
                        }
                    }
                    true
                }
                "items" => {
                    for (n, part) in value.as_array().into_iter().flatten().enumerate() {
                        self.any(rule, part, &format!("{at}/{n}"))?;
                    }
                    true
                }
                "minimum" => value.as_f64().is_none_or(|n| n >= rule.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|n| n <= rule.as_f64().unwrap()),
                "$schema" | "$defs" | "title" | "description" | "format" | "default" => true,
                other => return Err(format!("{at}: this test knows no {other}")),
            };
            if !fine {
                return Err(format!("{at}: {word} {rule} does not hold for {value}"));
            }
        }
        Ok(())
    }

    fn any(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        match schema {
            Value::Bool(true) => Ok(()),
            Value::Object(schema) => self.holds(schema, value, at),
            other => Err(format!("{at}: no schema: {other}")),
        }
    }
}

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    }
}

#[test]
fn lines_of_tests_match_the_schema() {
    let server = Server::start();
    let schema = Schema::new(RPERF);
    let line = format!(
        "--json --interval 50ms -t 300ms {} tcp_bw tcp_lat udp_bw conf",
        server.target()
    );
    let output = run(&line);
    assert!(output.success(), "{}", output.stderr);
    let mut lines: Vec<Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in &lines {
        schema.check(line).unwrap();
    }
    lines.retain(|line| line["type"] == "test");
    let intervals = &lines[0]["outcome"]["measured"]["intervals"];
    assert_eq!(lines.len(), 4, "{output}");
    let count = intervals.as_array().unwrap().len();
    // Each interval of the record was printed before it.
    let printed = output
        .stdout
        .matches(r#""type":"interval","test":"tcp_bw""#);
    assert!(count > 0 && printed.count() == count, "{output}");
    // A line with a wrong value does not match.
    lines[1]["outcome"]["measured"]["latency"]["p50"] = "fast".into();
    assert!(schema.check(&lines[1]).is_err());
    lines[2].as_object_mut().unwrap().remove("outcome");
    assert!(schema.check(&lines[2]).is_err());
}

#[test]
fn lines_of_the_monitor_match_the_schema() {
    let server = Server::start();
    let output = run(&format!(
        "monitor --json --interval 50ms --report-interval 200ms -t 1s localhost:{},localhost:1",
        server.port
    ));
    let schema = Schema::new(MONITOR);
    let mut kinds = Vec::new();
    for line in output.stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        schema
            .check(&line)
            .unwrap_or_else(|e| panic!("{e}: {line}"));
        kinds.push(line["type"].as_str().unwrap().to_owned());
    }
    for kind in ["change", "target", "path"] {
        assert!(kinds.iter().any(|found| found == kind), "{output}");
    }
}

#[test]
fn records_of_failed_tests_match_the_schema() {
    let output = run("--json -lp 1 -ws 200ms localhost tcp_bw");
    assert_eq!(output.code(), Some(1));
    Schema::new(RPERF)
        .check(&serde_json::from_str(&output.stdout).unwrap())
        .unwrap();
}
