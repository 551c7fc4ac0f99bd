//! Which records belong to one line of a plot, and what the line is called.
//!
//! Records that differ in nothing but the size make one line; a line's name holds what differs
//! among the lines, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::chart::{Line, Point};
use super::{Run, shown};
use crate::rperf::report::record::{Measured, Outcome};

/// A record that measured something, and whose it is.
#[derive(Clone)]
pub(super) struct Sample<'a> {
    pub(super) measured: &'a Measured,
    /// What it was measured with, each by its name.
    with: BTreeMap<String, String>,
}

/// The records of all runs that measured something.
pub(super) fn samples(runs: &[Run]) -> Vec<Sample<'_>> {
    let mut all = Vec::new();
    for run in runs {
        for record in &run.document.tests {
            let Outcome::Measured(measured) = &record.outcome else {
                continue;
            };
            let mut with = BTreeMap::new();
            // Digits in front: these stand first in a name, in this order.
            with.insert("0".to_owned(), run.name.clone());
            with.insert("1".to_owned(), record.test.name().to_owned());
            with.insert("2".to_owned(), measured.local.link.clone());
            with.insert("3".to_owned(), measured.local.device.clone());
            if let Ok(Value::Object(mut spec)) = serde_json::to_value(&measured.spec) {
                for known in ["test", "msg_size", "limit", "sockets"] {
                    spec.remove(known);
                }
                // The size says how deep the queue is.
                if measured.spec.has_default_depth() {
                    spec.remove("depth");
                }
                // The device that was used is told already.
                for side in ["client", "server"] {
                    spec.get_mut(side)
                        .and_then(Value::as_object_mut)
                        .map(|side| side.remove("id"));
                }
                flatten("", &Value::Object(spec), &mut with);
            }
            all.push(Sample { measured, with });
        }
    }
    all
}

fn flatten(name: &str, value: &Value, with: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let field = field.replace('_', " ");
                let name = match name {
                    "" | "tuning" => field,
                    outer => format!("{outer} {field}"),
                };
                flatten(&name, value, with);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(with.insert(name.to_owned(), text.clone())),
        other => drop(with.insert(name.to_owned(), other.to_string())),
    }
}

/// Samples by line: the name of each line, and its samples.
pub(super) fn lines<'s, 'a>(samples: &'s [Sample<'a>]) -> Vec<(String, Vec<&'s Sample<'a>>)> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let names: BTreeSet<&str> = samples
        .iter()
        .flat_map(|s| s.with.keys().map(String::as_str))
        .collect();
    for sample in samples {
        for name in &names {
            values
                .entry(name)
                .or_default()
                .insert(sample.with.get(*name).map_or("", String::as_str));
        }
    }
    // The test is named always, the rest where it differs.
    let differ: Vec<&str> = names
        .into_iter()
        .filter(|name| *name == "1" || values[name].len() > 1)
        .collect();
    let mut all: Vec<(String, Vec<&Sample>)> = Vec::new();
    for sample in samples {
        let part = |name: &&str| {
            let value = sample.with.get(*name).filter(|value| !value.is_empty())?;
            let first = name.starts_with(|c: char| c.is_ascii_digit());
            Some(if first {
                value.clone()
            } else {
                format!("{name} {value}")
            })
        };
        let name = differ
            .iter()
            .filter_map(part)
            .collect::<Vec<_>>()
            .join(", ");
        match all.iter_mut().find(|line| line.0 == name) {
            Some(line) => line.1.push(sample),
            None => all.push((name, vec![sample])),
        }
    }
    all
}

/// A figure against the size of a message; runs of the same size are one point, with their spread.
#[allow(clippy::cast_precision_loss)] // Sizes below 2^53.
pub(super) fn by_size(
    samples: &[Sample<'_>],
    figure: impl Fn(&Measured) -> Option<f64>,
    show: fn(f64) -> String,
    suffix: &str,
) -> Vec<Line> {
    let mut all = Vec::new();
    for (colour, (name, samples)) in lines(samples).into_iter().enumerate() {
        let mut sizes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for sample in samples {
            if let Some(value) = figure(sample.measured).filter(|v| v.is_finite() && *v > 0.0) {
                sizes
                    .entry(sample.measured.spec.msg_size)
                    .or_default()
                    .push(value);
            }
        }
        let points = sizes.into_iter().map(|(size, mut values)| {
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            let y = values[values.len() / 2];
            let runs = if values.len() > 1 {
                format!(
                    " (median of {}, {} to {})",
                    values.len(),
                    show(least),
                    show(most)
                )
            } else {
                String::new()
            };
            Point {
                x: size as f64,
                y,
                spread: (values.len() > 1).then_some((least, most)),
                about: format!("{}: {}{runs}", shown::size(size as f64), show(y)),
            }
        });
        let points: Vec<Point> = points.collect();
        if !points.is_empty() {
            all.push(Line {
                name: format!("{name}{suffix}"),
                points,
                colour,
                dashed: !suffix.is_empty(),
            });
        }
    }
    all
}

/// Lines that are named apart where several samples make one: a curve of percentiles, or intervals,
/// is of one run.
pub(super) fn each<'s, 'a>(samples: &'s [Sample<'a>]) -> Vec<(String, &'s Sample<'a>)> {
    let sizes: BTreeSet<u64> = samples.iter().map(|s| s.measured.spec.msg_size).collect();
    let mut all = Vec::new();
    for (name, samples) in lines(samples) {
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        for sample in samples {
            let size = sample.measured.spec.msg_size;
            let times = seen.entry(size).or_default();
            *times += 1;
            let with_size = if sizes.len() > 1 {
                format!(", {}", shown::size(wide(size)))
            } else {
                String::new()
            };
            let again = if *times > 1 {
                format!(" ({times})")
            } else {
                String::new()
            };
            let name = format!("{name}{with_size}{again}");
            all.push((name, sample));
        }
    }
    all
}

#[allow(clippy::cast_precision_loss)] // Sizes and times below 2^53.
pub(super) fn wide(value: u64) -> f64 {
    value as f64
}
