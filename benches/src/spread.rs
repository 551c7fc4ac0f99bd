//! Medians of rounds.

use std::fmt;

/// Median, smallest and largest value of some rounds.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
}

impl Spread {
    /// Returns the spread of at least one value.
    ///
    /// # Panics
    /// Panics if there is no value.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self {
            median: values[values.len() / 2],
            least: values[0],
            most: values[values.len() - 1],
        }
    }
}

impl fmt::Display for Spread {
    /// Writes `median (smallest..largest)`, each with the precision of the formatter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self {
            median,
            least,
            most,
        } = self;
        write!(f, "{median:.digits$} ({least:.digits$}..{most:.digits$})")
    }
}
