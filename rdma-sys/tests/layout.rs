//! Holds the bindings against the installed C headers: every structure's size and alignment, every
//! field's offset and size, every enumeration's size and sign, every constant's value, and that
//! every function exists.
//!
//! `layout/table.rs` (Rust's side) and `layout/probe.c` (C's side) are written from the bindings by
//! `regenerate`. The C compiler is `$CC`, or `cc`. `$RDMA_SYS_INCLUDE` names a directory of other
//! headers to hold against: of a newer rdma-core, say, where structures may have grown in the ways
//! that their documentation allows.

#![cfg(not(miri))] // Miri cannot start a compiler.
#![allow(missing_docs, reason = "a test")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

#[rustfmt::skip]
#[path = "layout/table.rs"]
#[allow(clippy::pedantic, clippy::unreadable_literal, reason = "generated")]
mod table;

/// The rdma-core that the bindings are made from.
const VERSION: &str = "44";

/// Structures that newer releases append to. The library allocates them itself or is told their
/// size, so programs built with the shorter one keep working.
const GROWS_AT_ITS_END: [&str; 4] = [
    "struct ibv_qp_ex",
    "struct ibv_cq_ex",
    "struct ibv_port_attr",
    "struct ibv_device_attr_ex",
];

/// Grows at its front: what stays is the distance from the end, which is how `verbs_get_ctx_op`
/// measures.
const GROWS_AT_ITS_FRONT: &str = "struct verbs_context";

/// Limits of libibumad's own tables, which newer releases raise.
const LIMITS: [&str; 2] = ["UMAD_MAX_DEVICES", "UMAD_MAX_PORTS"];

type Values = BTreeMap<String, String>;

fn pkg_config(arguments: &[&str]) -> Option<String> {
    let output = Command::new("pkg-config").args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What the headers say. Panics if anything of the table is missing in them.
fn c_values() -> Values {
    let probe = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout-probe");
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| OsString::from("cc")));
    cc.args(["-std=gnu11", "-Wno-deprecated-declarations", "-o"])
        .arg(&probe);
    if let Some(directory) = env::var_os("RDMA_SYS_INCLUDE") {
        cc.arg("-I").arg(directory);
    } else if let Some(flags) = pkg_config(&["--cflags", "libibverbs", "librdmacm", "libibumad"]) {
        cc.args(flags.split_whitespace());
    }
    cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layout/probe.c"));
    let compiled = cc
        .output()
        .expect("a C compiler ($CC, or cc: Debian package gcc)");
    assert!(
        compiled.status.success(),
        "the headers lack something that the bindings have (or are not installed: Debian packages libibverbs-dev \
         librdmacm-dev libibumad-dev):\n{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let run = Command::new(&probe)
        .output()
        .expect("the compiled probe runs");
    assert!(run.status.success(), "the probe failed: {}", run.status);
    String::from_utf8(run.stdout)
        .expect("ASCII")
        .lines()
        .map(|line| line.split_once('\t').expect("name, tab, value"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn rust_values() -> Values {
    let numbers = table::NUMBERS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.to_string()));
    let strings = table::STRINGS.iter().map(|(name, value)| {
        (
            (*name).to_owned(),
            value.to_str().expect("ASCII").to_owned(),
        )
    });
    numbers.chain(strings).collect()
}

/// Whether the headers in use are those that the bindings are made from: then nothing may have
/// grown.
fn same_version() -> bool {
    env::var_os("RDMA_SYS_INCLUDE").is_none()
        && pkg_config(&["--modversion", "libibverbs"])
            .is_some_and(|version| version.split('.').nth(2) == Some(VERSION))
}

fn number(values: &Values, name: &str) -> i64 {
    values[name].parse().expect("a number")
}

/// Whether a value that differs does so in a way that a newer header may.
fn may_differ(name: &str, rust: &Values, c: &Values) -> bool {
    let grown = |size: &str| number(c, size) - number(rust, size);
    if let Some(of) = name.strip_prefix("sizeof ") {
        let grows = GROWS_AT_ITS_END.contains(&of) || of == GROWS_AT_ITS_FRONT;
        // Reserved bytes are there to become fields; that the structure keeps its size has a row of
        // its own.
        let used_up = of.ends_with(".reserved") && grown(name) < 0;
        return (grows && grown(name) > 0) || used_up;
    }
    if name.starts_with(&format!("offsetof {GROWS_AT_ITS_FRONT}.")) {
        return grown(name) == grown(&format!("sizeof {GROWS_AT_ITS_FRONT}"));
    }
    LIMITS.contains(&name) && grown(name) > 0
}

#[test]
fn bindings_are_what_the_headers_say() {
    let (rust, c) = (rust_values(), c_values());
    assert!(
        rust.len() > 3000,
        "the table has shrunk to {} values: was it generated?",
        rust.len()
    );
    assert_eq!(
        rust.len(),
        table::NUMBERS.len() + table::STRINGS.len(),
        "two rows of the table have one name"
    );
    assert!(
        rust.keys().eq(c.keys()),
        "the two sides of the table name different things: regenerate both"
    );

    let exact = same_version();
    let wrong: Vec<String> = rust
        .iter()
        .filter(|(name, value)| c[*name] != **value && (exact || !may_differ(name, &rust, &c)))
        .map(|(name, value)| format!("{name}: {value} in Rust, {} in C", c[name]))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} values differ:\n{}",
        wrong.len(),
        rust.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_function_is_in_the_libraries() {
    let functions = table::functions();
    assert!(functions.len() > 100, "only {} functions", functions.len());
    for (name, address) in functions {
        assert!(!address.is_null(), "{name}");
    }
}

#[test]
fn pointers_without_provenance_are_what_the_table_says() {
    for pointer in [
        rdma_sys::IBV_ALLOCATOR_USE_DEFAULT,
        rdma_sys::__VERBS_ABI_IS_EXTENDED,
    ] {
        assert_eq!(pointer.addr(), usize::MAX);
    }
}
