//! A plot with a legend, as inline SVG, drawn with `plotters`.
//!
//! The style sheet of the page sets the color of texts, so that plots are readable in light and
//! dark mode.

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

use super::scale::Scale;

/// Colors of lines, distinguishable by color-blind readers in light and dark mode.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x2f, 0x7f, 0xc8),
    RGBColor(0xd9, 0x72, 0x2e),
    RGBColor(0x2f, 0x9e, 0x6b),
    RGBColor(0xb4, 0x55, 0xa0),
    RGBColor(0xa8, 0x8b, 0x12),
    RGBColor(0x1a, 0x9a, 0xaa),
    RGBColor(0xd9, 0x53, 0x4f),
    RGBColor(0x74, 0x79, 0xd9),
];
const GRAY: RGBColor = RGBColor(0x80, 0x80, 0x80);
/// Space in pixels that a label of the x axis needs.
const LABEL_WIDTH: u32 = 78;

/// An axis of a plot.
#[derive(Clone)]
pub(super) struct Axis {
    /// Quantity and unit.
    pub(super) title: &'static str,
    pub(super) scale: Scale,
    /// Formats a value.
    pub(super) format: fn(f64) -> String,
}

/// A point of a line.
#[derive(Clone)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Minimum and maximum of repeated runs; `None` for a single run.
    pub(super) spread: Option<(f64, f64)>,
    /// Text shown when the mouse pointer is over the point.
    pub(super) tooltip: String,
}

/// A line of a plot.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
    /// Index of the color.
    pub(super) color: usize,
    /// `true` for the second line of two with the same color.
    pub(super) dashed: bool,
}

impl Line {
    /// Returns the color as CSS.
    pub(super) fn css_color(&self) -> String {
        let RGBColor(r, g, b) = self.rgb();
        format!("#{r:02x}{g:02x}{b:02x}")
    }

    fn rgb(&self) -> RGBColor {
        COLORS[self.color % COLORS.len()]
    }

    /// Lines after the first eight repeat the colors and are dashed.
    fn is_dashed(&self) -> bool {
        self.dashed || self.color >= COLORS.len()
    }
}

/// A plot.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Highlighted ranges of the x axis: start, end and description.
    pub(super) bands: Vec<(f64, f64, String)>,
}

/// Parts that are drawn over the plot, in pixels.
#[derive(Default)]
struct Overlay {
    /// Positions and texts of the tooltips.
    tooltips: Vec<((i32, i32), String)>,
    /// Colors and points of the dashed lines. The browser makes the dashes, because those of
    /// `plotters` need a newer libm than the packages may.
    dashed: Vec<(String, Vec<(i32, i32)>)>,
}

/// The scale of an axis as a coordinate of `plotters`, with the values that have a label.
struct Coordinate {
    scale: Scale,
    labels: Vec<f64>,
}

impl Ranged for Coordinate {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    #[allow(clippy::cast_possible_truncation)] // Pixels of a plot.
    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        low + (self.scale.position(*value) * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.labels.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.scale.range()
    }
}

impl Axis {
    /// Returns the coordinate with at most `max` labels.
    fn coordinate(&self, max: usize) -> Coordinate {
        let ticks = self.scale.ticks();
        let step = ticks.len().div_ceil(max.max(1)).max(1);
        Coordinate {
            scale: self.scale.clone(),
            labels: ticks.iter().step_by(step).copied().collect(),
        }
    }

    fn title(&self) -> String {
        let log = if self.scale.is_log() {
            " (logarithmic)"
        } else {
            ""
        };
        format!("{}{log}", self.title)
    }
}

impl Chart {
    /// Draws the plot with this width and height in pixels.
    pub(super) fn render(&self, size: (u32, u32)) -> Markup {
        let mut svg = String::new();
        let mut overlay = Overlay::default();
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = self.draw(&root, size, &mut overlay);
        drop(root);
        if let Err(error) = drawn {
            return html! { p { "cannot draw the plot: " (error) } };
        }
        // Inline SVG needs no declaration of a namespace, and no fixed size.
        let body = svg.split_once('>').map_or("", |(_, body)| body);
        let body = body.rsplit_once("</svg>").map_or(body, |(body, _)| body);
        html! {
            svg viewBox={ "0 0 " (size.0) " " (size.1) } role="img" aria-label=(self.title) {
                (PreEscaped(body))
                @for (color, points) in &overlay.dashed {
                    polyline points=(points_attribute(points)) fill="none" stroke=(color)
                        stroke-width="2" stroke-dasharray="6 4" {}
                }
                @for ((x, y), text) in &overlay.tooltips {
                    circle cx=(x) cy=(y) r="7" fill="transparent" { title { (text) } }
                }
            }
        }
    }

    fn draw(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
        (width, _): (u32, u32),
        overlay: &mut Overlay,
    ) -> Result<(), String> {
        let error = |e: DrawingAreaErrorKind<_>| e.to_string();
        let x_labels = width.saturating_sub(100) / LABEL_WIDTH;
        let mut chart = ChartBuilder::on(root)
            .margin(10)
            .margin_right(30)
            .x_label_area_size(44)
            .y_label_area_size(98)
            .build_cartesian_2d(
                self.x.coordinate(x_labels as usize),
                self.y.coordinate(usize::MAX),
            )
            .map_err(error)?;
        chart
            .configure_mesh()
            .x_label_formatter(&|value| (self.x.format)(*value))
            .y_label_formatter(&|value| (self.y.format)(*value))
            .x_desc(self.x.title())
            .y_desc(self.y.title())
            .label_style(("sans-serif", 12))
            .axis_style(GRAY)
            .bold_line_style(GRAY.mix(0.25))
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(error)?;
        let y_range = self.y.scale.range();
        for (from, to, description) in &self.bands {
            let corners = [(*from, y_range.start), (*to, y_range.end)];
            let band = Rectangle::new(corners, COLORS[1].mix(0.15).filled());
            chart.draw_series([band]).map_err(error)?;
            let center = (f64::midpoint(*from, *to), y_range.end);
            let position = chart.backend_coord(&center);
            overlay.tooltips.push((position, description.clone()));
        }
        for line in &self.lines {
            let color = line.rgb();
            let points = line.points.iter().map(|p| (p.x, p.y));
            if line.is_dashed() {
                let pixels = points.clone().map(|at| chart.backend_coord(&at)).collect();
                overlay.dashed.push((line.css_color(), pixels));
            } else {
                let solid = LineSeries::new(points.clone(), color.stroke_width(2));
                chart.draw_series(solid).map_err(error)?;
            }
            for point in &line.points {
                if let Some((min, max)) = point.spread {
                    let ends = [(point.x, min), (point.x, max)];
                    let spread = PathElement::new(ends.to_vec(), color.stroke_width(2));
                    chart.draw_series([spread]).map_err(error)?;
                }
                overlay.tooltips.push((
                    chart.backend_coord(&(point.x, point.y)),
                    format!("{}: {}", line.name, point.tooltip),
                ));
            }
            // Many points are drawn without marks.
            if line.points.len() <= 60 {
                // The shape depends on the color, for color-blind readers.
                match line.color % 3 {
                    0 => chart.draw_series(points.map(|at| Circle::new(at, 3, color.filled()))),
                    1 => chart
                        .draw_series(points.map(|at| TriangleMarker::new(at, 5, color.filled()))),
                    _ => {
                        chart.draw_series(points.map(|at| Cross::new(at, 4, color.stroke_width(2))))
                    }
                }
                .map_err(error)?;
            }
        }
        root.present().map_err(error)
    }
}

/// Returns the points of a line as an attribute of SVG.
fn points_attribute(points: &[(i32, i32)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
    points.join(" ")
}

/// Returns a figure with its caption, a legend of `lines` and the drawings.
pub(super) fn figure(title: &str, note: &str, lines: &[Line], drawings: &Markup) -> Markup {
    html! {
        figure {
            figcaption {
                h2 { (title) }
                p { (note) }
            }
            (drawings)
            ul.legend {
                @for line in lines {
                    li {
                        span.swatch.dashed[line.is_dashed()] style={ "border-color:" (line.css_color()) } {}
                        (line.name)
                    }
                }
            }
        }
    }
}
