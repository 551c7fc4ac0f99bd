//! HTML output of a mesh: heat maps whose cells open percentiles and counters.
//!
//! The page is self-contained and has no scripts. A cell is a link to its details, which the style
//! `:target` shows. A large mesh has a map of blocks, each colored by its worst cell, and the
//! details of the worst cells of each endpoint.

use std::fmt::{self, Write};

use base::units::Style;
use maud::Escaper;
use report::html::shell;

use super::cell::{Cell, CellFigure};
use super::matrix::{Matrix, value};
use super::outlier::{CellState, SlowLimit};
use super::record::MeshRecord;
use super::schedule::Pair;
use super::text::is_suspicious;

/// Number of endpoints up to which each cell has details.
const MAX_CELLS: u32 = 64;
/// Largest number of blocks in a row of a large map.
const MAX_BLOCKS: u32 = 250;
/// Number of cells of each endpoint that have details in a large mesh.
const WORST: usize = 5;
/// Number of colors from the slowest to the fastest cell.
const COLORS: u32 = 10;

/// Text that is displayed with escapes for element content and quoted attributes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        Escaper::new(&mut text).write_str(self.0)?;
        f.write_str(&text)
    }
}

/// Style of the maps, besides the one of all pages.
const STYLE: &str = include_str!("page.css");

/// Formats the page.
pub fn page(record: &MeshRecord) -> String {
    let mut out = format!(
        "<p>{} endpoints, {} cells, by {}</p>\n",
        record.endpoints.len(),
        record.cells.list.len(),
        Escaped(&record.program),
    );
    out += &outliers(record);
    out += &groups(record);
    for (test, _) in (0..).zip(&record.tests) {
        out += &Map::new(record, test).render();
    }
    shell("rperf mesh", STYLE, &out)
}

fn outliers(record: &MeshRecord) -> String {
    let mut out = "<h2>Outliers</h2>\n".to_owned();
    if record.outliers.is_empty() {
        return out + "<p>No host, port or link is slow.</p>\n";
    }
    out += "<ul>\n";
    for outlier in &record.outliers {
        // Writing to a string never fails.
        let _ = writeln!(
            out,
            "<li><strong>{}</strong><br>{}</li>",
            Escaped(&outlier.text),
            Escaped(&outlier.help)
        );
    }
    out + "</ul>\n"
}

fn groups(record: &MeshRecord) -> String {
    if record.groups.is_empty() {
        return String::new();
    }
    let style = Style::default();
    let mut out = "<h2>Tests with a common start</h2>\n<table>\n<tr><th>test<th>round<th>shared port<th>completed<th>failed<th>sum<th>fairness</tr>\n".to_owned();
    for g in &record.groups {
        let sum = g
            .sum
            .map_or_else(String::new, |v| style.bandwidth(v).to_string());
        let fairness = g.fairness.map_or_else(String::new, |v| format!("{v:.3}"));
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{sum}<td>{fairness}</tr>",
            Escaped(&g.test),
            g.round,
            Escaped(g.shared.as_deref().unwrap_or_default()),
            g.completed,
            g.failed,
        );
    }
    out + "</table>\n"
}

/// The heat map of one test.
struct Map<'a> {
    record: &'a MeshRecord,
    matrix: Matrix<'a>,
    test: u16,
    range: (f64, f64),
    limit: Option<SlowLimit>,
}

impl<'a> Map<'a> {
    fn new(record: &'a MeshRecord, test: u16) -> Self {
        let matrix = Matrix::new(&record.cells, test);
        Self {
            record,
            test,
            range: matrix.range().unwrap_or_default(),
            limit: SlowLimit::new(&matrix, &record.limits),
            matrix,
        }
    }

    fn name(&self, endpoint: u32) -> Escaped<'_> {
        Escaped(&self.record.endpoints[endpoint as usize].name)
    }

    /// Returns the speed of a cell, from 0 for a failed one to 1 for the fastest.
    fn speed(&self, cell: &Cell) -> f64 {
        match (value(cell), self.matrix.is_bandwidth()) {
            (None, _) => 0.0,
            (Some(value), true) => value / self.range.1,
            (Some(value), false) => self.range.0 / value,
        }
    }

    /// Returns the class of the color of a speed.
    fn color(speed: f64) -> u32 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // From 0 to COLORS.
        let color = (speed * f64::from(COLORS)) as u32;
        color.min(COLORS - 1)
    }

    fn render(&self) -> String {
        let label = &self.record.tests[usize::from(self.test)].label;
        let mut out = format!("<h2>{}</h2>\n", Escaped(label));
        let figure = |value: f64| figure(self.matrix.is_bandwidth(), value);
        let _ = writeln!(
            out,
            "<p>{} to {}. Rows are clients, columns are servers.</p>",
            figure(self.range.0),
            figure(self.range.1)
        );
        legend(&mut out);
        if self.matrix.endpoints() <= MAX_CELLS {
            self.cells(&mut out);
        } else {
            self.blocks(&mut out);
        }
        out
    }

    /// Writes a table with a link per cell, and the details of all cells.
    fn cells(&self, out: &mut String) {
        let n = self.matrix.endpoints();
        out.push_str("<p>Select a cell for its details.</p>\n<table class=\"map\">\n<tr><td>");
        for to in 0..n {
            let _ = write!(out, "<th title=\"{}\">{to}", self.name(to));
        }
        out.push_str("</tr>\n");
        let mut details = String::new();
        for from in 0..n {
            let _ = write!(out, "<tr><th class=\"name\">{} {from}", self.name(from));
            for to in 0..n {
                match self.matrix.cell(Pair::new(from, to)) {
                    None => out.push_str("<td>"),
                    Some(cell) => {
                        self.link(out, cell);
                        self.details(&mut details, cell);
                    }
                }
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
        out.push_str(&details);
    }

    fn link(&self, out: &mut String, cell: &Cell) {
        let Pair { from, to } = cell.pair;
        let color = Self::color(self.speed(cell));
        let (class, text) = match self.limit.map(|l| l.state(&cell.figure)) {
            Some(CellState::Good | CellState::Slow) if !cell.exceeded().is_empty() => {
                (format!("c{color}"), "!")
            }
            Some(CellState::Good) if is_suspicious(self.record, cell, self.limit) => {
                (format!("c{color}"), "?")
            }
            Some(CellState::Good) => (format!("c{color}"), "\u{a0}"),
            Some(CellState::Slow) => (format!("c{color}"), "▼"),
            Some(CellState::Failed) | None => ("f".to_owned(), "✕"),
        };
        let _ = write!(
            out,
            "<td class=\"{class}\"><a href=\"#d{}-{from}-{to}\" title=\"{} → {}: {}\">{text}</a>",
            self.test,
            self.name(from),
            self.name(to),
            value(cell).map_or_else(
                || "failed".to_owned(),
                |value| figure(self.matrix.is_bandwidth(), value)
            )
        );
    }

    /// Writes the figure, the percentiles and the counters of a cell.
    fn details(&self, out: &mut String, cell: &Cell) {
        let Pair { from, to } = cell.pair;
        let _ = write!(
            out,
            "<dl class=\"detail\" id=\"d{}-{from}-{to}\"><dt>{} → {}",
            self.test,
            self.name(from),
            self.name(to)
        );
        match &cell.figure {
            CellFigure::Failed(error) => {
                let _ = write!(out, "<dd>failed: {}", Escaped(error));
            }
            CellFigure::Bandwidth(value) | CellFigure::Latency(value) => {
                let figure = figure(self.matrix.is_bandwidth(), *value);
                let _ = write!(
                    out,
                    "<dd>{figure}, {:.0} % of the best",
                    self.speed(cell) * 100.0
                );
            }
        }
        for text in cell.exceeded() {
            let _ = write!(out, "<dd class=\"x\">{}", Escaped(text));
        }
        let Some(detail) = &cell.detail else {
            out.push_str("</dl>\n");
            return;
        };
        if let Some((to_server, to_client)) = detail.directions {
            let [to_server, to_client] = [to_server, to_client].map(|bw| figure(true, bw));
            let _ = write!(out, "<dd>to server {to_server}, to client {to_client}");
        }
        if let Some(p) = &detail.percentiles {
            let style = Style::default();
            #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
            let time = |nanos: u64| style.time(nanos as f64);
            let _ = write!(
                out,
                "<dd>min {}, p50 {}, p90 {}, p99 {}, p99.9 {}, max {} of {} samples",
                time(p.min),
                time(p.p50),
                time(p.p90),
                time(p.p99),
                time(p.p99_9),
                time(p.max),
                p.samples
            );
        }
        if let Some(c) = &detail.counters {
            let _ = write!(
                out,
                "<dd>sent {}, received {}, lost {}",
                c.sent, c.received, c.lost,
            );
            if let Some(nanos) = c.stalled {
                let _ = write!(out, ", longest stall {} ms", nanos / 1_000_000);
            }
            if let (Some(from), Some(to)) = (c.from_cpu, c.to_cpu) {
                let _ = write!(out, ", CPU {from:.3} s and {to:.3} s");
            }
        }
        for (end, counters) in detail
            .port_counters
            .iter()
            .flat_map(|c| [("client", &c.from), ("server", &c.to)])
        {
            let list: Vec<String> = counters
                .iter()
                .map(|(name, by)| format!("{name} {by}"))
                .collect();
            if !list.is_empty() {
                let _ = write!(
                    out,
                    "<dd>counters of the {end}: {}",
                    Escaped(&list.join(", "))
                );
            }
        }
        for warning in &detail.warnings {
            let _ = write!(out, "<dd>{}", Escaped(warning));
        }
        out.push_str("</dl>\n");
    }

    /// Writes a picture with a square per block of cells, and the worst cells of each endpoint.
    fn blocks(&self, out: &mut String) {
        let n = self.matrix.endpoints();
        let side = n.div_ceil(MAX_BLOCKS);
        let blocks = n.div_ceil(side);
        let mut paths = vec![String::new(); COLORS as usize + 1];
        for row in 0..blocks {
            let colors: Vec<usize> = (0..blocks)
                .map(|column| self.block(row, column, side))
                .collect();
            let mut begin = 0;
            for run in colors.chunk_by(|a, b| a == b) {
                let _ = write!(paths[run[0]], "M{begin} {row}h{}v1h-{0}z", run.len());
                begin += run.len();
            }
        }
        let size = blocks * 4;
        let squares = match side {
            1 => "a cell".to_owned(),
            _ => format!("the worst of {side} × {side} cells"),
        };
        let _ = write!(
            out,
            "<p>Each square is {squares}. The list of endpoints below has their worst cells.</p>\n<svg class=\"map\" viewBox=\"0 0 {blocks} {blocks}\" width=\"{size}\" height=\"{size}\" role=\"img\" aria-label=\"heat map\">\n"
        );
        for (color, path) in paths
            .iter()
            .enumerate()
            .filter(|(_, path)| !path.is_empty())
        {
            let class = if color == COLORS as usize {
                "n".to_owned()
            } else {
                format!("c{color}")
            };
            let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
        }
        out.push_str("</svg>\n");
        for from in 0..n {
            self.worst_of(out, from);
        }
    }

    /// Returns the color of the worst cell of a block; `COLORS` if it has no cell.
    fn block(&self, row: u32, column: u32, side: u32) -> usize {
        let ids = |block: u32| block * side..((block + 1) * side).min(self.matrix.endpoints());
        let cells = ids(row).flat_map(|from| ids(column).map(move |to| Pair::new(from, to)));
        let speeds = cells
            .filter_map(|pair| self.matrix.cell(pair))
            .map(|cell| self.speed(cell));
        let color = speeds.min_by(f64::total_cmp).map_or(COLORS, Self::color);
        color as usize
    }

    fn worst_of(&self, out: &mut String, from: u32) {
        let n = self.matrix.endpoints();
        let mut cells: Vec<&Cell> = (0..n)
            .filter_map(|to| self.matrix.cell(Pair::new(from, to)))
            .collect();
        cells.sort_by(|a, b| self.speed(a).total_cmp(&self.speed(b)));
        let is_bad = |cell: &&Cell| {
            self.limit
                .is_none_or(|l| l.state(&cell.figure) != CellState::Good)
        };
        let bad = cells.iter().copied().filter(is_bad).count();
        let _ = writeln!(
            out,
            "<details><summary>{}: {bad} of {} slow or failed</summary>",
            self.name(from),
            cells.len()
        );
        let mut all = String::new();
        for cell in cells.into_iter().take(WORST) {
            self.details(&mut all, cell);
        }
        out.push_str(&all.replace("class=\"detail\"", "class=\"shown\""));
        out.push_str("</details>\n");
    }
}

/// Writes the meaning of the colors and the signs.
fn legend(out: &mut String) {
    out.push_str("<p class=\"scale\">");
    for color in 0..COLORS {
        let _ = write!(out, "<span class=\"c{color}\"></span>");
    }
    out.push_str(" 0 to 100 % of the best; ▼ slow, ? slow or failed when measured again, ✕ failed, ! exceeds a limit</p>\n");
}

fn figure(is_bandwidth: bool, value: f64) -> String {
    let style = Style::default();
    if is_bandwidth {
        style.bandwidth(value).to_string()
    } else {
        style.time(value).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::cell::CellPortCounters;
    use crate::mesh::coordinator::{NoProgress, find_outliers, run};
    use crate::mesh::outlier::SlowLimits;
    use crate::mesh::schedule::MeshPattern;
    use crate::mesh::simulation::{Simulation, endpoints};
    use crate::mesh::tests::mesh_test;
    use measure::spec::test::Test;

    fn record(hosts: u32, tests: &[Test]) -> MeshRecord {
        let tests = tests.iter().map(|t| mesh_test(*t)).collect();
        let mut endpoints = endpoints(hosts, 1);
        endpoints[0].name = "<h0>".to_owned();
        let mut record =
            MeshRecord::new(MeshPattern::Pairs, SlowLimits::default(), endpoints, tests);
        let network = Simulation {
            endpoints: [(2, [0.25, 0.25]), (4, [0.0, 0.0])].into(),
            ..Simulation::default()
        };
        run(&mut record, None, &network, &mut NoProgress).unwrap();
        record.outliers = find_outliers(&record, &network, &mut NoProgress);
        record
    }

    #[test]
    fn every_cell_opens_its_details() {
        let mut record = record(8, &[Test::RcBw, Test::RcLat]);
        let detail = record.cells.list[0].detail.as_mut().unwrap();
        detail.exceeded = vec!["12 GB/sec is below --min-bw".to_owned()];
        let counters = [
            ("out_of_seq_request".to_owned(), 12),
            ("rnr<".to_owned(), 3),
        ];
        detail.port_counters = Some(CellPortCounters {
            to: counters.into(),
            ..CellPortCounters::default()
        });
        let page = page(&record);
        for (test, from, to) in [(0, 0, 1), (1, 7, 6), (0, 4, 0)] {
            let id = format!("d{test}-{from}-{to}");
            assert_eq!(page.matches(&format!("href=\"#{id}\"")).count(), 1, "{id}");
            assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
        }
        assert_eq!(page.matches("class=\"detail\"").count(), 2 * 8 * 7);
        assert!(
            page.contains("p99.9 3 us") && page.contains("sent 1000000"),
            "percentiles"
        );
        assert!(page.contains("<dd class=\"x\">12 GB/sec is below") && page.contains(">!</a>"));
        assert!(page.contains("<dd>counters of the server: out_of_seq_request 12, rnr&lt; 3"));
        assert!(!page.contains("counters of the client"));
        assert!(page.contains("host h2") && page.contains("cannot reach the server"));
        assert!(page.contains("&lt;h0&gt;") && !page.contains("<h0>") && !page.contains("<script"));
    }

    #[test]
    fn large_meshes_have_small_pages() {
        let record = record(300, &[Test::RcBw]);
        let page = page(&record);
        assert!(page.len() < 1 << 20, "{} bytes", page.len());
        assert!(page.contains("worst of 2 × 2 cells") && page.contains("h2: 299 of 299 slow"));
    }
}
