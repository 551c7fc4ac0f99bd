//! One plot as inline SVG, with its legend. Colours come from the page's style, so that it reads in
//! light and in dark.

use std::fmt::Write;

use super::escape::Escaped;
use super::scale::Scale;

/// Colours that differ for the colour-blind too; the page's style names as many.
pub(super) const COLOURS: usize = 8;
pub(super) const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 58.0;
/// Space between the names of values on an axis.
const APART: f64 = 62.0;

/// An axis.
pub(super) struct Axis {
    /// What it shows, with the unit.
    pub(super) title: &'static str,
    pub(super) scale: Scale,
    /// How a value is written.
    pub(super) show: fn(f64) -> String,
}

/// A point, with the spread of repeated runs.
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Least and most of the runs that it stands for.
    pub(super) spread: Option<(f64, f64)>,
    /// What a pointer held over it shows.
    pub(super) about: String,
}

/// A series.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
    /// Which colour and mark.
    pub(super) colour: usize,
    /// The second figure of a pair of lines of one colour.
    pub(super) dashed: bool,
}

/// A plot.
pub(super) struct Chart {
    pub(super) title: String,
    /// What a reader has to know.
    pub(super) note: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Stretches of the x axis that stand out, and why.
    pub(super) bands: Vec<(f64, f64, String)>,
}

/// How a figure begins, up to what is drawn.
pub(super) fn opening(title: &str, note: &str, height: f64) -> String {
    let (title, note) = (Escaped(title), Escaped(note));
    format!(
        "<figure>\n<figcaption><h2>{title}</h2><p>{note}</p></figcaption>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n"
    )
}

impl Chart {
    /// The figure.
    pub(super) fn render(&self) -> String {
        let mut out = opening(&self.title, self.note, HEIGHT);
        self.frame(&mut out);
        for (from, to, why) in &self.bands {
            let (from, to) = (self.left(*from), self.left(*to));
            let _ = writeln!(
                out,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                (to - from).max(2.0),
                HEIGHT - TOP - BOTTOM,
                Escaped(why)
            );
        }
        for line in &self.lines {
            self.line(line, &mut out);
        }
        out += "</svg>\n";
        self.legend(&mut out);
        out + "</figure>\n"
    }

    fn left(&self, x: f64) -> f64 {
        LEFT + self.x.scale.place(x) * (WIDTH - LEFT - RIGHT)
    }

    fn top(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.scale.place(y) * (HEIGHT - TOP - BOTTOM)
    }

    fn frame(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.y.scale.ticks() {
            let y = self.top(*tick);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{}\" y=\"{:.1}\" class=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                Escaped(&(self.y.show)(*tick))
            );
        }
        let mut last = f64::MIN;
        for tick in self.x.scale.ticks() {
            let x = self.left(*tick);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>");
            if x - last < APART {
                continue;
            }
            last = x;
            let name = (self.x.show)(*tick);
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
            .map(|p| format!("{:.1} {:.1}", self.left(p.x), self.top(p.y)))
            .collect();
        if path.len() > 1 {
            let _ = writeln!(
                out,
                "<path class=\"line {class}\" d=\"M{}\"/>",
                path.join("L")
            );
        }
        for point in &line.points {
            let (x, y) = (self.left(point.x), self.top(point.y));
            if let Some((least, most)) = point.spread {
                let _ = writeln!(
                    out,
                    "<path class=\"line {class}\" d=\"M{x:.1} {:.1}V{:.1}\"/>",
                    self.top(least),
                    self.top(most)
                );
            }
            let shape = mark(
                line.colour,
                x,
                y,
                if line.points.len() > 60 { 1.5 } else { 3.5 },
            );
            let _ = writeln!(
                out,
                "<g class=\"mark {class}\">{shape}<title>{}</title></g>",
                Escaped(&point.about)
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
                mark(line.colour, 15.0, 6.0, 3.5),
                Escaped(&line.name)
            );
        }
        *out += "</ul>\n";
    }
}

/// Colour and dash of a line. When the colours are used up, they begin again, dotted.
fn class(line: &Line) -> String {
    let again = if line.dashed {
        " dashed"
    } else if line.colour >= COLOURS {
        " dotted"
    } else {
        ""
    };
    format!("c{}{again}", line.colour % COLOURS)
}

/// Marks differ as the colours do.
fn mark(colour: usize, x: f64, y: f64, r: f64) -> String {
    match colour % 4 {
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
