//! The latest result of each ordered pair, for one test.

use super::cell::{Cell, CellFigure, Cells};
use super::schedule::Pair;

/// Marks a pair without a result.
const NONE: u32 = u32::MAX;

/// Position of the latest cell of each ordered pair of endpoints, for one test.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    cells: &'a [Cell],
    positions: Vec<u32>,
    endpoints: u32,
}

impl<'a> Matrix<'a> {
    /// Indexes the cells of a test.
    pub fn new(cells: &'a Cells, test: u16) -> Self {
        let n = cells.endpoints.len();
        let mut positions = vec![NONE; n * n];
        for (position, cell) in (0..).zip(&cells.list) {
            if cell.test == test {
                positions[cell.pair.from as usize * n + cell.pair.to as usize] = position;
            }
        }
        Self {
            cells: &cells.list,
            positions,
            endpoints: u32::try_from(n).unwrap_or(u32::MAX),
        }
    }

    /// Returns the number of endpoints.
    pub(crate) fn endpoints(&self) -> u32 {
        self.endpoints
    }

    /// Returns the cell of a pair, if it was measured.
    pub(crate) fn cell(&self, pair: Pair) -> Option<&'a Cell> {
        let row = pair.from as usize * self.endpoints as usize;
        let position = *self.positions.get(row + pair.to as usize)?;
        self.cells.get(position as usize)
    }

    /// Returns the cells in the order of their endpoints.
    pub fn cells(&self) -> impl Iterator<Item = &'a Cell> + '_ {
        let positions = self.positions.iter().filter(|p| **p != NONE);
        positions.map(|p| &self.cells[*p as usize])
    }

    /// Returns the cells whose results exceed a limit of the user.
    pub fn exceeded(&self) -> impl Iterator<Item = &'a Cell> + '_ {
        self.cells().filter(|cell| !cell.exceeded().is_empty())
    }

    /// Returns the slowest of some cells.
    pub fn slowest(&self, cells: impl Iterator<Item = &'a Cell>) -> Option<&'a Cell> {
        let slowness = |cell: &&Cell| match cell.figure {
            CellFigure::Bandwidth(value) => -value,
            CellFigure::Latency(value) => value,
            CellFigure::Failed(_) => f64::INFINITY,
        };
        cells.max_by(|a, b| slowness(a).total_cmp(&slowness(b)))
    }

    /// Returns the smallest and the largest figure, without failed cells.
    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        self.cells().filter_map(value).fold(None, |range, value| {
            Some(range.map_or((value, value), |(low, high): (f64, f64)| {
                (low.min(value), high.max(value))
            }))
        })
    }

    /// Returns `true` if the figures are bandwidths.
    pub(crate) fn is_bandwidth(&self) -> bool {
        self.cells()
            .any(|cell| matches!(cell.figure, CellFigure::Bandwidth(_)))
    }
}

/// Returns the figure of a cell, unless the test failed.
pub(crate) fn value(cell: &Cell) -> Option<f64> {
    match cell.figure {
        CellFigure::Bandwidth(value) | CellFigure::Latency(value) => Some(value),
        CellFigure::Failed(_) => None,
    }
}
