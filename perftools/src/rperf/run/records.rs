//! Commands that read saved records: `rperf compare` and `rperf report`.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::Path;

use super::print;
use crate::common::error::{Error, Result};
use crate::rperf::report::compare;
use crate::rperf::report::html::{self, Run};
use crate::rperf::report::json::Document;

fn read_document(path: &str) -> Result<Document> {
    let text =
        fs::read_to_string(path).map_err(|e| Error::system(format!("cannot read {path}"), &e))?;
    Document::parse(&text).map_err(|e| e.context(path))
}

/// Compares two runs and prints the differences.
///
/// # Errors
/// Returns an error if the new run is worse by more than `threshold`, if the runs have no test in
/// common, or if a file cannot be read.
pub(super) fn compare(old: &str, new: &str, threshold: f64) -> Result<()> {
    let comparison = compare::compare(&read_document(old)?, &read_document(new)?, threshold);
    print(&compare::render(&comparison))?;
    let rows = &comparison.rows;
    if rows.is_empty() {
        return Err(Error::test(format!(
            "cannot compare {old} and {new}: they have no test with the same parameters in common"
        )));
    }
    match rows
        .iter()
        .filter(|row| row.verdict == compare::Verdict::Worse)
        .count()
    {
        0 => Ok(()),
        n => Err(Error::test(format!(
            "{n} of {} figures are worse by more than {} %",
            rows.len(),
            threshold * 100.0
        ))),
    }
}

/// Renders records as an HTML page, to the file `output` or to standard output. Each file has an
/// optional name for its run.
///
/// # Errors
/// Returns an error if a file cannot be read or has no tests, or if the page cannot be written.
pub(super) fn report(files: &[(Option<String>, String)], output: Option<&str>) -> Result<()> {
    let mut runs: Vec<Run> = Vec::new();
    for (name, path) in files {
        let document = read_document(path)?;
        if document.tests.is_empty() {
            return Err(Error::usage(format!(
                "cannot report {path}: it has no tests"
            )));
        }
        let stem = Path::new(path)
            .file_stem()
            .map_or_else(|| path.clone(), |stem| stem.to_string_lossy().into_owned());
        let name = name.clone().unwrap_or(stem);
        // If files in different directories have the same name, their runs are named after the
        // paths.
        let name = if runs.iter().any(|run| run.name == name) {
            path.clone()
        } else {
            name
        };
        runs.push(Run { name, document });
    }
    let page = html::page(&runs);
    match output {
        Some(path) => {
            fs::write(path, page).map_err(|e| Error::system(format!("cannot write {path}"), &e))
        }
        None if stdout().is_terminal() => {
            Err(Error::usage("cannot write an HTML page to a terminal")
                .with_help("name a file with --output (-o), such as -o report.html"))
        }
        None => print(&page),
    }
}
