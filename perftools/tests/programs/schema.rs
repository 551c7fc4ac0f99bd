//! The output of `rperf` matches the committed JSON schemas.

use crate::common::{Server, run};
use serde_json::{Map, Value};

const DOCUMENT: &str = include_str!("../../schema/rperf-1.json");
const RECORD: &str = include_str!("../../schema/rperf-record-1.json");
const INTERVAL: &str = include_str!("../../schema/rperf-interval-1.json");
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
                            let document = Schema::new(DOCUMENT);
                            document.any(&document.0["$defs"][name], value, at)?;
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
fn json_documents_match_the_schema() {
    let server = Server::start();
    let schema = Schema::new(DOCUMENT);
    let line = format!(
        "--json --interval 50ms -t 300ms {} tcp_bw tcp_lat udp_bw conf",
        server.target()
    );
    let output = run(&line);
    assert!(output.success(), "{}", output.stderr);
    let mut document: Value = serde_json::from_str(&output.stdout).unwrap();
    schema.check(&document).unwrap();
    let intervals = document["tests"][0]["outcome"]["measured"]["intervals"]
        .as_array()
        .unwrap();
    assert!(!intervals.is_empty(), "{document}");
    // A document with a wrong value does not match.
    document["tests"][1]["outcome"]["measured"]["latency"]["p50"] = "fast".into();
    let wrong = schema.check(&document).unwrap_err();
    assert!(wrong.contains("/tests/1"), "{wrong}");
    document["tests"] = Value::Null;
    assert!(schema.check(&document).is_err());
}

#[test]
fn json_lines_match_their_schemas() {
    let server = Server::start();
    let output = run(&format!(
        "--json-lines --interval 100ms -t 400ms {} tcp_bw tcp_lat",
        server.target()
    ));
    let text = output.stdout.clone();
    let (record, interval) = (Schema::new(RECORD), Schema::new(INTERVAL));
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (intervals, records): (Vec<_>, Vec<_>) = lines
        .iter()
        .partition(|line| line.get("interval").is_some());
    for line in &intervals {
        interval.check(line).unwrap();
    }
    for line in &records {
        record.check(line).unwrap();
    }
    assert!(records.len() == 2 && intervals.len() >= 4, "{text}");
}

#[test]
fn lines_of_the_monitor_match_the_schema() {
    let server = Server::start();
    let output = run(&format!(
        "monitor --json-lines --interval 50ms --report-interval 200ms -t 1s localhost:{},localhost:1",
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
    Schema::new(DOCUMENT)
        .check(&serde_json::from_str(&output.stdout).unwrap())
        .unwrap();
}
