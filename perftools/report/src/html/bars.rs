//! Bar charts, for results with a single message size.

use maud::{Markup, html};

use super::chart::Line;

/// Draws a bar for the first point of each line, as a row of a table, so that long names wrap.
pub(super) fn render(title: &str, note: &str, lines: &[Line], format: fn(f64) -> String) -> Markup {
    let values = || {
        lines
            .iter()
            .filter_map(|line| Some((line, line.points.first()?)))
    };
    let max = values()
        .map(|(_, point)| point.y)
        .filter(|y| y.is_finite())
        .fold(0.0, f64::max);
    let share = |y: f64| {
        if max > 0.0 && y.is_finite() {
            (y / max * 100.0).clamp(0.0, 100.0)
        } else {
            0.0
        }
    };
    html! {
        figure {
            figcaption {
                h2 { (title) }
                p { (note) }
            }
            table.bars {
                @for (line, point) in values() {
                    tr title=(point.tooltip) {
                        th.text { (line.name) }
                        td.bar {
                            div style={ "width:" (format!("{:.1}", share(point.y))) "%;background:" (line.css_color()) } {}
                        }
                        td { (format(point.y)) }
                    }
                }
            }
        }
    }
}
