//! Makes text from a peer or from a file safe to print and to log.

/// Maximum length of an escaped text in characters.
const MAX_CHARS: usize = 2000;

/// Escapes the characters of a text that are unsafe to print, and cuts the result after 2000
/// characters. Applied to a result, it returns the same text.
///
/// Control characters, line separators, invisible and bidirectional formatting characters and
/// unassigned characters become `\u{…}`, `\n`, `\r` or `\t`. The result is one line, which neither
/// controls a terminal nor forges a line of a log. Escape sequences are not escaped again.
pub fn printable(text: &str) -> String {
    let mut result = String::with_capacity(text.len().min(MAX_CHARS));
    let mut len = 0;
    for c in text.chars() {
        len += printed_len(c);
        if len > MAX_CHARS {
            result.push('…');
            break;
        }
        push(&mut result, c);
    }
    result
}

/// Returns a text as one line that is safe to print. Control characters become spaces; the others
/// are escaped as by [`printable`].
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        push(&mut line, if c.is_control() { ' ' } else { c });
    }
    line
}

/// Escapes the characters of a text with many lines that are unsafe to print, as [`printable`].
/// Line breaks and tabs remain. A JSON document stays valid: it has such characters only in
/// strings, where they become `\u` sequences.
pub fn printable_lines(text: &str) -> String {
    let is_json = text.starts_with(['{', '[']);
    let mut lines = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') || is_safe(c) {
            lines.push(c);
        } else if is_json {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            lines.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            push(&mut lines, c);
        }
    }
    lines
}

/// Returns the number of characters that stand for a character.
fn printed_len(c: char) -> usize {
    if is_safe(c) {
        1
    } else {
        c.escape_debug().len()
    }
}

/// Returns `true` if a character can be printed as it is.
fn is_safe(c: char) -> bool {
    // `escape_debug` also escapes quotation marks and the backslash, which are safe.
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}

fn push(text: &mut String, c: char) {
    if is_safe(c) {
        text.push(c);
    } else {
        text.extend(c.escape_debug());
    }
}

/// Applies [`printable`] to all strings and keys of a JSON text, before it is parsed. Errors of the
/// JSON parser then quote only safe text, too.
///
/// It works on the text, because values of type `serde_json::Value` take a hundred times as much
/// memory as the text they are parsed from.
pub fn printable_json(json: &str) -> String {
    let mut result = String::with_capacity(json.len());
    let mut rest = json.chars();
    // Length of the current string as it is printed; `None` outside of strings.
    let mut len: Option<usize> = None;
    while let Some(c) = rest.next() {
        let Some(before) = len else {
            result.push(c);
            len = (c == '"').then_some(0);
            continue;
        };
        if c == '"' {
            result.push(c);
            len = None;
            continue;
        }
        let decoded = if c == '\\' {
            decode_escape(&mut rest)
        } else {
            Some(Ok(c))
        };
        // The JSON parser reports what is invalid, also where the text is cut.
        let c = match decoded {
            Some(Ok(control)) if c < ' ' => {
                result.push(control);
                continue;
            }
            Some(Ok(c)) => c,
            Some(Err(invalid)) => {
                result.extend(['\\', invalid]);
                continue;
            }
            None => {
                result.push('\\');
                continue;
            }
        };
        let after = before.saturating_add(printed_len(c));
        if after <= MAX_CHARS {
            push_json(&mut result, c);
            len = Some(after);
        } else {
            // What follows is omitted up to the end of the string.
            if before <= MAX_CHARS {
                result.push('…');
            }
            len = Some(usize::MAX);
        }
    }
    result
}

/// Appends a character of a string to a JSON text.
fn push_json(json: &mut String, c: char) {
    if matches!(c, '"' | '\\') {
        json.extend(['\\', c]);
    } else if is_safe(c) {
        json.push(c);
    } else {
        // The string contains the escape sequence itself.
        json.push('\\');
        json.extend(c.escape_debug());
    }
}

/// Reads an escape sequence after its backslash. Returns the character after the backslash as the
/// error if the sequence is invalid, and `None` at the end of the text.
fn decode_escape(rest: &mut std::str::Chars<'_>) -> Option<Result<char, char>> {
    let kind = rest.next()?;
    Some(match kind {
        '"' | '\\' | '/' => Ok(kind),
        'b' => Ok('\u{8}'),
        'f' => Ok('\u{c}'),
        'n' => Ok('\n'),
        'r' => Ok('\r'),
        't' => Ok('\t'),
        'u' => decode_units(rest).ok_or('u'),
        other => Err(other),
    })
}

/// Reads the digits of a `\u` sequence, and a second sequence if the first one is a high surrogate.
/// Consumes nothing if they are invalid.
fn decode_units(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let unit = |text: &str| {
        let digits = text
            .get(..4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let text = rest.as_str();
    let first = unit(text)?;
    let second = text[4..].strip_prefix("\\u").and_then(unit);
    let units = [Some(first), second];
    let (c, len) = match char::decode_utf16([first]).next() {
        Some(Ok(c)) => (c, 4),
        _ => match char::decode_utf16(units.into_iter().flatten()).next() {
            Some(Ok(c)) => (c, 10),
            _ => return None,
        },
    };
    *rest = text[len..].chars();
    Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn unsafe_characters_are_escaped() {
        for (text, expected) in [
            ("plain \"text\" 'ü' µs \\", "plain \"text\" 'ü' µs \\"),
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("line\nforged\r\t", "line\\nforged\\r\\t"),
            (
                "\u{202e}txt\u{2066}\u{200b}\u{feff}",
                "\\u{202e}txt\\u{2066}\\u{200b}\\u{feff}",
            ),
            (
                "\u{85}\u{2028}\u{e0041}\u{9b}",
                "\\u{85}\\u{2028}\\u{e0041}\\u{9b}",
            ),
        ] {
            assert_eq!(printable(text), expected);
            assert_eq!(printable(expected), expected);
        }
    }

    #[test]
    fn lines_stay_lines_and_json_stays_json() {
        let text = "a\tb\x1b[2J\n\u{9b}c\r\n";
        assert_eq!(printable_lines(text), "a\tb\\u{1b}[2J\n\\u{9b}c\\r\n");
        let json = "{\"a\": \"\u{9b}\u{202e}\u{e0041}ü\"}\n";
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let printed = printable_lines(json);
        assert!(
            printed.chars().all(|c| c == '\n' || is_safe(c)),
            "{printed}"
        );
        assert_eq!(value(&printed), value(json));
    }

    #[test]
    fn a_line_has_neither_breaks_nor_hidden_characters() {
        let text = "a\nb\u{1b}[31m \"c\" \u{202e}\u{742}d";
        assert_eq!(one_line(text), "a b [31m \"c\" \\u{202e}\\u{742}d");
    }

    #[test]
    fn long_texts_are_cut() {
        let text = printable(&"é".repeat(70_000));
        assert_eq!(text.chars().count(), MAX_CHARS + 1);
        assert!(text.ends_with('…'));
        assert_eq!(printable(&text), text);
        // Escapes count as the characters that are printed, so a second pass cuts nothing.
        let escaped = printable(&"\u{1b}".repeat(500));
        assert!(escaped.chars().count() <= MAX_CHARS + 1 && escaped.ends_with('…'));
        assert_eq!(printable(&escaped), escaped);
        let json = printable_json(&format!("\"{}\"", "\\u001b".repeat(500)));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), escaped);
    }

    #[test]
    fn json_escapes_do_not_bypass_the_check() {
        for json in [
            r#""\u001b[2J \u202e \n \udb40\udc41""#,
            "\"\\u001b[2J \u{202e} \\n \u{e0041}\"",
        ] {
            let text: String = serde_json::from_str(&printable_json(json)).unwrap();
            assert_eq!(text, r"\u{1b}[2J \u{202e} \n \u{e0041}");
        }
        for invalid in [
            r#""\x""#,
            r#""\u12""#,
            r#""\ud800""#,
            "\"\n\"",
            "\"",
            "\"\\",
        ] {
            let safe = printable_json(invalid);
            assert!(serde_json::from_str::<Value>(&safe).is_err(), "{safe:?}");
        }
    }

    /// Applies `printable` to all strings and keys of a value.
    fn map_strings(value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(printable(&text)),
            Value::Array(items) => items.into_iter().map(map_strings).collect(),
            Value::Object(map) => map
                .into_iter()
                .map(|(key, value)| (printable(&key), map_strings(value)))
                .collect(),
            other => other,
        }
    }

    proptest::proptest! {
        #[test]
        fn json_is_the_same_except_for_its_strings(
            texts: Vec<String>,
            key in "\\PC*|[\u{1}-\u{7f}\u{2028}-\u{202e}]*",
            repeated in 0_usize..3000,
        ) {
            let value = serde_json::json!({ key: texts, "n": [1, -2.5, null, true], "r": "\\\"".repeat(repeated) });
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let parsed: Value = serde_json::from_str(&printable_json(&json)).unwrap();
                proptest::prop_assert_eq!(&parsed, &map_strings(value.clone()));
            }
        }

        #[test]
        fn any_text_is_handled_without_a_panic(text: String) {
            let safe = printable_json(&text);
            proptest::prop_assert_eq!(
                serde_json::from_str::<Value>(&text).is_ok(),
                serde_json::from_str::<Value>(&safe).is_ok()
            );
        }
    }
}
