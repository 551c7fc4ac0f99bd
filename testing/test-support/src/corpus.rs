//! The inputs of a fuzzing target, in `testing/fuzz/corpus`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{fs, io};

/// Calls a target with each input of its corpus.
///
/// # Panics
/// Panics if the target panics, with the path of the input, or if there are no inputs.
pub fn replay(name: &str, target: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let inputs = inputs(&directory.join(name))
        .unwrap_or_else(|error| panic!("cannot read the corpus of {name}: {error}"));
    assert!(!inputs.is_empty(), "the corpus of {name} is empty");
    for (path, input) in inputs {
        assert!(
            catch_unwind(AssertUnwindSafe(|| target(&input))).is_ok(),
            "{name} fails with {path}"
        );
    }
}

fn inputs(directory: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry?.path();
        Ok((path.display().to_string(), fs::read(&path)?))
    };
    fs::read_dir(directory)?.map(read).collect()
}
