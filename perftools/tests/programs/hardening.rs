//! The tests that tests/HARDENING.md names exist, and no workflow runs an action by a movable tag.

use std::fs;
use std::path::PathBuf;

use test_support::hostile;

use crate::common;

/// Returns the text of a file that the table names: a program of tests, or a module of a crate.
fn source(file: &str) -> String {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let in_crate = file
        .split_once('/')
        .map(|(name, module)| package.join(name).join("src").join(module));
    let candidates = [
        package.join("tests").join(file),
        package.join("tests/programs").join(file),
        package.join("src").join(file),
        package.join("..").join(file),
    ];
    let mut candidates = candidates.into_iter().chain(in_crate);
    let text = candidates.find_map(|path| fs::read_to_string(path.with_extension("rs")).ok());
    text.unwrap_or_else(|| panic!("no file {file}"))
}

#[test]
fn tests_of_the_table_exist() {
    let table = include_str!("../HARDENING.md");
    let rows = table
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'));
    let mut count = 0;
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for group in cell.split("; ").filter(|group| group.ends_with(')')) {
            let (names, file) = group.rsplit_once(" (").unwrap();
            let source = source(file.trim_end_matches(')'));
            for name in names.split(", ") {
                let function = format!("fn {}()", name.trim_matches('`'));
                assert!(source.contains(&function), "{function} in {file}");
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count} tests");
}

#[test]
fn table_of_hostile_peers_is_up_to_date() {
    let table = hostile::markdown();
    let document = include_str!("../HARDENING.md");
    assert!(
        document.contains(&table),
        "HARDENING.md lacks this:\n{table}"
    );
}

/// Returns the sentences of a section of SECURITY.md, without its tables.
fn sentences(section: &str) -> Vec<String> {
    let lines = section.lines().filter(|line| !line.starts_with('|'));
    let text: Vec<&str> = lines.collect();
    let text = text.join("\n").replace("\n- ", "\n\n");
    let mut sentences = Vec::new();
    for paragraph in text.split("\n\n") {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        let ends = |word: &&str| word.ends_with('.') || word.ends_with(".**");
        sentences.extend(words.split_inclusive(ends).map(|words| words.join(" ")));
    }
    sentences
}

#[test]
fn sentences_of_security_have_their_tests() {
    let document = include_str!("../HARDENING.md");
    let rows = document.lines().filter_map(|line| line.split_once(" … | "));
    let keys: Vec<&str> = rows.map(|(key, _)| key.trim_start_matches("| ")).collect();
    let security = common::document("SECURITY.md");
    let sections = security.split("\n## ").filter(|section| {
        section.starts_with("What a to")
            || section.starts_with("What a tr")
            || section.starts_with("What servers")
    });
    let all: Vec<String> = sections
        .flat_map(|section| sentences(section.split_once('\n').unwrap().1))
        .collect();
    let is_listed = |sentence: &String| keys.iter().any(|key| sentence.starts_with(key));
    let missing: Vec<_> = all.iter().filter(|sentence| !is_listed(sentence)).collect();
    assert!(missing.is_empty() && all.len() > 60, "{missing:#?}");
    for key in keys {
        let is_used = all.iter().any(|sentence| sentence.starts_with(key));
        assert!(is_used, "SECURITY.md has no sentence {key}");
    }
}

#[test]
fn workflows_run_actions_by_their_digest() {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    // The published package does not have the workflows.
    let Ok(files) = fs::read_dir(package.join("../.github/workflows")) else {
        return;
    };
    let files = files.map(|file| file.unwrap().path());
    let texts = files.chain([package.join("../ci/action.yml")]);
    let texts: Vec<_> = texts
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let actions = lines.filter_map(|line| line.split_once("uses: "));
    let actions = actions.map(|(_, action)| action);
    let actions: Vec<_> = actions.filter(|action| *action != "./ci").collect();
    assert!(actions.len() > 20, "{actions:?}");
    for action in actions {
        let (_, reference) = action.split_once('@').unwrap();
        let (digest, version) = reference.split_once(" # v").expect(action);
        let is_digest = digest.len() == 40 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_digest && !version.is_empty(), "{action}");
    }
}
