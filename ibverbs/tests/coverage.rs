//! COVERAGE.md names only tests that exist.

use std::fs;
use std::path::Path;

#[test]
#[cfg_attr(miri, ignore = "reads files of the source tree")]
fn every_test_named_in_coverage_exists() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let table = fs::read_to_string(tests.join("COVERAGE.md")).expect("COVERAGE.md");
    let mut missing = Vec::new();
    let mut named = 0;
    // Every second part is between backticks.
    for name in table.split('`').skip(1).step_by(2) {
        let exists = if let Some((file, test)) = name.split_once("::") {
            let path = match file.split_once('/') {
                Some((package @ ("rdmacm" | "messenger"), file)) => {
                    tests.join("../..").join(package).join("tests").join(file)
                }
                _ => tests.join(file),
            };
            fs::read_to_string(path.with_extension("rs"))
                .is_ok_and(|source| source.contains(&format!("fn {test}(")))
        } else if let Some(program) = name.strip_prefix("compile_fail/")
            && !program.is_empty()
        {
            let programs = tests.join("../../testing/compile-fail/tests/ibverbs");
            programs.join(program).exists()
        } else {
            continue;
        };
        named += 1;
        if !exists && name != "file::test" {
            missing.push(name);
        }
    }
    assert!(named > 100, "only {named} names found in COVERAGE.md");
    assert!(missing.is_empty(), "tests that do not exist: {missing:?}");
}
