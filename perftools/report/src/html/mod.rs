//! HTML output: the records of one or more runs as a page with plots.
//!
//! The page is self-contained: its plots are inline SVG. `maud` writes the HTML and `plotters` the
//! SVG; both escape all text from records.
//!
//! `shell` has the head and the style, also for the page of a mesh. `series` groups records into
//! lines and `scale` computes positions. `chart` and `bars` draw plots, and `tables` creates tables
//! and lists.

mod bars;
mod chart;
mod counters;
mod scale;
mod series;
mod shell;
mod tables;
mod units;

use std::collections::BTreeMap;

use chart::{Axis, Chart, Line, Point, figure};
use maud::{Markup, html};
use measure::stats::interval::Interval;
use scale::Scale;
use series::{Sample, by_size, per_run, samples, to_f64};

pub use shell::shell;

use crate::json::Records;
use crate::record::Measured;

/// Records of one file.
#[derive(Clone, Debug)]
pub struct NamedRun {
    /// Name of the run, which the page shows in the names of lines.
    pub name: String,
    /// Records of the run.
    pub records: Records,
}

/// Size of a plot that fills the page, in pixels.
const FULL: (u32, u32) = (820, 400);
/// Size of one of several small plots.
const SMALL: (u32, u32) = (460, 270);

/// Formats the page.
pub fn page(runs: &[NamedRun]) -> String {
    let samples = samples(runs);
    let select = |predicate: fn(&Measured) -> bool| -> Vec<Sample<'_>> {
        samples
            .iter()
            .filter(|s| predicate(s.measured))
            .cloned()
            .collect()
    };
    let latencies = select(|m| m.latency.is_some());
    let body = html! {
        @for run in runs {
            @let tests = run.records.tests.len();
            p { (run.name) ": " (tests) @if tests == 1 { " record" } @else { " records" } }
        }
        (tables::changes(runs))
        (bandwidth(&select(Measured::is_bandwidth_test)))
        (message_rate(&select(|m| m.latency.is_none())))
        (latency(&latencies))
        (percentiles(&latencies))
        (intervals(&select(|m| m.latency.is_none() && !m.intervals.is_empty()), true))
        (intervals(&select(|m| m.latency.is_some() && !m.intervals.is_empty()), false))
        (tables::warnings(runs))
        (counters::table(runs))
        (tables::results(runs))
        (tables::environments(runs))
    };
    shell("rperf report", "", &body.into_string())
}

const SIZE: &str = "message size, bytes";

/// Draws results against the message size. Draws bars if each line has only one point.
fn against_size(
    title: &str,
    note: &'static str,
    y: &'static str,
    mut lines: Vec<Line>,
    format: fn(f64) -> String,
) -> Markup {
    let Some(first) = lines
        .iter()
        .flat_map(|line| &line.points)
        .next()
        .map(|p| p.x)
    else {
        return html! {};
    };
    if lines.iter().all(|line| line.points.len() == 1) {
        if lines
            .iter()
            .flat_map(|line| &line.points)
            .all(|p| p.x.total_cmp(&first).is_eq())
        {
            let title = format!("{title}, {} messages", units::size(first));
            return bars::render(&title, note, &lines, format);
        }
        for line in &mut lines {
            line.name = format!("{}, {}", line.name, units::size(line.points[0].x));
        }
        return bars::render(title, note, &lines, format);
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let sizes: Vec<f64> = points().map(|p| p.x).collect();
    let values: Vec<f64> = points()
        .flat_map(|p| p.spread.map_or([p.y, p.y], |s| [s.0, s.1]))
        .collect();
    let title = format!("{title} against message size");
    let chart = Chart {
        title: title.clone(),
        x: Axis {
            title: SIZE,
            scale: Scale::powers_of_two(&sizes),
            format: units::size,
        },
        y: Axis {
            title: y,
            scale: Scale::fitting(&values),
            format,
        },
        lines,
        bands: Vec::new(),
    };
    figure(&title, note, &chart.lines, &chart.render(FULL))
}

fn bandwidth(samples: &[Sample<'_>]) -> Markup {
    let lines = by_size(samples, |m| m.summary.bandwidth, units::bandwidth, "");
    let note = "Payload per second, timed by the receiver; for RDMA WRITE and READ, timed by the requester. Higher is better.";
    against_size(
        "Bandwidth",
        note,
        "bandwidth, bytes per second",
        lines,
        units::bandwidth,
    )
}

fn message_rate(samples: &[Sample<'_>]) -> Markup {
    let lines = by_size(samples, |m| Some(m.summary.msg_rate), units::rate, "");
    against_size(
        "Message rate",
        "Received messages per second. Higher is better.",
        "messages per second",
        lines,
        units::rate,
    )
}

fn latency(samples: &[Sample<'_>]) -> Markup {
    let percentile = |m: &Measured, field: fn(&base::histogram::Percentiles) -> u64| {
        m.latency.as_ref().map(|p| to_f64(field(p)))
    };
    let mut lines = by_size(samples, |m| percentile(m, |p| p.p50), units::time, "");
    if lines.iter().any(|line| line.points.len() > 1) {
        lines.extend(by_size(
            samples,
            |m| percentile(m, |p| p.p99),
            units::time,
            ", p99",
        ));
    }
    let note = "Median and, if there are several sizes, 99th percentile (dashed). The values are half of a round trip, or a whole round trip for RDMA READ and atomics. Lower is better.";
    against_size("Latency", note, "latency", lines, units::time)
}

/// Draws latency against percentile: a small plot for each message size, all with the same axes.
fn percentiles(samples: &[Sample<'_>]) -> Markup {
    let mut names = Vec::new();
    let mut plots: BTreeMap<u64, Vec<Line>> = BTreeMap::new();
    for (color, (name, members)) in series::lines(samples).into_iter().enumerate() {
        for sample in members {
            let lines = plots.entry(sample.measured.spec.msg_size).or_default();
            lines.extend(percentile_line(&name, color, sample.measured));
        }
        names.push(name);
    }
    let points = || plots.values().flatten().flat_map(|line| &line.points);
    let (x, y): (Vec<f64>, Vec<f64>) = points().map(|p| (p.x, p.y)).unzip();
    if x.is_empty() {
        return html! {};
    }
    let axes = (
        Axis {
            title: "share of messages with at most this latency",
            scale: Scale::percentiles(x.into_iter().fold(0.0, f64::max)),
            format: units::percentile,
        },
        Axis {
            title: "latency",
            scale: Scale::fitting(&y),
            format: units::time,
        },
    );
    let legend: Vec<Line> = names
        .iter()
        .enumerate()
        .map(|(color, name)| Line {
            name: name.clone(),
            points: Vec::new(),
            color,
            dashed: false,
        })
        .collect();
    let drawings = html! {
        div.multiples {
            @for (size, lines) in plots {
                @let title = format!("{} messages", units::size(to_f64(size)));
                div {
                    h3 { (title) }
                    ({
                        let (x, y) = axes.clone();
                        Chart { title: format!("Latency by percentile, {title}"), x, y, lines, bands: Vec::new() }
                            .render(SMALL)
                    })
                }
            }
        }
    };
    let note = "Latency that a given share of the messages does not exceed, for each message size. Each line ends at its maximum. Lower and flatter is better.";
    figure("Latency by percentile", note, &legend, &drawings)
}

/// Returns the percentiles of a test as a line.
fn percentile_line(name: &str, color: usize, measured: &Measured) -> Option<Line> {
    let p = measured.latency.as_ref()?;
    let max = to_f64(p.samples).max(1.0);
    // With fewer than `one_in` samples, a percentile equals the maximum.
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
        .filter(|(one_in, _)| *one_in < max)
        .chain([(max, p.max)]);
    let points = known.map(|(one_in, nanos)| {
        let label = if one_in < max {
            units::percentile(one_in)
        } else {
            "max".to_owned()
        };
        Point {
            x: one_in,
            y: to_f64(nanos),
            spread: None,
            tooltip: format!("{label}: {}", units::time(to_f64(nanos))),
        }
    });
    Some(Line {
        name: name.to_owned(),
        points: points.collect(),
        color,
        dashed: false,
    })
}

/// Draws bandwidth or latency over time.
fn intervals(samples: &[Sample<'_>], is_bandwidth: bool) -> Markup {
    let format = if is_bandwidth {
        units::bandwidth
    } else {
        units::time
    };
    let seconds = |nanos: u64| to_f64(nanos) / 1e9;
    let mut lines = Vec::new();
    let mut bands = Vec::new();
    for (color, (name, sample)) in per_run(samples).into_iter().enumerate() {
        let mut add = |name: String, dashed: bool, result: &dyn Fn(&Interval) -> Option<f64>| {
            let points = sample.measured.intervals.iter().filter_map(|interval| {
                let y = result(interval)?;
                let (from, to) = (seconds(interval.from), seconds(interval.to));
                let tooltip = format!(
                    "{} to {}: {}",
                    units::seconds(from),
                    units::seconds(to),
                    format(y)
                );
                Some(Point {
                    x: f64::midpoint(from, to),
                    y,
                    spread: None,
                    tooltip,
                })
            });
            lines.push(Line {
                name,
                points: points.collect(),
                color,
                dashed,
            });
        };
        if is_bandwidth {
            add(name.clone(), false, &|i| i.bandwidth);
            add(format!("{name}, to server"), true, &|i| i.to_server);
            add(format!("{name}, to client"), true, &|i| i.to_client);
        } else {
            add(name.clone(), false, &|i| i.latency_mean);
            add(format!("{name}, max"), true, &|i| i.latency_max.map(to_f64));
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
        return html! {};
    }
    let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let scale = if is_bandwidth {
        Scale::linear(max(&y))
    } else {
        Scale::fitting(&y)
    };
    let (title, y_title) = if is_bandwidth {
        ("Bandwidth over time", "bandwidth, bytes per second")
    } else {
        ("Latency over time", "latency")
    };
    let chart = Chart {
        title: title.to_owned(),
        x: Axis {
            title: "time since the start of the measurement, seconds",
            scale: Scale::linear(max(&x)),
            format: units::seconds,
        },
        y: Axis {
            title: y_title,
            scale,
            format,
        },
        lines,
        bands,
    };
    let note = "One point at the middle of each interval, measured by the client. Shaded areas are dips and stalls.";
    figure(title, note, &chart.lines, &chart.render(FULL))
}

#[cfg(test)]
mod tests;
