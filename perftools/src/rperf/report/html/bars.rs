//! Figures of one size beside each other, as bars.

use std::fmt::Write;

use super::chart::{COLOURS, Line, WIDTH, opening};
use super::escape::Escaped;

const ROW: f64 = 30.0;
const NAMES: f64 = 260.0;
const FIGURES: f64 = 110.0;
/// Letters of a name that fit.
const LETTERS: usize = 38;

/// A figure with a bar for each line's one point.
pub(super) fn render(title: &str, note: &str, lines: &[Line], show: fn(f64) -> String) -> String {
    let most = lines
        .iter()
        .flat_map(|l| &l.points)
        .map(|p| p.y)
        .filter(|y| y.is_finite())
        .fold(0.0, f64::max);
    #[allow(clippy::cast_precision_loss)] // A few lines.
    let height = lines.len() as f64 * ROW + 6.0;
    let mut out = opening(title, note, height);
    let mut y = 4.0;
    for (line, point) in lines
        .iter()
        .filter_map(|line| Some((line, line.points.first()?)))
    {
        let share = if most > 0.0 && point.y.is_finite() {
            (point.y / most).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let length = (share * (WIDTH - NAMES - FIGURES)).max(1.0);
        let middle = y + ROW / 2.0 + 2.0;
        let _ = writeln!(
            out,
            "<g><title>{about}</title><text x=\"{}\" y=\"{middle}\" class=\"end\">{name}</text><rect class=\"bar c{}\" x=\"{NAMES}\" y=\"{}\" width=\"{length:.1}\" height=\"{}\"/><text x=\"{:.1}\" y=\"{middle}\">{figure}</text></g>",
            NAMES - 10.0,
            line.colour % COLOURS,
            y + 3.0,
            ROW - 8.0,
            NAMES + length + 8.0,
            about = Escaped(&format!("{}: {}", line.name, point.about)),
            name = Escaped(&short(&line.name)),
            figure = Escaped(&show(point.y)),
        );
        y += ROW;
    }
    out + "</svg>\n</figure>\n"
}

fn short(name: &str) -> String {
    if name.chars().count() <= LETTERS {
        return name.to_owned();
    }
    name.chars().take(LETTERS - 1).chain(['…']).collect()
}
