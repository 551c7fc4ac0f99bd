//! Quoting of words for the shell.

/// Quotes a word for the shell if necessary.
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+[]%@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Joins words to a command line.
pub fn join<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| quote(word.as_ref())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_special_characters_are_quoted() {
        assert_eq!(
            (quote("--id=mlx5_0:1"), quote("[fe80::1%eth0]")),
            ("--id=mlx5_0:1".into(), "[fe80::1%eth0]".into())
        );
        assert_eq!(quote("a b'c"), "'a b'\\''c'");
        assert_eq!(join(["rperf", "", "rc_bw"]), "rperf '' rc_bw");
    }
}
