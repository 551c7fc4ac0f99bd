//! The record of a mesh: a JSON document that grows while the mesh runs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use base::error::{Error, Result};
use base::files::{read_open_text, temporary};
use base::peer_text::printable_json;
use measure::spec::Spec;
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Cells};
use super::endpoint::Endpoint;
use super::outlier::{Outlier, SlowLimits};
use crate::mesh::schedule::MeshPattern;

/// Version of the schema. It increases when a field is removed or changes its meaning.
pub(crate) const SCHEMA: u32 = 1;

/// Maximum length in bytes of a record that is read.
const MAX_LEN: u64 = 2 << 30;

/// End of a record whose run is not complete.
const OPEN_END: &str = "\n]}\n";

/// A test of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct MeshTest {
    /// Unique label, which the cells use: the name of the test, and a number if it has several
    /// specifications.
    pub label: String,
    /// Specification of the test.
    pub spec: Spec,
}

/// Results of tests that started at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Group {
    /// Position of the round.
    pub round: u32,
    /// Label of the test.
    pub test: String,
    /// Endpoint that all tests share, in the patterns `incast` and `outcast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Number of tests that completed.
    pub completed: u32,
    /// Number of tests that failed.
    pub failed: u32,
    /// Sum of the bandwidths in bytes per second, for bandwidth tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<f64>,
    /// Jain's fairness index of the bandwidths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
}

/// The record of a mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct MeshRecord {
    /// Version of the schema.
    pub schema: u32,
    /// Name and version of the program.
    pub program: String,
    /// Order of the measurements.
    pub pattern: MeshPattern,
    /// Rules for outliers.
    pub limits: SlowLimits,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// The tests.
    pub tests: Vec<MeshTest>,
    /// The results.
    #[cfg_attr(
        any(test, feature = "testing"),
        schemars(with = "Vec<super::cell::NamedCell<'static>>")
    )]
    pub cells: Cells,
    /// Results of tests that started at the same time.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Hosts, ports and links that are slower than the others or failed.
    #[serde(default)]
    pub outliers: Vec<Outlier>,
}

impl MeshRecord {
    /// Creates a record without results.
    pub fn new(
        pattern: MeshPattern,
        limits: SlowLimits,
        endpoints: Vec<Endpoint>,
        tests: Vec<MeshTest>,
    ) -> Self {
        let cells = Cells::new(
            endpoints.iter().map(|e| e.name.clone()).collect(),
            tests.iter().map(|t| t.label.clone()).collect(),
        );
        Self {
            schema: SCHEMA,
            program: format!("rperf {}", env!("CARGO_PKG_VERSION")),
            pattern,
            limits,
            endpoints,
            tests,
            cells,
            groups: Vec::new(),
            outliers: Vec::new(),
        }
    }

    /// Returns `true` if `text` looks like the record of a mesh rather than that of other tests.
    pub fn is_likely(text: &str) -> bool {
        // The keys after the endpoints are far from the start in a large mesh.
        let start: String = text.chars().take(4096).collect();
        start.contains("\"endpoints\"")
    }

    /// Parses a record.
    pub fn parse(text: &str) -> Result<Self> {
        let text = &printable_json(text);
        let invalid = |e: serde_json::Error| {
            Error::protocol(format!(
                "cannot parse the record: not a record of rperf mesh: {e}"
            ))
            .with_help("create a record with `rperf mesh --record FILE …`")
        };
        let mut record = serde_json::from_str::<Self>(text).map_err(invalid)?;
        if record.schema != SCHEMA {
            return Err(Error::protocol(format!(
                "cannot parse the record: schema {}, expected schema {SCHEMA}",
                record.schema
            )));
        }
        let endpoints: Vec<String> = record.endpoints.iter().map(|e| e.name.clone()).collect();
        let tests: Vec<String> = record.tests.iter().map(|t| t.label.clone()).collect();
        match record.cells.renumber(&endpoints, &tests) {
            None => Ok(record),
            Some(name) => Err(Error::protocol(format!(
                "cannot parse the record: a cell names `{name}`, which is neither an endpoint nor a test"
            ))),
        }
    }

    /// Writes the record as a JSON document with one line per cell.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        self.write_open(out)?;
        let groups = serde_json::to_string(&self.groups)?;
        let outliers = serde_json::to_string_pretty(&self.outliers)?;
        write!(
            out,
            "\n],\n\"groups\": {groups},\n\"outliers\": {outliers}\n}}\n"
        )
    }

    /// Writes everything up to the last cell.
    fn write_open(&self, out: &mut impl Write) -> std::io::Result<()> {
        let head = serde_json::json!({
            "schema": self.schema,
            "program": self.program,
            "pattern": self.pattern,
            "limits": self.limits,
            "endpoints": self.endpoints,
            "tests": self.tests,
        });
        let head = serde_json::to_string(&head)?;
        let open = head.strip_suffix('}').unwrap_or(&head);
        write!(out, "{open},\n\"cells\": [")?;
        for (i, cell) in self.cells.list.iter().enumerate() {
            out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, &self.cells.named(cell))?;
        }
        Ok(())
    }
}

/// Reads the text of a record.
///
/// # Errors
/// Returns an error if the file cannot be read, is longer than 2 GiB, or is not UTF-8.
pub fn read_text(path: &Path, file: File) -> Result<String> {
    let name = format!("the record {}", path.display());
    read_open_text(file, &name, MAX_LEN)
}

/// The file of a record. It is a valid document after each cell, also if the coordinator dies.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: File,
    /// Position of the end, which the next cell replaces.
    end: u64,
    has_cells: bool,
}

impl RecordFile {
    /// Writes the record to a new file, which replaces `path`.
    pub fn create(path: &Path, record: &MeshRecord) -> Result<Self> {
        let error = |e| cannot_write(path, &e);
        let temporary = temporary(path).map_err(error)?;
        let mut out = BufWriter::new(temporary.as_file());
        record.write_open(&mut out).map_err(error)?;
        out.flush().map_err(error)?;
        drop(out);
        let end = temporary.as_file().metadata().map_err(error)?.len();
        let written = temporary.as_file().write_all_at(OPEN_END.as_bytes(), end);
        written.map_err(error)?;
        let file = temporary.persist(path).map_err(|e| error(e.error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            end,
            has_cells: !record.cells.list.is_empty(),
        })
    }

    /// Appends cells.
    pub(crate) fn append(&mut self, cells: &Cells, new: &[Cell]) -> Result<()> {
        let mut text = String::new();
        for cell in new {
            text += if self.has_cells { ",\n" } else { "\n" };
            self.has_cells = true;
            text += &serde_json::to_string(&cells.named(cell))
                .map_err(|e| cannot_write(&self.path, &e.into()))?;
        }
        let end = self.end + text.len() as u64;
        text += OPEN_END;
        self.file
            .write_all_at(text.as_bytes(), self.end)
            .map_err(|e| cannot_write(&self.path, &e))?;
        self.end = end;
        Ok(())
    }

    /// Replaces the file by the complete record.
    pub fn finish(self, record: &MeshRecord) -> Result<()> {
        let error = |e| cannot_write(&self.path, &e);
        let temporary = temporary(&self.path).map_err(error)?;
        let mut out = BufWriter::new(temporary.as_file());
        record.write(&mut out).map_err(error)?;
        out.flush().map_err(error)?;
        drop(out);
        let replaced = temporary.persist(&self.path);
        replaced.map(drop).map_err(|e| error(e.error))
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::system(format!("cannot write the record {}", path.display()), error)
}
