//! Lines with a name and a value, in the columns of ibv_devinfo.

/// Returns a line with one leading tab, the name, and the value in column 40.
pub(super) fn field(name: &str, value: impl std::fmt::Display) -> String {
    pad(1, name, 40, &value.to_string())
}

/// Returns a line with `indent` leading tabs, the name, and the value in the given column.
pub(super) fn pad(indent: usize, name: &str, column: usize, value: &str) -> String {
    let mut at = indent * 8 + name.len() + 1;
    let mut line = "\t".repeat(indent) + name + ":";
    while at < column {
        line.push('\t');
        at = (at / 8 + 1) * 8;
    }
    line + value + "\n"
}
