//! Grouping of records into the lines of a plot, and the names of the lines.
//!
//! Records that differ only in the message size form one line. The name of a line consists of the
//! test and the parameters that differ between lines.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::chart::{Line, Point};
use super::{NamedRun, units};
use crate::parameters;
use crate::record::{Measured, Outcome};

/// A record with results, and the parameters that distinguish it.
#[derive(Clone)]
pub(super) struct Sample<'a> {
    pub(super) measured: &'a Measured,
    /// Values of the parameters by name.
    parameters: BTreeMap<String, String>,
}

/// Returns all records with results.
pub(super) fn samples(runs: &[NamedRun]) -> Vec<Sample<'_>> {
    let mut all = Vec::new();
    for run in runs {
        for record in &run.records.tests {
            let Outcome::Measured(measured) = &record.outcome else {
                continue;
            };
            let mut parameters: BTreeMap<String, String> = BTreeMap::new();
            // These parameters have digits as names, so that they sort before all others.
            parameters.insert("0".to_owned(), run.name.clone());
            parameters.insert("1".to_owned(), record.test.name().to_owned());
            parameters.insert("2".to_owned(), measured.local.link.clone());
            parameters.insert("3".to_owned(), measured.local.device.clone());
            let ignored = |name: &String| {
                ["time", "messages"].contains(&name.as_str()) || name.starts_with("sockets ")
            };
            let others = parameters::parameters(measured).into_iter();
            parameters.extend(others.filter(|(name, _)| !ignored(name)));
            all.push(Sample {
                measured,
                parameters,
            });
        }
    }
    all
}

/// Groups samples into lines. Returns the name and the samples of each line.
pub(super) fn lines<'s, 'a>(samples: &'s [Sample<'a>]) -> Vec<(String, Vec<&'s Sample<'a>>)> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let names: BTreeSet<&str> = samples
        .iter()
        .flat_map(|s| s.parameters.keys().map(String::as_str))
        .collect();
    for sample in samples {
        for name in &names {
            values
                .entry(name)
                .or_default()
                .insert(sample.parameters.get(*name).map_or("", String::as_str));
        }
    }
    // A name always contains the test (parameter 1). Other parameters are included if they differ.
    let included: Vec<&str> = names
        .into_iter()
        .filter(|name| *name == "1" || values[name].len() > 1)
        .collect();
    let mut all: Vec<(String, Vec<&Sample>)> = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    for sample in samples {
        let part = |name: &&str| {
            let value = sample
                .parameters
                .get(*name)
                .filter(|value| !value.is_empty())?;
            let is_value_only = name.starts_with(|c: char| c.is_ascii_digit());
            Some(if is_value_only {
                value.clone()
            } else {
                format!("{name} {value}")
            })
        };
        let name = included
            .iter()
            .filter_map(part)
            .collect::<Vec<_>>()
            .join(", ");
        if let Some(&position) = positions.get(&name) {
            all[position].1.push(sample);
        } else {
            positions.insert(name.clone(), all.len());
            all.push((name, vec![sample]));
        }
    }
    all
}

/// Returns lines of a result against the message size. Repeated runs with the same size form one
/// point: their median, with minimum and maximum.
#[allow(clippy::cast_precision_loss)] // Sizes below 2^53.
pub(super) fn by_size(
    samples: &[Sample<'_>],
    result: impl Fn(&Measured) -> Option<f64>,
    format: fn(f64) -> String,
    suffix: &str,
) -> Vec<Line> {
    let mut all = Vec::new();
    for (color, (name, samples)) in lines(samples).into_iter().enumerate() {
        let mut sizes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for sample in samples {
            if let Some(value) = result(sample.measured).filter(|v| v.is_finite() && *v > 0.0) {
                sizes
                    .entry(sample.measured.spec.msg_size)
                    .or_default()
                    .push(value);
            }
        }
        let points = sizes.into_iter().map(|(size, mut values)| {
            values.sort_by(f64::total_cmp);
            let (min, max) = (values[0], values[values.len() - 1]);
            let y = values[values.len() / 2];
            let runs = if values.len() > 1 {
                format!(
                    " (median of {}, {} to {})",
                    values.len(),
                    format(min),
                    format(max)
                )
            } else {
                String::new()
            };
            Point {
                x: size as f64,
                y,
                spread: (values.len() > 1).then_some((min, max)),
                tooltip: format!("{}: {}{runs}", units::size(size as f64), format(y)),
            }
        });
        let points: Vec<Point> = points.collect();
        if !points.is_empty() {
            all.push(Line {
                name: format!("{name}{suffix}"),
                points,
                color,
                dashed: !suffix.is_empty(),
            });
        }
    }
    all
}

/// Returns each sample with a unique name, for plots with one line per test run.
pub(super) fn per_run<'s, 'a>(samples: &'s [Sample<'a>]) -> Vec<(String, &'s Sample<'a>)> {
    let sizes: BTreeSet<u64> = samples.iter().map(|s| s.measured.spec.msg_size).collect();
    let mut all = Vec::new();
    for (name, samples) in lines(samples) {
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        for sample in samples {
            let size = sample.measured.spec.msg_size;
            let count = seen.entry(size).or_default();
            *count += 1;
            let size_suffix = if sizes.len() > 1 {
                format!(", {}", units::size(to_f64(size)))
            } else {
                String::new()
            };
            let repetition = if *count > 1 {
                format!(" ({count})")
            } else {
                String::new()
            };
            let name = format!("{name}{size_suffix}{repetition}");
            all.push((name, sample));
        }
    }
    all
}

/// Converts a size or a time in nanoseconds.
#[allow(clippy::cast_precision_loss)] // Sizes and times below 2^53.
pub(super) fn to_f64(value: u64) -> f64 {
    value as f64
}
