//! Escaping of text for HTML, so that text in a record is never interpreted as markup.

use std::fmt::{self, Write};

/// Text that is displayed with escapes for element content and quoted attributes.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if c.is_control() => f.write_char(' ')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        let text = Escaped("<script>\"x\" & 'y'</script>\n\0").to_string();
        assert_eq!(
            text,
            "&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;&lt;/script&gt;  "
        );
    }
}
