//! Misspelled words of configuration files, which the programs that read them ignore or reject.

use host::HostFacts;

use super::finding::Finding;

/// Returns a warning for each misspelled word of the files whose paths begin with `path`.
pub(super) fn check(facts: &HostFacts, path: &str) -> Vec<Finding> {
    let words = facts.misspelled.iter();
    words
        .filter(|word| word.file.starts_with(path))
        .map(|found| {
            Finding::warning(format!(
                "line {}: unknown word `{}`, which has no effect",
                found.line, found.word
            ))
            .on(&found.file)
            .with_remedy(format!("did you mean {}?", found.known))
        })
        .collect()
}
