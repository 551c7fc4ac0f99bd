//! Runs the tests of a mesh in the order of its schedule, and finds the outliers.

use std::collections::{BTreeMap, HashSet};

use base::error::Result;

use super::cell::{Cell, CellFigure};
use super::endpoint::Endpoint;
use super::matrix::{self, Matrix};
use super::outlier::{self, CellState, Outlier, Retest, SlowLimit, Suspect};
use super::record::{Group, MeshRecord, MeshTest, RecordFile};
use super::schedule::{Pair, Schedule, fairness};
use super::verdict::{self, Evidence};
use crate::mesh::schedule::MeshPattern;

/// A way to run tests between endpoints.
pub trait Transport: Sync {
    /// Runs a test for all pairs at the same time, and calls `on_cell` when one of them ends.
    ///
    /// With `common_start`, the tests start when all of them are connected.
    fn run(
        &self,
        test: &MeshTest,
        pairs: &[Pair],
        common_start: bool,
        on_cell: &mut dyn FnMut(Pair, CellFigure, Option<Box<super::cell::CellDetail>>),
    );
}

/// Receives the progress of a run.
pub trait MeshProgress {
    /// A round began.
    fn round(&mut self, number: u32, total: u32, record: &MeshRecord);
    /// A test ended. Its result is the last cell of the record.
    fn cell(&mut self, record: &MeshRecord);
    /// The measurements of suspects are repeated.
    fn repeating(&mut self, suspects: usize);
}

/// Ignores the progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl MeshProgress for NoProgress {
    fn round(&mut self, _: u32, _: u32, _: &MeshRecord) {}
    fn cell(&mut self, _: &MeshRecord) {}
    fn repeating(&mut self, _: usize) {}
}

/// Runs all tests, and appends their results to the record and to its file.
///
/// # Errors
/// Returns an error if the file cannot be written. A failed test is a cell of the record.
pub fn run(
    record: &mut MeshRecord,
    mut file: Option<&mut RecordFile>,
    transport: &dyn Transport,
    progress: &mut dyn MeshProgress,
) -> Result<()> {
    let count = u32::try_from(record.endpoints.len()).unwrap_or(u32::MAX);
    let schedule = Schedule::new(record.pattern, count);
    let together = schedule.has_common_start();
    let tests = record.tests.clone();
    for round in 0..schedule.len() {
        let pairs: Vec<Pair> = schedule
            .round(round)
            .into_iter()
            .filter(|p| {
                let [from, to] = [p.from, p.to].map(|id| &record.endpoints[id as usize]);
                from.can_reach(to)
            })
            .collect();
        progress.round(round, schedule.len(), record);
        for (id, test) in (0..).zip(&tests) {
            let first = record.cells.list.len();
            transport.run(test, &pairs, together, &mut |pair, figure, detail| {
                let cell = Cell {
                    pair,
                    test: id,
                    figure,
                    detail,
                };
                record.cells.list.push(cell);
                progress.cell(record);
            });
            let new = &record.cells.list[first..];
            if let Some(file) = file.as_deref_mut() {
                file.append(&record.cells, new)?;
            }
            if together {
                let mut group = group(new, test, round);
                group.shared = matches!(record.pattern, MeshPattern::Incast | MeshPattern::Outcast)
                    .then(|| record.endpoints[round as usize].name.clone());
                record.groups.push(group);
            }
        }
    }
    Ok(())
}

fn group(cells: &[Cell], test: &MeshTest, round: u32) -> Group {
    let figures = cells.iter().filter_map(matrix::value);
    let completed = figures.clone().count();
    let bandwidths: Vec<f64> = figures.collect();
    let is_bandwidth = cells
        .iter()
        .any(|c| matches!(c.figure, CellFigure::Bandwidth(_)));
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Group {
        round,
        test: test.label.clone(),
        shared: None,
        completed: count(completed),
        failed: count(cells.len() - completed),
        sum: is_bandwidth.then(|| bandwidths.iter().sum()),
        // Few digits are read from the record without a rounding error.
        fairness: is_bandwidth
            .then(|| fairness(&bandwidths).map(|f| (f * 1e6).round() / 1e6))
            .flatten(),
    }
}

/// Returns `true` if the test of a cell failed.
pub fn has_failed(cell: &Cell) -> bool {
    matches!(cell.figure, CellFigure::Failed(_))
}

/// Finds the outliers of a completed run. Measures suspects again, one pair at a time.
pub fn find_outliers(
    record: &MeshRecord,
    transport: &dyn Transport,
    progress: &mut dyn MeshProgress,
) -> Vec<Outlier> {
    let mut outliers = Vec::new();
    for (id, test) in (0..).zip(&record.tests) {
        let matrix = Matrix::new(&record.cells, id);
        let limit = SlowLimit::new(&matrix, &record.limits);
        let suspects = outlier::suspects(&matrix, limit, &record.endpoints);
        let at_fault: HashSet<u32> = suspects.iter().flat_map(|s| s.endpoints.clone()).collect();
        let healthy: Vec<u32> = (0..matrix.endpoints())
            .filter(|id| !at_fault.contains(id))
            .collect();
        if !suspects.is_empty() {
            progress.repeating(suspects.len());
        }
        for (number, suspect) in suspects.iter().enumerate() {
            let pairs = if number < verdict::MAX_REPEATED {
                verdict::repeated_pairs(suspect, &record.endpoints, &healthy)
            } else {
                Vec::new()
            };
            let retests = repeat(record, transport, test, &pairs, limit);
            let states: Vec<CellState> = retests.iter().map(|r| r.state).collect();
            let (typical, error) = figures(&matrix, suspect, &record.endpoints);
            outliers.push(verdict::describe(
                suspect,
                test,
                &record.endpoints,
                Evidence {
                    typical,
                    limit,
                    error,
                    retests,
                    confirmation: verdict::conclude(suspect, &states),
                },
            ));
        }
    }
    outliers
}

/// Measures pairs one after another.
fn repeat(
    record: &MeshRecord,
    transport: &dyn Transport,
    test: &MeshTest,
    pairs: &[Pair],
    limit: Option<SlowLimit>,
) -> Vec<Retest> {
    let name = |id: u32| record.endpoints[id as usize].name.clone();
    let mut retests = Vec::new();
    for pair in pairs {
        transport.run(test, &[*pair], false, &mut |pair, figure, _| {
            let state = limit.map_or(CellState::Failed, |limit| limit.state(&figure));
            let cell = Cell {
                pair,
                test: 0,
                figure,
                detail: None,
            };
            retests.push(Retest {
                from: name(pair.from),
                to: name(pair.to),
                value: matrix::value(&cell),
                state,
            });
        });
    }
    retests
}

/// Returns the median of the figures and the most frequent error of a suspect's cells.
fn figures(
    matrix: &Matrix<'_>,
    suspect: &Suspect,
    endpoints: &[Endpoint],
) -> (Option<f64>, Option<String>) {
    let cells = || suspect.cells.iter().filter_map(|pair| matrix.cell(*pair));
    let mut values: Vec<f64> = cells().filter_map(matrix::value).collect();
    values.sort_by(f64::total_cmp);
    let errors = cells().filter_map(|cell| match &cell.figure {
        CellFigure::Failed(error) => Some(&**error),
        _ => None,
    });
    // The errors of all hosts are the same fault if they differ only in the host that they name.
    let is_all = suspect.endpoints.len() == endpoints.len();
    let names: HashSet<&str> = endpoints.iter().map(|e| e.name.as_str()).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for error in errors {
        let error = match error.split_once(": ") {
            Some((name, cause)) if is_all && names.contains(name) => cause,
            _ => error,
        };
        *counts.entry(error).or_default() += 1;
    }
    let error = counts.into_iter().max_by_key(|(_, count)| *count);
    let error = error.map(|(error, _)| error.to_owned());
    (values.get(values.len() / 2).copied(), error)
}
