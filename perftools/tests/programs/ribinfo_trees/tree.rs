//! The trees of `fixtures/trees` and `fixtures/hosts`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use test_support::temp_dir::TempDir;

const EXPECT: &str = "expect ";
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

/// Returns the names of all trees.
pub(crate) fn names() -> Vec<String> {
    let files = fs::read_dir(format!("{FIXTURES}/trees")).expect("the trees");
    let name = |file: fs::DirEntry| {
        let name = file.file_name().into_string().expect("a name");
        name.strip_suffix(".tree").map(str::to_owned)
    };
    let mut names: Vec<String> = files.flatten().filter_map(name).collect();
    names.sort();
    names
}

/// Returns the directories of the captured hosts.
pub(crate) fn hosts() -> Vec<PathBuf> {
    ["ipoib", "mlx4", "rxe", "siw"]
        .map(|name| format!("{FIXTURES}/hosts/{name}").into())
        .into()
}

/// Writes a tree to a directory.
///
/// A line of a tree is `PATH = TEXT`, `PATH -> TARGET`, `PATH <<` before lines up to `>>`, `PATH/`
/// for a directory, `- PATH` for a file of the base that the tree lacks, or `base NAME`. A tree
/// with a fault has a line `expect TEXT => REMEDY`.
pub(crate) fn unpack(name: &str) -> TempDir {
    let directory = TempDir::new();
    write(name, directory.path());
    directory
}

/// Returns words of the only finding on a tree, and words of its remedy.
pub(crate) fn expected(name: &str) -> Option<(String, String)> {
    let text = read(name);
    let mut expected = text.lines().filter_map(|line| line.strip_prefix(EXPECT));
    let (finding, remedy) = expected.next()?.split_once(" => ").expect("a remedy");
    Some((finding.to_owned(), remedy.to_owned()))
}

fn read(name: &str) -> String {
    fs::read_to_string(format!("{FIXTURES}/trees/{name}.tree")).expect("a tree")
}

fn write(name: &str, to: &Path) {
    let text = read(name);
    let mut lines = text.lines();
    let create = |path: &str, content: &str| {
        let path = below(to, path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, format!("{content}\n")).expect("a file");
    };
    while let Some(line) = lines.next() {
        if line.starts_with(EXPECT) {
            continue;
        }
        if let Some(base) = line.strip_prefix("base ") {
            write(base, to);
        } else if let Some(path) = line.strip_prefix("- ") {
            let path = below(to, path);
            let removed = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            removed.unwrap_or_else(|e| panic!("{name}: {line}: {e}"));
        } else if let Some((path, target)) = line.split_once(" -> ") {
            let path = below(to, path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            let _ = fs::remove_file(&path);
            symlink(target, path).expect("a link");
        } else if let Some(path) = line.strip_suffix(" <<") {
            let content: Vec<&str> = lines.by_ref().take_while(|line| *line != ">>").collect();
            create(path, &content.join("\n"));
        } else if let Some((path, content)) = line.split_once(" = ") {
            create(path, content);
        } else if let Some(path) = line.strip_suffix(" =") {
            create(path, "");
        } else {
            assert!(line.ends_with('/'), "{name}: {line}");
            fs::create_dir_all(below(to, line)).expect("a directory");
        }
    }
    remove_empty(to);
}

fn below(to: &Path, path: &str) -> PathBuf {
    to.join(path.trim_matches('/'))
}

/// Removes the directories whose files a tree lacks. Those of the kernel in `/sys/module` and
/// `/sys/class/iommu` are facts.
fn remove_empty(directory: &Path) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let is_fact = ["module", "iommu"]
            .iter()
            .any(|name| directory.ends_with(name));
        if entry.file_type().expect("a type").is_dir() && !is_fact {
            remove_empty(&entry.path());
            let _ = fs::remove_dir(entry.path());
        }
    }
}
