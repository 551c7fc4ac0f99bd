//! The size of the host, which is small enough to read at once.

use std::fs;
use std::path::Path;

/// Maximum number of lines without tests, comments and empty lines.
const MAX_LINES: usize = 1200;

#[test]
fn the_host_is_small_and_has_no_unsafe_code() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut lines = 0;
    for entry in fs::read_dir(directory).expect("the sources") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a source");
        if path.to_string_lossy().ends_with("_tests.rs") {
            continue;
        }
        let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
        let code = code.map(str::trim_start);
        lines += code
            .filter(|line| !line.is_empty() && !line.starts_with("//"))
            .count();
        assert!(!text.contains("allow(unsafe_code)"));
    }
    assert!((500..=MAX_LINES).contains(&lines), "{lines} lines");
}
