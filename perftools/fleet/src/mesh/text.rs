//! Text output of a mesh: a matrix per test, sums and outliers.

use std::fmt::Write;

use base::units::Style;

use super::cell::Cell;
use super::matrix::{Matrix, value};
use super::outlier::{CellState, SlowLimit};
use super::record::{Group, MeshRecord};
use super::schedule::Pair;

/// Number of endpoints up to which all cells are printed.
const MAX_MATRIX: u32 = 40;
/// Width of the names of endpoints.
const MAX_NAME: usize = 24;

/// Units of the figures in a matrix, with their sizes, in ascending order.
const BANDWIDTHS: [(f64, &str); 3] = [(1e3, "KB/sec"), (1e6, "MB/sec"), (1e9, "GB/sec")];
const LATENCIES: [(f64, &str); 3] = [(1.0, "ns"), (1e3, "us"), (1e6, "ms")];

/// Formats the matrix of a test. Slow cells have a `*`, failed ones are `FAIL`, and cells that are
/// not measured yet are `.`. Cells that exceed a limit of the user have a `!`, and cells that were
/// slow or failed only when they were measured again have a `?`.
pub fn matrix(record: &MeshRecord, test: u16) -> String {
    let matrix = Matrix::new(&record.cells, test);
    let limit = SlowLimit::new(&matrix, &record.limits);
    let range = matrix.range();
    let high = range.map_or(0.0, |(_, high)| high);
    let units = if matrix.is_bandwidth() {
        BANDWIDTHS
    } else {
        LATENCIES
    };
    let (scale, unit) = units
        .into_iter()
        .rev()
        .find(|(size, _)| high >= *size)
        .unwrap_or(units[0]);
    let label = &record.tests[usize::from(test)].label;
    let digits = |value: f64| {
        let value = value / scale;
        let decimals = match value {
            v if v >= 100.0 => 0,
            v if v >= 10.0 => 1,
            v if v >= 0.1 || v == 0.0 => 2,
            _ => 4,
        };
        format!("{value:.decimals$}")
    };
    let heading = range.map_or_else(
        || format!("{label}: no results"),
        |(low, high)| format!("{label}, {unit}: {} to {}", digits(low), digits(high)),
    );
    let mut out = format!("{heading}, rows are clients, columns are servers\n");
    let n = matrix.endpoints();
    if n > MAX_MATRIX {
        return out + &rows(record, &matrix, limit, &digits);
    }
    let width = record.endpoints.iter().map(|e| e.name.len()).max();
    let width = width.unwrap_or(0).min(MAX_NAME);
    // Writing to a string never fails.
    let _ = write!(out, "{:width$}    ", "");
    for to in 0..n {
        let _ = write!(out, " {to:>7}");
    }
    out.push('\n');
    for from in 0..n {
        let name: String = record.endpoints[from as usize]
            .name
            .chars()
            .take(MAX_NAME)
            .collect();
        let _ = write!(out, "{name:width$} {from:>3}");
        for to in 0..n {
            let cell = matrix.cell(Pair::new(from, to));
            let text = match (cell, limit) {
                (None, _) if from == to => "-".to_owned(),
                (None, _) => ".".to_owned(),
                (Some(cell), limit) if is_suspicious(record, cell, limit) => {
                    format!("{}?", value(cell).map_or_else(String::new, &digits))
                }
                (Some(cell), limit) => match (value(cell), limit.map(|l| l.state(&cell.figure))) {
                    (Some(value), _) if !cell.exceeded().is_empty() => {
                        format!("{}!", digits(value))
                    }
                    (Some(value), Some(CellState::Slow)) => format!("{}*", digits(value)),
                    (Some(value), _) => digits(value),
                    (None, _) => "FAIL".to_owned(),
                },
            };
            let _ = write!(out, " {text:>7}");
        }
        out.push('\n');
    }
    for (mark, meaning) in [
        ('*', "slow"),
        ('?', "slow or failed when measured again"),
        ('!', "exceeds a limit"),
    ] {
        if out.contains(mark) {
            let _ = writeln!(out, "{mark} {meaning}");
        }
    }
    out
}

/// Returns `true` if a cell was good, but not when it was measured again.
pub(super) fn is_suspicious(record: &MeshRecord, cell: &Cell, limit: Option<SlowLimit>) -> bool {
    let name = |id: u32| &record.endpoints[id as usize].name;
    let pair = [name(cell.pair.from), name(cell.pair.to)];
    let label = &record.tests[usize::from(cell.test)].label;
    let outliers = record.outliers.iter().filter(|o| o.test == *label);
    let mut retests = outliers.flat_map(|outlier| &outlier.retests);
    limit.is_some_and(|limit| limit.state(&cell.figure) == CellState::Good)
        && retests.any(|r| [&r.from, &r.to] == pair && r.state != CellState::Good)
}

/// Formats one line for each of the endpoints with the most slow or failed cells.
fn rows(
    record: &MeshRecord,
    matrix: &Matrix<'_>,
    limit: Option<SlowLimit>,
    digits: &dyn Fn(f64) -> String,
) -> String {
    let n = matrix.endpoints();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for from in 0..n {
        let cells = || (0..n).filter_map(|to| matrix.cell(Pair::new(from, to)));
        let mut values: Vec<f64> = cells().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        let is_bad = |c: &&Cell| limit.is_none_or(|l| l.state(&c.figure) != CellState::Good);
        let bad = cells().filter(is_bad).count();
        let at = |index: usize| {
            values
                .get(index)
                .map_or_else(|| "-".to_owned(), |v| digits(*v))
        };
        let line = format!(
            "{:MAX_NAME$} {:>8} {:>8} {:>8} {:>7} of {}\n",
            record.endpoints[from as usize].name,
            at(0),
            at(values.len() / 2),
            at(values.len().saturating_sub(1)),
            bad,
            cells().count(),
        );
        lines.push((bad, line));
    }
    lines.sort_by_key(|(bad, _)| std::cmp::Reverse(*bad));
    let head = format!(
        "{:MAX_NAME$} {:>8} {:>8} {:>8} {:>7}\n",
        "client", "min", "median", "max", "slow"
    );
    let lines = lines.into_iter().take(MAX_MATRIX as usize).map(|l| l.1);
    std::iter::once(head).chain(lines).collect()
}

fn group(group: &Group) -> String {
    let style = Style::default();
    let shared = group
        .shared
        .as_ref()
        .map_or_else(String::new, |name| format!(" with {name}"));
    let mut text = format!(
        "{} round {}{shared}: {} tests",
        group.test, group.round, group.completed
    );
    let mut add = |part: String| text += &part;
    if group.failed > 0 {
        add(format!(", {} failed", group.failed));
    }
    if let Some(sum) = group.sum {
        add(format!(", sum {}", style.bandwidth(sum)));
    }
    if let Some(fairness) = group.fairness {
        add(format!(", fairness {fairness:.3}"));
    }
    text + "\n"
}

/// Formats one line for each of the first results that exceed a limit, and the number of others.
fn limits(record: &MeshRecord) -> String {
    let mut lines = Vec::new();
    for (test, _) in (0..).zip(&record.tests) {
        let matrix = Matrix::new(&record.cells, test);
        lines.extend(matrix.exceeded().map(|cell| exceeded(record, cell) + "\n"));
    }
    let others = lines.len().saturating_sub(MAX_MATRIX as usize);
    lines.truncate(MAX_MATRIX as usize);
    if others > 0 {
        lines.push(format!("{others} other results exceed a limit\n"));
    }
    lines.concat()
}

/// Formats the limits that the result of a cell exceeds.
pub fn exceeded(record: &MeshRecord, cell: &Cell) -> String {
    let name = |id: u32| &record.endpoints[id as usize].name;
    format!(
        "{} → {}: {}: {}",
        name(cell.pair.from),
        name(cell.pair.to),
        record.tests[usize::from(cell.test)].label,
        cell.exceeded().join("; ")
    )
}

/// Formats the results of a mesh.
pub fn render(record: &MeshRecord) -> String {
    let mut out = String::new();
    for (test, _) in (0..).zip(&record.tests) {
        out += &matrix(record, test);
        out.push('\n');
    }
    let groups = record.groups.iter().take(MAX_MATRIX as usize);
    groups.for_each(|g| out += &group(g));
    out += &limits(record);
    if record.outliers.is_empty() {
        out += "no outliers\n";
    }
    for outlier in &record.outliers {
        let _ = writeln!(out, "{}; help: {}", outlier.text, outlier.help);
    }
    out
}
