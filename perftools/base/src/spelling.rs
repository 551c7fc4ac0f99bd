//! Words that are spelled nearly as known ones.

/// Returns the known word that a misspelled one was meant to be. It begins with the same letter and
/// differs in at most two letters, and in one of each four. Variants of a word, such as `cc_key`
/// and `sm_key`, differ in the first letter, and `mlx4` and `mlx5` only in digits.
pub fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut nearest: Option<(usize, &str)> = None;
    for candidate in known {
        if word == candidate {
            return None;
        }
        // A file can have words of any length, and the distance takes time.
        let is_near = word.len().abs_diff(candidate.len()) <= 2
            && word.chars().next() == candidate.chars().next()
            && !letters(word).eq(letters(candidate));
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

fn letters(word: &str) -> impl Iterator<Item = char> {
    word.chars().filter(|c| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_misspelled_words_are_similar() {
        const KNOWN: [&str; 5] = ["sm_priority", "guid", "cc_key", "mtu", "MLX5_LOAD"];
        for (word, expected) in [
            ("sm_prority", Some("sm_priority")),
            ("sm_priotiry", Some("sm_priority")),
            ("giud", Some("guid")),
            ("guid", None),
            ("sm_key", None),
            ("xm_priority", None),
            ("mut", None),
            ("MLX6_LOAD", None),
            ("MLX5_LAOD", Some("MLX5_LOAD")),
            ("", None),
        ] {
            assert_eq!(similar(word, KNOWN), expected, "{word}");
        }
    }
}
