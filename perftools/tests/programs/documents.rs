//! The command lines of the README and of the book are valid.

use clap::Parser;
use perftools::ribinfo::args::Info;
use perftools::ribping::args::PingArgs;
use perftools::rperf::args;

use crate::common::{commands_of, document};

/// The pages that say what to run. The others name commands without their arguments.
const PAGES: [&str; 7] = [
    "README.md",
    "docs/quick-start.md",
    "docs/recipes.md",
    "docs/troubleshooting.md",
    "docs/coming-from.md",
    "docs/cluster.md",
    "docs/library.md",
];

/// Returns the text with single spaces, so that line breaks do not matter.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parses a command of the tools as they do. Returns `None` for other commands.
fn parse(line: &str) -> Option<(&'static str, Result<(), String>)> {
    // Redirections and pipes are not arguments.
    let end = |word: &&str| !word.starts_with(['>', '|']);
    let words: Vec<&str> = line.split_whitespace().take_while(end).collect();
    Some(match words.as_slice() {
        // The name of a tool or of a subcommand in a sentence.
        [_] | ["rperf", "mesh" | "monitor" | "tune" | "report" | "compare"] => return None,
        ["ribping", ..] => {
            let result = PingArgs::try_parse_from(&words).map_err(|error| error.to_string());
            let config = |args| perftools::ribping::session::PingConfig::new(&args);
            (
                "ribping",
                result.and_then(|args| match config(args) {
                    Ok(_) => Ok(()),
                    Err(error) => Err(error.to_string()),
                }),
            )
        }
        ["ribinfo", ..] => {
            let result = Info::try_parse_from(&words);
            (
                "ribinfo",
                result.map(|_| ()).map_err(|error| error.to_string()),
            )
        }
        ["rperf", rest @ ..] => {
            let result = args::parse(rest.iter().copied());
            (
                "rperf",
                result.map(|_| ()).map_err(|error| error.to_string()),
            )
        }
        _ => return None,
    })
}

#[test]
fn the_readme_is_short() {
    assert!(document("README.md").lines().count() <= 150);
}

#[test]
fn commands_of_the_documents_are_valid() {
    let mut seen = Vec::new();
    for page in PAGES {
        let text = document(page);
        for line in commands_of(&text) {
            let Some((program, result)) = parse(&line) else {
                continue;
            };
            // An invalid command line is shown with its error.
            if let Err(error) = result {
                let is_shown = words(&text).contains(&words(&error));
                assert!(is_shown, "{page}: {line}: {error}");
            }
            seen.push(program);
        }
    }
    let count = |program| seen.iter().filter(|name| **name == program).count();
    let counts = ["ribping", "ribinfo", "rperf"].map(count);
    assert!(
        counts[0] >= 15 && counts[1] >= 35 && counts[2] >= 60,
        "{counts:?}"
    );
}
