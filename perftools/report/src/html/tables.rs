//! The tables and lists of the page: changes, results, warnings, environments and hosts.

use maud::{Markup, html};
use measure::stats::SideStats;

use super::{NamedRun, units};
use crate::compare::{self, ChangeVerdict};
use crate::environment;
use crate::record::{Measured, Outcome, Record};
use crate::warning::is_cause;

/// Name of a column, and whether it has texts.
const COLUMNS: &[(&str, bool)] = &[
    ("run", true),
    ("test", true),
    ("size", false),
    ("parameters", true),
    ("device", true),
    ("QPs", false),
    ("depth", false),
    ("bandwidth", false),
    ("to server", false),
    ("to client", false),
    ("messages", false),
    ("p50", false),
    ("p99", false),
    ("p99.9", false),
    ("max", false),
    ("lost", false),
    ("client CPU", false),
    ("server CPU", false),
];

/// Returns the table of the changes from the first run to the last; nothing if there is one run.
pub(super) fn changes(runs: &[NamedRun]) -> Markup {
    let [old, .., new] = runs else {
        return html! {};
    };
    let comparison = compare::compare(&old.records, &new.records, None);
    html! {
        section {
            h2 { "Changes from " (old.name) " to " (new.name) }
            @if !comparison.rows.is_empty() {
                p { "Means of all runs of a test, with the 95 % confidence interval of the change. Changes up to 5 % count as equal."
                    @if let Some(correction) = comparison.correction() { " Of several, " (correction) "." }
                }
                div.wide { table {
                    thead { tr {
                        th.text { "test" } th.text { "figure" } th { "old" } th { "new" } th { "change" } th.text { "verdict" }
                    } }
                    tbody { @for row in &comparison.rows { tr {
                        td.text {
                            (row.test)
                            @if !row.differences.is_empty() { " (" (row.differences.join(", ")) ")" }
                            @for cause in &row.causes { br; "cause: " (cause) }
                        }
                        td.text { (row.metric.name()) }
                        td { (row.metric.format(row.means.0)) }
                        td { (row.metric.format(row.means.1)) }
                        td {
                            (format!("{:+.1} %", row.change * 100.0))
                            @if let Some(interval) = row.interval { (format!(" ± {:.1} %", interval * 100.0)) }
                        }
                        td.text.worse[row.verdict == ChangeVerdict::Worse] { (row.verdict_text()) }
                    } } }
                } }
            }
            @if !comparison.incomparable.is_empty() {
                p { "Not compared, because a parameter differs:" }
                ul { @for test in &comparison.incomparable { li { (test) } } }
            }
        }
    }
}

/// Returns the table of all results: a row per test, and one per device in tests over several.
/// Columns without a value are omitted.
pub(super) fn results(runs: &[NamedRun]) -> Markup {
    let mut rows = Vec::new();
    for run in runs {
        for record in &run.records.tests {
            if let Outcome::Measured(m) = &record.outcome {
                let whole = if m.spec.test.is_latency() {
                    "worst"
                } else {
                    "sum"
                };
                let whole = if m.devices.is_empty() { "" } else { whole };
                rows.push(cells(run, record, m, whole));
                let devices = m.devices.iter();
                rows.extend(devices.map(|d| cells(run, record, &d.measured, &d.device)));
            }
        }
    }
    let is_used = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
    let used: Vec<usize> = (0..COLUMNS.len()).filter(is_used).collect();
    html! {
        section {
            h2 { "All results" }
            p { "Latencies are half of a round trip, or a whole round trip for RDMA READ and atomics. CPU is the average number of processors that the process used." }
            div.wide { table {
                thead { tr { @for column in &used { th.text[COLUMNS[*column].1] { (COLUMNS[*column].0) } } } }
                tbody {
                    @for row in &rows {
                        tr { @for column in &used { td.text[COLUMNS[*column].1] { (row[*column]) } } }
                    }
                }
            } }
        }
    }
}

fn cells(run: &NamedRun, record: &Record, m: &Measured, device: &str) -> Vec<String> {
    let p = m.latency.as_ref();
    let time = |nanos: Option<u64>| {
        nanos.map_or_else(String::new, |n| units::time(super::series::to_f64(n)))
    };
    let cpus_used = |side: &SideStats| {
        let seconds = Some(side.seconds()).filter(|seconds| *seconds > 0.0);
        let used = side.cpu.process.zip(seconds);
        used.map_or_else(
            || "-".to_owned(),
            |(used, seconds)| format!("{:.2}", used / seconds),
        )
    };
    let mut parameters: Vec<String> = record
        .parameters
        .iter()
        .filter(|p| !["msg-size", "qps", "depth"].contains(&p.name.as_str()))
        .map(|p| format!("{} {}", p.name, p.value))
        .collect();
    if m.partial {
        parameters.push("interrupted".to_owned());
    }
    let direction = |name: &str| {
        let bandwidth = m.directions().find(|direction| direction.0 == name);
        bandwidth.map_or_else(String::new, |(_, bandwidth)| units::bandwidth(bandwidth))
    };
    let lost = m.local_stats.lost.saturating_add(m.remote_stats.lost);
    vec![
        run.name.clone(),
        record.test.name().to_owned(),
        units::size(super::series::to_f64(m.spec.msg_size)),
        parameters.join(", "),
        device.to_owned(),
        if m.spec.threads > 1 {
            format!("{} × {}", m.spec.threads, m.spec.qps)
        } else {
            m.spec.qps.to_string()
        },
        m.depth.to_string(),
        m.summary
            .bandwidth
            .map_or_else(String::new, units::bandwidth),
        direction("to_server"),
        direction("to_client"),
        units::rate(m.summary.msg_rate),
        time(p.map(|p| p.p50)),
        time(p.map(|p| p.p99)),
        time(p.map(|p| p.p99_9)),
        time(p.map(|p| p.max)),
        if m.spec.test.may_lose() || lost > 0 {
            lost.to_string()
        } else {
            String::new()
        },
        cpus_used(&m.local_stats),
        cpus_used(&m.remote_stats),
    ]
}

/// Returns the list of failed tests, dips and warnings; nothing if there are none.
pub(super) fn warnings(runs: &[NamedRun]) -> Markup {
    let mut lines: Vec<(String, usize)> = Vec::new();
    let mut add = |line: String| match lines.iter_mut().find(|other| other.0 == line) {
        Some(other) => other.1 += 1,
        None => lines.push((line, 1)),
    };
    for run in runs {
        for record in &run.records.tests {
            let test = format!("{}, {}", run.name, record.test.name());
            match &record.outcome {
                Outcome::Failed { error } => add(format!("{test} failed: {error}")),
                Outcome::Measured(m) => {
                    m.exceeded
                        .iter()
                        .for_each(|limit| add(format!("{test}: {limit}")));
                    m.dips.iter().for_each(|dip| add(format!("{test}: {dip}")));
                    for warning in &m.warnings {
                        // A cause has the figures of one test.
                        let about = if is_cause(warning) { &test } else { &run.name };
                        add(format!("{about}: {warning}"));
                    }
                }
                Outcome::Conf { .. } | Outcome::Quit => {}
            }
        }
    }
    html! {
        @if !lines.is_empty() {
            section {
                h2 { "Warnings" }
                ul.remarks {
                    @for (line, times) in &lines {
                        li { (line) @if *times > 1 { " (" (times) " times)" } }
                    }
                }
            }
        }
    }
}

/// Returns the table of the environments of all runs, and the hosts of the tests `conf`.
pub(super) fn environments(runs: &[NamedRun]) -> Markup {
    let all: Vec<_> = runs
        .iter()
        .map(|run| environment::of_records(&run.records))
        .collect();
    let names = all.first().map_or(0, Vec::len);
    let is_known = |row: &usize| all.iter().any(|run| run[*row].1 != "-");
    let mut hosts = Vec::new();
    for run in runs {
        for record in &run.records.tests {
            let Outcome::Conf { local, remote } = &record.outcome else {
                continue;
            };
            for (end, host) in [("client", local), ("server", remote)] {
                hosts.push(format!(
                    "{}, {end}: {}, {}, {}, rperf {}",
                    run.name, host.node, host.cpu, host.os, host.rperf
                ));
            }
        }
    }
    html! {
        section {
            h2 { "Environment" }
            div.wide { table.environment {
                thead { tr { th.text {} @for run in runs { th.text { (run.name) } } } }
                tbody { @for row in (0..names).filter(is_known) { tr {
                    th.text { (all[0][row].0) }
                    @for run in &all { td.text { (run[row].1) } }
                } } }
            } }
            @if !hosts.is_empty() { ul { @for host in &hosts { li { (host) } } } }
        }
    }
}
