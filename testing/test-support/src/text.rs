//! Assertions on texts.

use std::fmt::Display;

/// Asserts that `text` contains each of these parts.
///
/// # Panics
/// Panics with the text if a part is missing.
#[track_caller]
pub fn assert_contains(text: impl Display, parts: &[&str]) {
    let text = text.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in this text:\n{text}");
    }
}
