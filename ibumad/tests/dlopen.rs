//! Programs with the feature `dlopen` start without libibumad and report that it is missing.

// Not `required-features`: `cargo test --test '*'` would be an error without the feature.
#![cfg(feature = "dlopen")]

use std::process::Command;
use std::{env, fs};

use ibumad::{Ca, ErrorKind};
use test_support::temp_dir::TempDir;

/// Set in the process that runs [`child`].
const CHILD: &str = "IBUMAD_DLOPEN_CHILD";

/// Not a test of its own: the other one runs it where libibumad is missing.
#[test]
fn child() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    for error in [Ca::names().unwrap_err(), Ca::by_name("mlx5_0").unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("libibumad.so.3"), "{error}");
        let help = error.help().expect("a remedy");
        assert!(help.starts_with("install libibumad"), "{help}");
    }
}

#[test]
fn missing_library_is_named_with_what_to_install() {
    // The dynamic linker takes the first file of this name, and it is not a library.
    let directory = TempDir::new();
    fs::write(directory.path().join("libibumad.so.3"), "").expect("a file");
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", directory.path())
        .output()
        .expect("the child runs");
    assert!(output.status.success(), "{output:?}");
}
