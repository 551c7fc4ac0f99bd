//! Lines of names and values with aligned columns.

use std::fmt::Write;

use base::units::Figure;

/// Maximum width of a line in columns.
pub(super) const MAX_COLUMNS: usize = 100;

/// Lines of names and values with aligned columns, at most [`MAX_COLUMNS`] wide.
#[derive(Default)]
pub(super) struct Block {
    lines: Vec<(String, BlockValue)>,
}

enum BlockValue {
    Figure(Figure),
    /// A text that continues in the next line if it is too long.
    Text(String),
}

impl Block {
    /// Adds a line with a number and its unit.
    pub(super) fn figure(&mut self, name: impl Into<String>, figure: Figure) {
        self.lines.push((name.into(), BlockValue::Figure(figure)));
    }

    /// Adds a line with a text.
    pub(super) fn text(&mut self, name: impl Into<String>, text: String) {
        self.lines.push((name.into(), BlockValue::Text(text)));
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
        let digits = |value: &BlockValue| match value {
            BlockValue::Figure(f) => f.digits.len(),
            BlockValue::Text(_) => 0,
        };
        let width = self.lines.iter().map(|l| digits(&l.1)).max().unwrap_or(0);
        let indent = 4 + names + 5;
        let space = MAX_COLUMNS.saturating_sub(indent).max(20);
        for (name, value) in &self.lines {
            let value = match value {
                BlockValue::Text(text) => wrap(text, space).join(&format!("\n{:indent$}", "")),
                BlockValue::Figure(Figure {
                    digits,
                    unit,
                    bytes: None,
                }) => format!("{digits:>width$} {unit}"),
                BlockValue::Figure(Figure {
                    digits,
                    unit,
                    bytes: Some(bytes),
                }) => format!("{digits:>width$} {unit} ({bytes})"),
            };
            let result = writeln!(out, "    {name:<names$}  =  {value}");
            debug_assert!(result.is_ok(), "writing to a String cannot fail");
        }
    }
}

/// Splits a text into lines of at most `width` characters: at spaces, or after commas in longer
/// words.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let words = text.split(' ').flat_map(|word| {
        let is_long = word.chars().count() > width;
        let parts = word.split_inclusive(move |c| is_long && c == ',');
        parts.enumerate().map(|(n, part)| (n == 0, part))
    });
    let mut lines: Vec<String> = Vec::new();
    for (is_spaced, word) in words {
        let space = if is_spaced { " " } else { "" };
        match lines.last_mut() {
            Some(line) if line.chars().count() + space.len() + word.chars().count() <= width => {
                line.push_str(space);
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_continue_in_the_column_of_values() {
        let mut block = Block::default();
        let long = "word ".repeat(30) + &"mlx5_0,".repeat(20);
        block.text("via", long.clone());
        let mut out = String::new();
        block.print(&mut out);
        let lines: Vec<&str> = out.lines().collect();
        assert!(
            lines.iter().all(|line| line.chars().count() <= MAX_COLUMNS),
            "{out}"
        );
        assert!(lines[1].starts_with("            word"), "{out}");
        assert_eq!(lines.concat().matches("mlx5_0,").count(), 20, "{out}");
    }
}
