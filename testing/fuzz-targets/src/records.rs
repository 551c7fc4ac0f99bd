//! The records of `rperf --json` and of `rperf mesh`, and everything that is made of them.

use fleet::mesh;
use fleet::mesh::record::MeshRecord;
use report::compare;
use report::html::{self, NamedRun};
use report::json::Records;
use report::text::Format;

use crate::{assert_printable, assert_same_json, lossy, two_texts};

/// Asserts that a page is complete and has no scripts: texts of a record are not markup.
fn assert_page(page: &str) {
    assert!(page.trim_end().ends_with("</html>"));
    assert!(!page.contains("<script"));
}

/// The output of `--json`.
pub fn rperf_record(data: &[u8]) {
    let records = match Records::parse(&lossy(data)) {
        Ok(records) => records,
        Err(error) => return assert_printable(&error.to_string()),
    };
    let text = records.render();
    assert_printable(&text);
    if records.tests.is_empty() {
        return;
    }
    let again = Records::parse(&text).expect("the program reads what it wrote");
    for (line, again) in text.lines().zip(again.render().lines()) {
        assert_same_json(line, again);
    }
    for record in &records.tests {
        assert_printable(&Format::default().render(record));
    }
    assert_page(&html::page(&[NamedRun {
        name: "run".to_owned(),
        records,
    }]));
}

/// Two outputs of `--json` with a line `---` between them.
pub fn compare_records(data: &[u8]) {
    let (old, new) = two_texts(data);
    let (Ok(old), Ok(new)) = (Records::parse(&old), Records::parse(&new)) else {
        return;
    };
    let comparison = compare::compare(&old, &new, Some(0.05));
    assert_printable(&compare::render(&comparison));
    let runs = [("a", old), ("b", new)].map(|(name, records)| NamedRun {
        name: name.to_owned(),
        records,
    });
    if runs.iter().all(|run| !run.records.tests.is_empty()) {
        assert_page(&html::page(&runs));
    }
}

/// The record of a mesh.
pub fn mesh_record(data: &[u8]) {
    let record = match MeshRecord::parse(&lossy(data)) {
        Ok(record) => record,
        Err(error) => return assert_printable(&error.to_string()),
    };
    let mut text = Vec::new();
    record.write(&mut text).expect("written to memory");
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    assert_printable(&text);
    let again = MeshRecord::parse(&text).expect("the program reads what it wrote");
    let mut rewritten = Vec::new();
    again.write(&mut rewritten).expect("written to memory");
    assert_same_json(&text, &String::from_utf8(rewritten).expect("JSON is UTF-8"));
    assert_printable(&mesh::text::render(&record));
    assert_page(&mesh::html::page(&record));
    let comparison = mesh::compare::compare(&record, &record, 0.05);
    assert_eq!(comparison.worse(), 0);
    assert_printable(&mesh::compare::render(&comparison));
}
