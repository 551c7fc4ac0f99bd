//! Bar charts, for results with a single message size.

use std::fmt::Write;

use super::chart::{COLORS, Line, WIDTH, figure_start};
use super::escape::Escaped;

const ROW_HEIGHT: f64 = 30.0;
const NAME_WIDTH: f64 = 260.0;
const VALUE_WIDTH: f64 = 110.0;
/// Maximum number of characters in the name of a bar.
const MAX_NAME_LEN: usize = 38;

/// Draws a bar for the first point of each line.
pub(super) fn render(title: &str, note: &str, lines: &[Line], format: fn(f64) -> String) -> String {
    let max = lines
        .iter()
        .flat_map(|l| &l.points)
        .map(|p| p.y)
        .filter(|y| y.is_finite())
        .fold(0.0, f64::max);
    #[allow(clippy::cast_precision_loss)] // A few lines.
    let height = lines.len() as f64 * ROW_HEIGHT + 6.0;
    let mut out = figure_start(title, note, height);
    let mut y = 4.0;
    for (line, point) in lines
        .iter()
        .filter_map(|line| Some((line, line.points.first()?)))
    {
        let share = if max > 0.0 && point.y.is_finite() {
            (point.y / max).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let length = (share * (WIDTH - NAME_WIDTH - VALUE_WIDTH)).max(1.0);
        let middle = y + ROW_HEIGHT / 2.0 + 2.0;
        let _ = writeln!(
            out,
            "<g><title>{tooltip}</title><text x=\"{}\" y=\"{middle}\" class=\"end\">{name}</text><rect class=\"bar c{}\" x=\"{NAME_WIDTH}\" y=\"{}\" width=\"{length:.1}\" height=\"{}\"/><text x=\"{:.1}\" y=\"{middle}\">{value}</text></g>",
            NAME_WIDTH - 10.0,
            line.color % COLORS,
            y + 3.0,
            ROW_HEIGHT - 8.0,
            NAME_WIDTH + length + 8.0,
            tooltip = Escaped(&format!("{}: {}", line.name, point.tooltip)),
            name = Escaped(&shorten(&line.name)),
            value = Escaped(&format(point.y)),
        );
        y += ROW_HEIGHT;
    }
    out + "</svg>\n</figure>\n"
}

/// Shortens a name to [`MAX_NAME_LEN`] characters.
fn shorten(name: &str) -> String {
    if name.chars().count() <= MAX_NAME_LEN {
        return name.to_owned();
    }
    name.chars().take(MAX_NAME_LEN - 1).chain(['…']).collect()
}
