//! The inputs of a fuzzing target, in `testing/fuzz/corpus`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{fs, io};

use crate::random::Random;

/// Number of inputs that are made of the parts of a corpus.
const MIXTURES: u32 = 200;

/// Calls a target with each input of its corpus, and with mixtures of them.
///
/// # Panics
/// Panics if the target panics, with the path of the input, or if there are no inputs.
pub fn replay(name: &str, target: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let inputs = inputs(&directory.join(name))
        .unwrap_or_else(|error| panic!("cannot read the corpus of {name}: {error}"));
    assert!(!inputs.is_empty(), "the corpus of {name} is empty");
    let call = |path: &str, input: &[u8]| {
        let called = catch_unwind(AssertUnwindSafe(|| target(input)));
        let text = String::from_utf8_lossy(input);
        assert!(called.is_ok(), "{name} fails with {path}: {text:?}");
    };
    for (path, input) in &inputs {
        call(path, input);
    }
    let mut random = Random::new(1);
    for _ in 0..MIXTURES {
        call("a mixture", &mixture(&inputs, &mut random));
    }
}

/// Returns an input some of whose words are replaced by words of other inputs.
fn mixture(inputs: &[(String, Vec<u8>)], random: &mut Random) -> Vec<u8> {
    let parts = |random: &mut Random| -> Vec<&[u8]> {
        let input = &inputs[random.below(inputs.len())].1;
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric();
        let parts = input.chunk_by(|a, b| is_of_word(a) == is_of_word(b));
        parts.collect()
    };
    let mut mixed = parts(random);
    for _ in 0..=random.below(8) {
        let other = parts(random);
        let begin = random.below(other.len() + 1);
        let end = begin + random.below((other.len() - begin).min(8) + 1);
        let at = random.below(mixed.len() + 1);
        let until = at + random.below((mixed.len() - at).min(8) + 1);
        drop(mixed.splice(at..until, other[begin..end].iter().copied()));
    }
    mixed.concat()
}

fn inputs(directory: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry?.path();
        Ok((path.display().to_string(), fs::read(&path)?))
    };
    fs::read_dir(directory)?.map(read).collect()
}
