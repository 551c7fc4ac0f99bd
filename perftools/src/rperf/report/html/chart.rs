//! A plot with a legend, as inline SVG. The page's style sheet sets the colors, so that plots are
//! readable in light and dark mode.

use std::fmt::Write;

use super::escape::Escaped;
use super::scale::Scale;

/// Number of colors in the page's style sheet. They are distinguishable by color-blind readers.
pub(super) const COLORS: usize = 8;
pub(super) const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 58.0;
/// Minimum distance between two labels of the x axis.
const LABEL_DISTANCE: f64 = 62.0;

/// An axis of a plot.
pub(super) struct Axis {
    /// Quantity and unit.
    pub(super) title: &'static str,
    pub(super) scale: Scale,
    /// Formats a value.
    pub(super) format: fn(f64) -> String,
}

/// A point of a line.
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Minimum and maximum of repeated runs; `None` for a single run.
    pub(super) spread: Option<(f64, f64)>,
    /// Text shown when the mouse pointer is over the point.
    pub(super) tooltip: String,
}

/// A line of a plot.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
    /// Index of the color and the marker shape.
    pub(super) color: usize,
    /// `true` for the second line of two with the same color.
    pub(super) dashed: bool,
}

/// A plot with its title and legend.
pub(super) struct Chart {
    pub(super) title: String,
    /// Explanation shown below the title.
    pub(super) note: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Highlighted ranges of the x axis: start, end and description.
    pub(super) bands: Vec<(f64, f64, String)>,
}

/// Returns the start of a figure: the caption and the opening tag of the drawing.
pub(super) fn figure_start(title: &str, note: &str, height: f64) -> String {
    let (title, note) = (Escaped(title), Escaped(note));
    format!(
        "<figure>\n<figcaption><h2>{title}</h2><p>{note}</p></figcaption>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n"
    )
}

impl Chart {
    /// Draws the plot.
    pub(super) fn render(&self) -> String {
        let mut out = figure_start(&self.title, self.note, HEIGHT);
        self.axes(&mut out);
        for (from, to, description) in &self.bands {
            let (from, to) = (self.x_position(*from), self.x_position(*to));
            let _ = writeln!(
                out,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                (to - from).max(2.0),
                HEIGHT - TOP - BOTTOM,
                Escaped(description)
            );
        }
        for line in &self.lines {
            self.line(line, &mut out);
        }
        out += "</svg>\n";
        self.legend(&mut out);
        out + "</figure>\n"
    }

    fn x_position(&self, x: f64) -> f64 {
        LEFT + self.x.scale.position(x) * (WIDTH - LEFT - RIGHT)
    }

    fn y_position(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.scale.position(y) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.y.scale.ticks() {
            let y = self.y_position(*tick);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{}\" y=\"{:.1}\" class=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                Escaped(&(self.y.format)(*tick))
            );
        }
        let mut last = f64::MIN;
        for tick in self.x.scale.ticks() {
            let x = self.x_position(*tick);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>");
            if x - last < LABEL_DISTANCE {
                continue;
            }
            last = x;
            let name = (self.x.format)(*tick);
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{}\" class=\"middle\">{}</text>",
                bottom + 18.0,
                Escaped(&name)
            );
        }
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n<text x=\"{}\" y=\"{}\" class=\"title middle\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 12.0,
            Escaped(self.x.title)
        );
        let _ = writeln!(
            out,
            "<text transform=\"translate(16 {}) rotate(-90)\" class=\"title middle\">{}{}</text>",
            f64::midpoint(TOP, bottom),
            Escaped(self.y.title),
            if self.y.scale.is_log() {
                " (logarithmic)"
            } else {
                ""
            }
        );
    }

    fn line(&self, line: &Line, out: &mut String) {
        let class = class(line);
        let path: Vec<String> = line
            .points
            .iter()
            .map(|p| format!("{:.1} {:.1}", self.x_position(p.x), self.y_position(p.y)))
            .collect();
        if path.len() > 1 {
            let _ = writeln!(
                out,
                "<path class=\"line {class}\" d=\"M{}\"/>",
                path.join("L")
            );
        }
        for point in &line.points {
            let (x, y) = (self.x_position(point.x), self.y_position(point.y));
            if let Some((min, max)) = point.spread {
                let _ = writeln!(
                    out,
                    "<path class=\"line {class}\" d=\"M{x:.1} {:.1}V{:.1}\"/>",
                    self.y_position(min),
                    self.y_position(max)
                );
            }
            let shape = marker(
                line.color,
                x,
                y,
                if line.points.len() > 60 { 1.5 } else { 3.5 },
            );
            let _ = writeln!(
                out,
                "<g class=\"mark {class}\">{shape}<title>{}</title></g>",
                Escaped(&point.tooltip)
            );
        }
    }

    fn legend(&self, out: &mut String) {
        *out += "<ul class=\"legend\">\n";
        for line in &self.lines {
            let class = class(line);
            let _ = writeln!(
                out,
                "<li><svg viewBox=\"0 0 30 12\" aria-hidden=\"true\"><path class=\"line {class}\" d=\"M0 6H30\"/><g class=\"mark {class}\">{}</g></svg>{}</li>",
                marker(line.color, 15.0, 6.0, 3.5),
                Escaped(&line.name)
            );
        }
        *out += "</ul>\n";
    }
}

/// Returns the style classes of a line. Lines after the first [`COLORS`] repeat the colors and are
/// dotted.
fn class(line: &Line) -> String {
    let style = if line.dashed {
        " dashed"
    } else if line.color >= COLORS {
        " dotted"
    } else {
        ""
    };
    format!("c{}{style}", line.color % COLORS)
}

/// Returns a marker with the center (`x`, `y`) and the radius `r`. Its shape depends on the color.
fn marker(color: usize, x: f64, y: f64, r: f64) -> String {
    match color % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\"/>"),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{}\" height=\"{}\"/>",
            x - r,
            y - r,
            r * 2.0,
            r * 2.0
        ),
        2 => format!(
            "<path d=\"M{x:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}Z\"/>",
            y - r * 1.3,
            x + r * 1.2,
            y + r,
            x - r * 1.2,
            y + r
        ),
        _ => format!(
            "<path d=\"M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}Z\"/>",
            y - r * 1.4,
            x + r * 1.4,
            y + r * 1.4,
            x - r * 1.4
        ),
    }
}
