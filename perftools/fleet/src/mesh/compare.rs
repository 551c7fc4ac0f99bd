//! Comparison of two meshes, cell by cell.

use std::fmt::Write;

use super::matrix::{Matrix, value};
use super::record::MeshRecord;
use super::schedule::Pair;

/// Number of changed cells that are printed.
const MAX_LINES: usize = 40;

/// A cell whose figure changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Label of the test.
    pub test: String,
    /// Endpoint of the client.
    pub from: String,
    /// Endpoint of the server.
    pub to: String,
    /// Figures of the old and the new run; none if the test failed.
    pub figures: (Option<f64>, Option<f64>),
    /// Gain relative to the old figure: positive if the new run is better. A test that fails only
    /// in the new run has -1, one that fails only in the old run has 1.
    pub gain: f64,
}

/// Result of the comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeshComparison {
    /// Number of cells that both runs have.
    pub compared: usize,
    /// Cells that changed by more than the threshold, the worst first.
    pub changes: Vec<Change>,
}

impl MeshComparison {
    /// Returns the number of cells that are worse.
    pub fn worse(&self) -> usize {
        self.changes.iter().filter(|c| c.gain < 0.0).count()
    }
}

/// Compares the cells that both runs have: the same endpoints, and tests with the same label and
/// specification. Changes up to `threshold`, a fraction of the old figure, count as equal.
pub fn compare(old: &MeshRecord, new: &MeshRecord, threshold: f64) -> MeshComparison {
    let mut result = MeshComparison::default();
    let position = |name: &str| old.endpoints.iter().position(|e| e.name == name);
    let old_ids: Vec<Option<u32>> = new
        .endpoints
        .iter()
        .map(|e| position(&e.name).and_then(|id| u32::try_from(id).ok()))
        .collect();
    for (new_test, test) in (0..).zip(&new.tests) {
        let Some((old_test, _)) = (0..).zip(&old.tests).find(|(_, t)| *t == test) else {
            continue;
        };
        let before = Matrix::new(&old.cells, old_test);
        let after = Matrix::new(&new.cells, new_test);
        let is_bandwidth = before.is_bandwidth() || after.is_bandwidth();
        for cell in after.cells() {
            let id = |id: u32| old_ids[id as usize];
            let (Some(from), Some(to)) = (id(cell.pair.from), id(cell.pair.to)) else {
                continue;
            };
            let Some(earlier) = before.cell(Pair::new(from, to)) else {
                continue;
            };
            result.compared += 1;
            let figures = (value(earlier), value(cell));
            let gain = match figures {
                (Some(old), Some(new)) if is_bandwidth => (new - old) / old,
                (Some(old), Some(new)) => (old - new) / old,
                (Some(_), None) => -1.0,
                (None, Some(_)) => 1.0,
                (None, None) => 0.0,
            };
            if gain.abs() > threshold {
                let name = |id: u32| new.endpoints[id as usize].name.clone();
                result.changes.push(Change {
                    test: test.label.clone(),
                    from: name(cell.pair.from),
                    to: name(cell.pair.to),
                    figures,
                    gain,
                });
            }
        }
    }
    result.changes.sort_by(|a, b| a.gain.total_cmp(&b.gain));
    result
}

/// Formats the comparison: one line for each of the worst changes, and the number of cells.
pub fn render(comparison: &MeshComparison) -> String {
    let mut out = String::new();
    let figure = |f: Option<f64>| f.map_or_else(|| "failed".to_owned(), |v| format!("{v:.0}"));
    for change in comparison.changes.iter().take(MAX_LINES) {
        // Writing to a string never fails.
        let _ = writeln!(
            out,
            "{} {} → {}: {} → {} ({:.1} % {})",
            change.test,
            change.from,
            change.to,
            figure(change.figures.0),
            figure(change.figures.1),
            change.gain.abs() * 100.0,
            if change.gain < 0.0 { "WORSE" } else { "better" }
        );
    }
    let worse = comparison.worse();
    let _ = writeln!(
        out,
        "{} cells compared: {worse} worse, {} better",
        comparison.compared,
        comparison.changes.len() - worse
    );
    out
}
