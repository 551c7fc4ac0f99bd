//! The tables and lists of the page: results, warnings and hosts.

use std::fmt::Write;

use super::escape::Escaped;
use super::{Run, units};
use crate::rperf::report::record::{Measured, Outcome, Record};

/// Returns the text of an unknown value.
fn unknown() -> String {
    "-".to_owned()
}

const COLUMNS: &[&str] = &[
    "run",
    "test",
    "size",
    "path",
    "QPs",
    "depth",
    "bandwidth",
    "messages",
    "p50",
    "p99",
    "p99.9",
    "max",
    "lost",
    "client CPU",
    "server CPU",
];

/// Returns the table of all results.
pub(super) fn results(runs: &[Run]) -> String {
    let mut out = String::from(
        "<section>\n<h2>All results</h2>\n<p>Latencies are half of a round trip, or a whole round trip for RDMA READ and atomics. CPU is the average number of processors that the process used.</p>\n<div class=\"wide\"><table>\n<thead><tr>",
    );
    for (n, column) in COLUMNS.iter().enumerate() {
        out += if n < TEXT_COLUMNS {
            "<th class=\"text\">"
        } else {
            "<th>"
        };
        out += column;
        out += "</th>";
    }
    out += "</tr></thead>\n<tbody>\n";
    for run in runs {
        for record in &run.document.tests {
            if let Outcome::Measured(m) = &record.outcome {
                row(&cells(run, record, m), &mut out);
            }
        }
    }
    out + "</tbody></table></div>\n</section>\n"
}

/// Number of text columns at the start of a row.
const TEXT_COLUMNS: usize = 2;
/// Index of the path, which is a text column too.
const PATH: usize = 3;

fn row(cells: &[String], out: &mut String) {
    *out += "<tr>";
    for (n, cell) in cells.iter().enumerate() {
        let class = if n < TEXT_COLUMNS || n == PATH {
            " class=\"text\""
        } else {
            ""
        };
        // Writing to a String cannot fail.
        let _ = write!(out, "<td{class}>{}</td>", Escaped(cell));
    }
    *out += "</tr>\n";
}

fn cells(run: &Run, record: &Record, m: &Measured) -> Vec<String> {
    let p = m.latency.as_ref();
    let time = |nanos: Option<u64>| {
        nanos.map_or_else(String::new, |n| units::time(super::series::to_f64(n)))
    };
    let cpus_used = |side: &crate::rperf::stats::SideStats| {
        let seconds = Some(side.seconds()).filter(|seconds| *seconds > 0.0);
        let used = side.cpu.process.zip(seconds);
        used.map_or_else(unknown, |(used, seconds)| format!("{:.2}", used / seconds))
    };
    vec![
        run.name.clone(),
        record.test.name().to_owned(),
        units::size(super::series::to_f64(m.spec.msg_size)),
        m.local.to_string(),
        if m.spec.threads > 1 {
            format!("{} × {}", m.spec.threads, m.spec.qps)
        } else {
            m.spec.qps.to_string()
        },
        m.depth.to_string(),
        m.summary
            .bandwidth
            .map_or_else(String::new, units::bandwidth),
        units::rate(m.summary.msg_rate),
        time(p.map(|p| p.p50)),
        time(p.map(|p| p.p99)),
        time(p.map(|p| p.p99_9)),
        time(p.map(|p| p.max)),
        (m.local_stats.lost.saturating_add(m.remote_stats.lost)).to_string(),
        cpus_used(&m.local_stats),
        cpus_used(&m.remote_stats),
    ]
}

/// Returns the list of failed tests, dips and warnings, or an empty string if there are none.
pub(super) fn warnings(runs: &[Run]) -> String {
    let mut lines: Vec<(String, usize)> = Vec::new();
    let mut add = |line: String| match lines.iter_mut().find(|other| other.0 == line) {
        Some(other) => other.1 += 1,
        None => lines.push((line, 1)),
    };
    for run in runs {
        for record in &run.document.tests {
            let test = format!("{}, {}", run.name, record.test.name());
            match &record.outcome {
                Outcome::Failed { error } => add(format!("{test} failed: {error}")),
                Outcome::Measured(m) => {
                    m.dips.iter().for_each(|dip| add(format!("{test}: {dip}")));
                    m.warnings
                        .iter()
                        .for_each(|warning| add(format!("{}: {}", run.name, warning.text)));
                }
                Outcome::Conf { .. } | Outcome::Quit => {}
            }
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section>\n<h2>Warnings</h2>\n<ul class=\"remarks\">\n");
    for (line, times) in lines {
        let times = if times > 1 {
            format!(" ({times} times)")
        } else {
            String::new()
        };
        let _ = writeln!(out, "<li>{}{times}</li>", Escaped(&line));
    }
    out + "</ul>\n</section>\n"
}

/// Returns the list of hosts, or an empty string if no run contains the test `conf`.
pub(super) fn hosts(runs: &[Run]) -> String {
    let mut out = String::new();
    for run in runs {
        for record in &run.document.tests {
            let Outcome::Conf { local, remote } = &record.outcome else {
                continue;
            };
            for (end, host) in [("client", local), ("server", remote)] {
                let text = format!(
                    "{}, {end}: {}, {}, {}, rperf {}",
                    run.name, host.node, host.cpu, host.os, host.rperf
                );
                let _ = writeln!(out, "<li>{}</li>", Escaped(&text));
            }
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("<section>\n<h2>Hosts</h2>\n<ul>\n{out}</ul>\n</section>\n")
    }
}
