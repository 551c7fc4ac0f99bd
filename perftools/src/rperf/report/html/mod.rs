//! Records of one or more runs as one HTML page with plots, for people who look at it in a browser.
//!
//! The page is whole in itself: plots are inline SVG, no script, nothing is fetched (its own policy
//! forbids both). `series` says which records make a line, `scale` where a value stands, `chart`
//! and `bars` draw, `tables` lists. Whatever comes from a record goes through `escape`.

mod bars;
mod chart;
mod escape;
mod scale;
mod series;
mod shown;
mod tables;

use std::fmt::Write;

use chart::{Axis, Chart, Line, Point};
use escape::Escaped;
use scale::Scale;
use series::{Sample, by_size, each, samples, wide};

use crate::rperf::report::json::Document;
use crate::rperf::report::record::Measured;
use crate::rperf::stats::interval::Interval;

/// The records of one file.
#[derive(Clone, Debug)]
pub struct Run {
    /// What its lines are called.
    pub name: String,
    /// What is in it.
    pub document: Document,
}

const STYLE: &str = include_str!("page.css");

/// The page.
pub fn page(runs: &[Run]) -> String {
    let samples = samples(runs);
    let only = |pick: fn(&Measured) -> bool| -> Vec<Sample<'_>> {
        samples
            .iter()
            .filter(|s| pick(s.measured))
            .cloned()
            .collect()
    };
    let volume = only(Measured::is_of_bandwidth);
    let rates = only(|m| m.latency.is_none());
    let latencies = only(|m| m.latency.is_some());

    let mut out = head(runs);
    out += &bandwidth(&volume);
    out += &message_rate(&rates);
    out += &latency(&latencies);
    out += &percentiles(&latencies);
    out += &intervals(
        &only(|m| m.latency.is_none() && !m.intervals.is_empty()),
        true,
    );
    out += &intervals(
        &only(|m| m.latency.is_some() && !m.intervals.is_empty()),
        false,
    );
    out += &tables::remarks(runs);
    out += &tables::figures(runs);
    out += &tables::hosts(runs);
    out + "</body>\n</html>\n"
}

fn head(runs: &[Run]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>rperf report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>rperf report</h1>\n"
    );
    for run in runs {
        let tests = run.document.tests.len();
        let text = format!(
            "{}: {tests} {} by {}",
            run.name,
            if tests == 1 { "record" } else { "records" },
            run.document.program
        );
        // Writing to a string never fails.
        let _ = writeln!(out, "<p>{}</p>", Escaped(&text));
    }
    out
}

const SIZE: &str = "message size, bytes";

/// Lines against the size; bars where each would be a point.
fn against_size(
    title: &str,
    note: &'static str,
    y: &'static str,
    mut lines: Vec<Line>,
    show: fn(f64) -> String,
) -> String {
    let Some(first) = lines
        .iter()
        .flat_map(|line| &line.points)
        .next()
        .map(|p| p.x)
    else {
        return String::new();
    };
    if lines.iter().all(|line| line.points.len() == 1) {
        if lines
            .iter()
            .flat_map(|line| &line.points)
            .all(|p| p.x.total_cmp(&first).is_eq())
        {
            let title = format!("{title}, {} messages", shown::size(first));
            return bars::render(&title, note, &lines, show);
        }
        for line in &mut lines {
            line.name = format!("{}, {}", line.name, shown::size(line.points[0].x));
        }
        return bars::render(title, note, &lines, show);
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let sizes: Vec<f64> = points().map(|p| p.x).collect();
    let values: Vec<f64> = points()
        .flat_map(|p| p.spread.map_or([p.y, p.y], |s| [s.0, s.1]))
        .collect();
    Chart {
        title: format!("{title} against message size"),
        note,
        x: Axis {
            title: SIZE,
            scale: Scale::powers_of_two(&sizes),
            show: shown::size,
        },
        y: Axis {
            title: y,
            scale: Scale::fitting(&values),
            show,
        },
        lines,
        bands: Vec::new(),
    }
    .render()
}

fn bandwidth(samples: &[Sample<'_>]) -> String {
    let lines = by_size(samples, |m| m.summary.bandwidth, shown::bandwidth, "");
    let note = "Payload that arrived, by the receiver's clock (that was written or read, where nobody sees it arrive). More is better.";
    against_size(
        "Bandwidth",
        note,
        "bandwidth, bytes a second",
        lines,
        shown::bandwidth,
    )
}

fn message_rate(samples: &[Sample<'_>]) -> String {
    let lines = by_size(samples, |m| Some(m.summary.msg_rate), shown::rate, "");
    against_size(
        "Message rate",
        "Messages that arrived in a second. More is better.",
        "messages a second",
        lines,
        shown::rate,
    )
}

fn latency(samples: &[Sample<'_>]) -> String {
    let figure = |m: &Measured, pick: fn(&crate::common::histogram::Percentiles) -> u64| {
        m.latency.as_ref().map(|p| wide(pick(p)))
    };
    let mut lines = by_size(samples, |m| figure(m, |p| p.p50), shown::time, "");
    if lines.iter().any(|line| line.points.len() > 1) {
        lines.extend(by_size(
            samples,
            |m| figure(m, |p| p.p99),
            shown::time,
            ", p99",
        ));
    }
    let note = "The median; where there are several sizes, p99 dashed. One way, but there and back for reads and atomics. Less is better.";
    against_size("Latency", note, "latency", lines, shown::time)
}

/// Latency against how rare it is.
fn percentiles(samples: &[Sample<'_>]) -> String {
    let mut lines = Vec::new();
    for (colour, (name, sample)) in each(samples).into_iter().enumerate() {
        let Some(p) = &sample.measured.latency else {
            continue;
        };
        let most = wide(p.samples).max(1.0);
        // Beyond one in all, there is the longest only.
        let known = [
            (1.0, p.min),
            (2.0, p.p50),
            (10.0, p.p90),
            (100.0, p.p99),
            (1e3, p.p99_9),
            (1e4, p.p99_99),
        ];
        let known = known
            .into_iter()
            .filter(|(rareness, _)| *rareness < most)
            .chain([(most, p.max)]);
        let points = known.map(|(rareness, nanos)| {
            let at = if rareness < most {
                shown::percentile(rareness)
            } else {
                "max".to_owned()
            };
            Point {
                x: rareness,
                y: wide(nanos),
                spread: None,
                about: format!("{at}: {}", shown::time(wide(nanos))),
            }
        });
        lines.push(Line {
            name,
            points: points.collect(),
            colour,
            dashed: false,
        });
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let (x, y): (Vec<f64>, Vec<f64>) = points().map(|p| (p.x, p.y)).unzip();
    if x.is_empty() {
        return String::new();
    }
    Chart {
        title: "Latency by percentile".to_owned(),
        note: "How long the slowest of so many messages take; each line ends at its longest. Flat and low is better.",
        x: Axis {
            title: "share of messages that were at least as fast",
            scale: Scale::rareness(x.into_iter().fold(0.0, f64::max)),
            show: shown::percentile,
        },
        y: Axis { title: "latency", scale: Scale::fitting(&y), show: shown::time },
        lines,
        bands: Vec::new(),
    }
    .render()
}

/// Bandwidth, or latency, as the test went on.
fn intervals(samples: &[Sample<'_>], of_bandwidth: bool) -> String {
    let show = if of_bandwidth {
        shown::bandwidth
    } else {
        shown::time
    };
    let seconds = |nanos: u64| wide(nanos) / 1e9;
    let mut lines = Vec::new();
    let mut bands = Vec::new();
    for (colour, (name, sample)) in each(samples).into_iter().enumerate() {
        let mut add = |name: String, dashed: bool, figure: &dyn Fn(&Interval) -> Option<f64>| {
            let each = sample.measured.intervals.iter().filter_map(|interval| {
                let y = figure(interval)?;
                let (from, to) = (seconds(interval.from), seconds(interval.to));
                let about = format!(
                    "{} to {}: {}",
                    shown::seconds(from),
                    shown::seconds(to),
                    show(y)
                );
                Some(Point {
                    x: f64::midpoint(from, to),
                    y,
                    spread: None,
                    about,
                })
            });
            lines.push(Line {
                name,
                points: each.collect(),
                colour,
                dashed,
            });
        };
        if of_bandwidth {
            add(name.clone(), false, &|i| i.bandwidth);
        } else {
            add(name.clone(), false, &|i| i.latency_mean);
            add(format!("{name}, longest"), true, &|i| {
                i.latency_max.map(wide)
            });
        }
        bands.extend(
            sample
                .measured
                .dips
                .iter()
                .map(|d| (seconds(d.from), seconds(d.to), format!("{name}: {d}"))),
        );
    }
    lines.retain(|line| !line.points.is_empty());
    let points = || lines.iter().flat_map(|line| &line.points);
    let (x, y): (Vec<f64>, Vec<f64>) = points().map(|p| (p.x, p.y)).unzip();
    if x.is_empty() {
        return String::new();
    }
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let scale = if of_bandwidth {
        Scale::linear(most(&y))
    } else {
        Scale::fitting(&y)
    };
    let (title, y_title) = if of_bandwidth {
        ("Bandwidth over time", "bandwidth, bytes a second")
    } else {
        ("Latency over time", "latency")
    };
    Chart {
        title: title.to_owned(),
        note: "An interval a point, at its middle, as the client saw it. What is shaded was a dip or a stall.",
        x: Axis { title: "since the clock started, seconds", scale: Scale::linear(most(&x)), show: shown::seconds },
        y: Axis { title: y_title, scale, show },
        lines,
        bands,
    }
    .render()
}

#[cfg(test)]
mod tests;
