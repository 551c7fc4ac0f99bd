//! What is done with records that were written before.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::Path;

use super::print;
use crate::common::error::{Error, Result};
use crate::rperf::report::compare;
use crate::rperf::report::html::{self, Run};
use crate::rperf::report::json::Document;

fn read(path: &str) -> Result<Document> {
    let text =
        fs::read_to_string(path).map_err(|e| Error::system(format!("cannot read {path}"), &e))?;
    Document::read(&text).map_err(|e| e.context(path))
}

/// Ends with status 1 where the new run is worse.
pub(super) fn compare(old: &str, new: &str, threshold: f64) -> Result<()> {
    let rows = compare::compare(&read(old)?, &read(new)?, threshold);
    if rows.is_empty() {
        return Err(Error::usage(format!(
            "{old} and {new} have no test in common with the same parameters"
        )));
    }
    print(&compare::render(&rows))?;
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

/// Writes a page of these files.
pub(super) fn report(files: &[(Option<String>, String)], output: Option<&str>) -> Result<()> {
    let mut runs: Vec<Run> = Vec::new();
    for (name, path) in files {
        let document = read(path)?;
        if document.tests.is_empty() {
            return Err(Error::usage(format!(
                "{path}: no test is in it, so there is nothing to show"
            )));
        }
        let stem = Path::new(path)
            .file_stem()
            .map_or_else(|| path.clone(), |stem| stem.to_string_lossy().into_owned());
        let name = name.clone().unwrap_or(stem);
        // Two files of one name, in two directories, go by their paths.
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
        None if stdout().is_terminal() => Err(Error::usage(
            "a page is for a browser, not for a terminal: give --output (-o) a file, such as -o report.html",
        )),
        None => print(&page),
    }
}
