//! Lines of names and values with aligned columns.

use std::fmt::Write;

use base::units::Figure;

/// Lines of names and values with aligned columns.
#[derive(Default)]
pub(super) struct Block {
    lines: Vec<(String, Value)>,
}

enum Value {
    Figure(Figure),
    Text(String),
}

impl Block {
    /// Adds a line with a number and its unit.
    pub(super) fn figure(&mut self, name: impl Into<String>, figure: Figure) {
        self.lines.push((name.into(), Value::Figure(figure)));
    }

    /// Adds a line with a text.
    pub(super) fn text(&mut self, name: impl Into<String>, text: String) {
        self.lines.push((name.into(), Value::Text(text)));
    }

    /// Adds a line with a number and its unit, or with `-` if it is unknown.
    pub(super) fn figure_if_known(&mut self, name: impl Into<String>, figure: Option<Figure>) {
        match figure {
            Some(figure) => self.figure(name, figure),
            None => self.text(name, "-".to_owned()),
        }
    }

    /// Adds a line with each of the given numbers: one or none.
    pub(super) fn figures(&mut self, name: &str, figures: impl IntoIterator<Item = Figure>) {
        figures
            .into_iter()
            .for_each(|figure| self.figure(name, figure));
    }

    /// Adds the lines of another block.
    pub(super) fn append(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    /// Appends the lines to `out`, with one column of values.
    pub(super) fn print(&self, out: &mut String) {
        let names = self.lines.iter().map(|l| l.0.len()).max().unwrap_or(0);
        let digits = |value: &Value| match value {
            Value::Figure(f) => f.digits.len(),
            Value::Text(_) => 0,
        };
        let width = self.lines.iter().map(|l| digits(&l.1)).max().unwrap_or(0);
        for (name, value) in &self.lines {
            let result = match value {
                Value::Text(text) => writeln!(out, "    {name:<names$}  =  {text}"),
                Value::Figure(Figure {
                    digits,
                    unit,
                    bytes: None,
                }) => {
                    writeln!(out, "    {name:<names$}  =  {digits:>width$} {unit}")
                }
                Value::Figure(Figure {
                    digits,
                    unit,
                    bytes: Some(bytes),
                }) => {
                    writeln!(
                        out,
                        "    {name:<names$}  =  {digits:>width$} {unit} ({bytes})"
                    )
                }
            };
            debug_assert!(result.is_ok(), "writing to a String cannot fail");
        }
    }
}
