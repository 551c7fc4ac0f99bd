//! A check has the same findings whichever other checks run.

use checks::CHECKS;
use checks::finding::Finding;
use host::HostFacts;
use host::root::Root;
use test_support::temp_dir::TempDir;

use super::tree::{hosts, names, unpack};

/// Runs checks on facts that no check has used yet.
fn run(root: &Root, names: &[&str]) -> Vec<Finding> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    checks::check(&HostFacts::read(root, None), &names)
}

#[test]
fn a_check_does_not_depend_on_the_other_checks() {
    let trees: Vec<TempDir> = names().iter().map(|name| unpack(name)).collect();
    let paths = trees.iter().map(|tree| tree.path().to_owned());
    for path in paths.chain(hosts()) {
        let root = Root::in_memory(&path).expect("a tree");
        let whole = run(&root, &[]);
        for (at, first) in CHECKS.iter().enumerate() {
            for second in &CHECKS[at..] {
                let names = [first.name, second.name];
                let mut expected = whole.clone();
                expected.retain(|finding| names.contains(&finding.check));
                assert_eq!(run(&root, &names), expected, "{} {names:?}", path.display());
            }
        }
    }
}
