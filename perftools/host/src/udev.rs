//! The rules of udev that name IPoIB interfaces.

use crate::root::Root;

/// The file with the rules.
pub const IPOIB_RULES: &str = "/etc/udev/rules.d/70-persistent-ipoib.rules";

/// A rule. It applies to devices that all of its conditions match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdevRule {
    /// The parts of the rule.
    pub parts: Vec<RulePart>,
}

/// A part of a rule, for example `ATTR{type}=="32"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulePart {
    /// The key, for example `ATTR{type}`.
    pub key: String,
    /// The operator. `==` and `!=` are conditions.
    pub operator: String,
    /// The value or pattern.
    pub value: String,
}

impl UdevRule {
    /// Parses a line.
    pub(crate) fn parse(line: &str) -> Self {
        let mut parts = Vec::new();
        // Commas occur in values, too.
        let mut rest = line;
        while let Some((head, quoted)) = rest.split_once('"') {
            let Some((value, after)) = quoted.split_once('"') else {
                break;
            };
            let head = head.trim_start_matches([',', ' ', '\t']).trim_end();
            let end = head.find(['=', '!', '+', '-', ':']).unwrap_or(head.len());
            parts.push(RulePart {
                key: head[..end].trim().to_owned(),
                operator: head[end..].trim().to_owned(),
                value: value.to_owned(),
            });
            rest = after;
        }
        Self { parts }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.parts.iter().find(|part| part.key == key)?;
        Some(&found.value)
    }
}

impl RulePart {
    /// Returns `true` if the part is a condition that this value does not fulfil.
    pub fn rejects(&self, value: &str) -> bool {
        let mut patterns = self.value.split('|');
        let is_match = patterns.any(|pattern| matches(pattern.as_bytes(), value.as_bytes()));
        match self.operator.as_str() {
            "==" => !is_match,
            "!=" => is_match,
            _ => false,
        }
    }
}

/// Matches a pattern of a shell, with `*`, `?` and `[…]`.
fn matches<'a>(mut pattern: &'a [u8], mut text: &'a [u8]) -> bool {
    // The pattern after the latest star, and the text from which it was matched last. Earlier stars
    // need no other attempts, so the time is not exponential in the number of stars.
    let mut retry: Option<(&'a [u8], &'a [u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            retry = Some((rest, text));
            pattern = rest;
        } else if pattern.is_empty() && text.is_empty() {
            return true;
        } else if let Some(after) = match_one(pattern, text) {
            (pattern, text) = after;
        } else if let Some((after_star, [_, from @ ..])) = retry {
            retry = Some((after_star, from));
            (pattern, text) = (after_star, from);
        } else {
            return false;
        }
    }
}

/// Matches the beginning of a pattern with one byte. Returns what follows both.
fn match_one<'a>(pattern: &'a [u8], text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (first, after) = text.split_first()?;
    match pattern {
        [b'?', rest @ ..] => Some((rest, after)),
        [b'[', rest @ ..] => {
            let end = rest.iter().skip(1).position(|b| *b == b']')? + 1;
            let (set, is_negated) = match &rest[..end] {
                [b'!', set @ ..] => (set, true),
                set => (set, false),
            };
            let in_range = |range: &[u8]| range[1] == b'-' && (range[0]..=range[2]).contains(first);
            let is_member = set.contains(first) || set.windows(3).any(in_range);
            (is_member != is_negated).then_some((&rest[end + 1..], after))
        }
        [byte, rest @ ..] => (byte == first).then_some((rest, after)),
        [] => None,
    }
}

/// Returns the rules, without comments.
pub(crate) fn ipoib_rules(root: &Root) -> Vec<UdevRule> {
    let text = root.text(IPOIB_RULES).unwrap_or_default();
    let lines = text.lines().map(str::trim);
    let rules = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    rules.map(UdevRule::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_a_rule_are_evaluated() {
        let rule = UdevRule::parse(
            r#"ACTION=="add", ATTR{address}=="?*00:02:c9", KERNEL!="ib[0-3]|x*", NAME="a,b""#,
        );
        assert_eq!(rule.get("NAME"), Some("a,b"));
        let rejects = |at: usize, value: &str| rule.parts[at].rejects(value);
        assert!(!rejects(0, "add") && rejects(0, "change"));
        assert!(!rejects(1, "80:00:02:c9") && rejects(1, "80:00:02:c8") && rejects(1, "00:02:c9"));
        assert!(rejects(2, "ib2") && rejects(2, "x1") && !rejects(2, "ib7"));
        assert!(!rejects(3, "other"));
        assert_eq!(UdevRule::parse("broken \"").parts, []);
        assert!(!matches(b"[", b"a") && !matches(b"[]", b"]") && matches(b"[!a]*", b"b"));
        assert!(matches(b"*a*bc*", b"xaybcbc") && matches(b"**", b"") && !matches(b"*a", b"ab"));
    }

    #[test]
    fn patterns_with_many_stars_take_little_time() {
        let pattern = "*a".repeat(30) + "*b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 2000]));
    }
}
