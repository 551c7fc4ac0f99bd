//! Checks that each example is a file to copy from: it needs nothing of this tree except the
//! published crates, and says how to build and run it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Maximum length of an example in lines.
const MAX_LINES: usize = 270;

/// Returns the name and the text of each example.
fn examples() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
    let mut examples: Vec<_> = fs::read_dir(directory)
        .expect("the directory of the examples")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            assert!(path.is_file(), "{}: expected a file", path.display());
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .expect("a name");
            (name.to_owned(), fs::read_to_string(&path).expect(name))
        })
        .collect();
    examples.sort();
    assert!(examples.len() >= 15, "{} examples", examples.len());
    examples
}

/// Returns the lines of the block in the head comment that starts with `fence`.
fn block<'a>(text: &'a str, fence: &str) -> Vec<&'a str> {
    let head = text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut lines = head.map(str::trim).skip_while(|line| *line != fence);
    lines.next();
    lines.take_while(|line| *line != "```").collect()
}

#[test]
fn each_example_is_one_short_safe_file() {
    for (name, text) in examples() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{name}: {lines} lines");
        for word in ["unsafe", "mod ", "include!"] {
            assert!(
                !text.lines().any(|line| line.trim_start().starts_with(word)),
                "{name}: {word}"
            );
        }
        assert!(!text.contains("unsafe"), "{name}: unsafe");
    }
}

#[test]
fn each_example_names_the_crates_that_it_uses() {
    let libraries = [
        ("rdma-verbs", "ibverbs"),
        ("rdmacm", "rdmacm"),
        ("rdma-messenger", "messenger"),
        ("ibumad", "ibumad"),
        ("tokio", "tokio"),
        ("clap", "clap"),
    ];
    for (name, text) in examples() {
        let dependencies = block(&text, "```toml");
        assert_eq!(dependencies.first(), Some(&"[dependencies]"), "{name}");
        let listed: BTreeSet<&str> = dependencies[1..]
            .iter()
            .map(|line| line.split_once(" = ").expect(line).0)
            .collect();
        assert!((1..=4).contains(&listed.len()), "{name}: {listed:?}");
        let used: BTreeSet<&str> = libraries
            .iter()
            .filter(|(_, library)| text.contains(&format!("{library}::")))
            .map(|(package, _)| *package)
            .collect();
        assert_eq!(listed, used, "{name}");
        let crates = text
            .lines()
            .filter_map(|line| line.strip_prefix("use "))
            .filter_map(|path| path.split("::").next());
        for used in crates {
            let is_known = libraries.iter().any(|(_, library)| *library == used);
            assert!(is_known || used == "std", "{name}: use {used}");
        }
    }
}

#[test]
fn each_example_has_its_command_and_a_row_in_the_readme() {
    let readme = include_str!("../README.md");
    let examples = examples();
    for (name, text) in &examples {
        let commands = block(text, "```text").join("\n");
        assert!(
            commands.contains(&format!("$ {name}")) || text.contains(&format!("host1$ {name}")),
            "{name}: no command"
        );
        let row = format!("| [`{name}`](src/bin/{name}.rs) | ");
        assert_eq!(readme.matches(&row).count(), 1, "{row}");
    }
    assert_eq!(readme.matches("](src/bin/").count(), examples.len());
}
