//! Commands that read saved records: `rperf compare` and `rperf report`.

use std::fs::File;
use std::io::{IsTerminal, stdout};
use std::path::Path;

use base::error::{Error, Result};
use base::files::replace;
use fleet::mesh;
use fleet::mesh::record::{MeshRecord, read_text};
use report::compare;
use report::html::{self, NamedRun};
use report::json::Records;

use super::print;

fn read(path: &str) -> Result<String> {
    let file = File::open(path).map_err(|e| Error::system(format!("cannot read {path}"), &e))?;
    read_text(Path::new(path), file)
}

fn read_records(path: &str) -> Result<Records> {
    Records::parse(&read(path)?).map_err(|e| e.context(path))
}

/// Returns the record of a mesh; `None` if the file has records of other tests.
fn read_mesh(path: &str) -> Result<Option<MeshRecord>> {
    let text = read(path)?;
    if !MeshRecord::is_likely(&text) {
        return Ok(None);
    }
    let record = MeshRecord::parse(&text).map_err(|e| e.context(path))?;
    Ok(Some(record))
}

/// Compares two meshes and prints the differences.
fn compare_meshes(old: &MeshRecord, new: &MeshRecord, threshold: f64) -> Result<()> {
    let comparison = mesh::compare::compare(old, new, threshold);
    print(&mesh::compare::render(&comparison))?;
    if comparison.compared == 0 {
        return Err(Error::test(
            "cannot compare the meshes: they have no endpoints with the same tests in common",
        ));
    }
    match comparison.worse() {
        0 => Ok(()),
        n => Err(Error::test(format!(
            "{n} of {} cells are worse by more than {} %",
            comparison.compared,
            threshold * 100.0
        ))),
    }
}

/// Compares two runs and prints the differences.
///
/// # Errors
/// Returns an error if the new run is worse by more than `threshold`, if the runs have no test in
/// common, or if a file cannot be read.
pub(super) fn compare(old: &str, new: &str, threshold: Option<f64>) -> Result<()> {
    let limit = threshold.unwrap_or(compare::DEFAULT_THRESHOLD);
    if let (Some(old), Some(new)) = (read_mesh(old)?, read_mesh(new)?) {
        return compare_meshes(&old, &new, limit);
    }
    let comparison = compare::compare(&read_records(old)?, &read_records(new)?, threshold);
    print(&compare::render(&comparison))?;
    let rows = &comparison.rows;
    if rows.is_empty() {
        return Err(Error::test(format!(
            "cannot compare {old} and {new}: they have no test with the same parameters in common"
        )));
    }
    match rows
        .iter()
        .filter(|row| row.verdict == compare::ChangeVerdict::Worse)
        .count()
    {
        0 => Ok(()),
        n => Err(Error::test(format!(
            "{n} of {} figures are worse by more than {} %",
            rows.len(),
            limit * 100.0
        ))),
    }
}

/// Renders records as an HTML page, to the file `output` or to standard output. Each file has an
/// optional name for its run.
pub(super) fn report(files: &[(Option<String>, String)], output: Option<&str>) -> Result<()> {
    if let [(_, path)] = files {
        if let Some(record) = read_mesh(path)? {
            return write_page(&mesh::html::page(&record), output);
        }
    }
    let mut runs: Vec<NamedRun> = Vec::new();
    for (name, path) in files {
        let records = read_records(path)?;
        if records.tests.is_empty() {
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
        runs.push(NamedRun { name, records });
    }
    write_page(&html::page(&runs), output)
}

/// Writes a page to the file `output` or to standard output.
fn write_page(page: &str, output: Option<&str>) -> Result<()> {
    match output {
        Some(path) => replace(path.as_ref(), page),
        None if stdout().is_terminal() => {
            Err(Error::usage("cannot write an HTML page to a terminal")
                .with_help("name a file with --output (-o), such as -o report.html"))
        }
        None => print(page),
    }
}
