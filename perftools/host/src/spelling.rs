//! Valid names, and words that are spelled nearly as known ones.

/// Returns `true` if the text is a valid name of a host, device or network interface.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-@+".contains(&b))
}

/// Returns the known word that differs from an unknown one in at most two letters, and that begins
/// with the same letter. Variants of a key, such as `cc_key` and `sm_key`, differ in the first one.
pub fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut nearest: Option<(usize, &str)> = None;
    for candidate in known {
        if word == candidate {
            return None;
        }
        // A file can have words of any length, and the distance takes time.
        let is_near = word.len().abs_diff(candidate.len()) <= 2
            && word.chars().next() == candidate.chars().next();
        if !is_near {
            continue;
        }
        let distance = strsim::damerau_levenshtein(word, candidate);
        if distance <= (candidate.len() / 4).min(2)
            && nearest.is_none_or(|(least, _)| distance < least)
        {
            nearest = Some((distance, candidate));
        }
    }
    nearest.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_misspelled_words_are_similar() {
        const KNOWN: [&str; 4] = ["sm_priority", "guid", "cc_key", "mtu"];
        for (word, expected) in [
            ("sm_prority", Some("sm_priority")),
            ("sm_priotiry", Some("sm_priority")),
            ("giud", Some("guid")),
            ("guid", None),
            ("sm_key", None),
            ("xm_priority", None),
            ("mut", None),
            ("", None),
        ] {
            assert_eq!(similar(word, KNOWN), expected, "{word}");
        }
    }
}
