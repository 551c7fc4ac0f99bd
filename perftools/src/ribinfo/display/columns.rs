//! Lines of a name and a value, in the columns of ibv_devinfo.

/// `\tNAME:` and tabs up to the column of the values.
pub(super) fn field(name: &str, value: impl std::fmt::Display) -> String {
    pad(1, name, 40, &value.to_string())
}

/// As [`field`], so many tabs in, with the values in this column.
pub(super) fn pad(indent: usize, name: &str, column: usize, value: &str) -> String {
    let mut at = indent * 8 + name.len() + 1;
    let mut line = "\t".repeat(indent) + name + ":";
    while at < column {
        line.push('\t');
        at = (at / 8 + 1) * 8;
    }
    line + value + "\n"
}
