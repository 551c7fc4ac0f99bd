//! Compares the bindings with the installed C headers: the size and alignment of each structure,
//! the offset and size of each field, the size and sign of each enumeration, and the value of each
//! constant. It also checks that the libraries define all functions.
//!
//! `regenerate` writes `layout/table.rs` (the values of Rust) and `layout/probe.c` (a program that
//! prints the values of C) from the bindings, and `layout/newer_*` from those of functions that are
//! newer than the oldest supported library. The C compiler is `$CC`, or `cc`. Set
//! `$RDMA_SYS_INCLUDE` to a directory with other headers, for example of a newer rdma-core.
//! Structures may then have grown in the ways that their documentation allows.

#![cfg(not(miri))] // Miri cannot start a compiler.
#![allow(missing_docs, unsafe_code, reason = "a test")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, CString, OsString};
use std::path::Path;
use std::process::Command;

#[rustfmt::skip]
#[path = "layout/table.rs"]
#[allow(clippy::pedantic, clippy::unreadable_literal, reason = "generated")]
mod table;

#[rustfmt::skip]
#[path = "layout/newer_table.rs"]
#[allow(clippy::pedantic, clippy::unreadable_literal, reason = "generated")]
mod newer_table;

/// The version of rdma-core whose headers the bindings were generated from.
const VERSION: &str = "44";

/// Structures to which newer releases append fields. The library allocates them itself, takes their
/// size as an argument or has a mask of the valid fields, so programs compiled with the shorter
/// structure still work.
const GROWS_AT_ITS_END: [&str; 11] = [
    "struct ibv_qp_ex",
    "struct ibv_cq_ex",
    "struct ibv_port_attr",
    "struct ibv_device_attr_ex",
    "struct efadv_cq",
    "struct efadv_cq_init_attr",
    "struct efadv_qp_init_attr",
    "struct mlx5dv_context",
    "struct mlx5dv_context_attr",
    "struct mlx5dv_flow_action_attr",
    "struct mlx5dv_obj",
];

/// A structure to which newer releases prepend fields. The distance of a field from the end does
/// not change, and `verbs_get_ctx_op` uses that distance.
const GROWS_AT_ITS_FRONT: &str = "struct verbs_context";

/// Limits of tables in libibumad, which newer releases raise.
const LIMITS: [&str; 2] = ["UMAD_MAX_DEVICES", "UMAD_MAX_PORTS"];

type Values = BTreeMap<String, String>;

fn pkg_config(arguments: &[&str]) -> Option<String> {
    let output = Command::new("pkg-config").args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the values that the program `name` of `layout/` prints. Panics if the headers lack an
/// item of it.
fn c_values(name: &str) -> Values {
    let probe = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| OsString::from("cc")));
    cc.args(["-std=gnu11", "-Wno-deprecated-declarations", "-o"])
        .arg(&probe);
    if let Some(directory) = env::var_os("RDMA_SYS_INCLUDE") {
        cc.arg("-I").arg(directory);
    } else if let Some(flags) = pkg_config(&[
        "--cflags",
        "libibverbs",
        "librdmacm",
        "libibumad",
        "libefa",
        "libmlx5",
    ]) {
        cc.args(flags.split_whitespace());
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layout");
    cc.arg(source.join(name).with_extension("c"));
    let compiled = cc
        .output()
        .expect("a C compiler ($CC, or cc: Debian package gcc)");
    assert!(
        compiled.status.success(),
        "the headers lack an item of the bindings, or are not installed (Debian packages \
         libibverbs-dev librdmacm-dev libibumad-dev):\n{}",
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

fn rust_values(numbers: &[(&str, i64)], strings: &[(&str, &CStr)]) -> Values {
    let numbers = numbers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.to_string()));
    let strings = strings.iter().map(|(name, value)| {
        (
            (*name).to_owned(),
            value.to_str().expect("ASCII").to_owned(),
        )
    });
    numbers.chain(strings).collect()
}

/// Returns `true` if the headers have the version that the bindings were generated from. Then no
/// structure may have grown.
fn same_version() -> bool {
    env::var_os("RDMA_SYS_INCLUDE").is_none()
        && pkg_config(&["--modversion", "libibverbs"])
            .is_some_and(|version| version.split('.').nth(2) == Some(VERSION))
}

fn number(values: &Values, name: &str) -> i64 {
    values[name].parse().expect("a number")
}

/// Returns `true` if newer headers may change the value in this way.
fn may_differ(name: &str, rust: &Values, c: &Values) -> bool {
    let grown = |size: &str| number(c, size) - number(rust, size);
    if let Some(of) = name.strip_prefix("sizeof ") {
        let grows = GROWS_AT_ITS_END.contains(&of) || of == GROWS_AT_ITS_FRONT;
        // Reserved bytes may become fields. Another row checks that the structure keeps its size.
        let used_up = of.ends_with(".reserved") && grown(name) < 0;
        return (grows && grown(name) > 0) || used_up;
    }
    if name.starts_with(&format!("offsetof {GROWS_AT_ITS_FRONT}.")) {
        return grown(name) == grown(&format!("sizeof {GROWS_AT_ITS_FRONT}"));
    }
    LIMITS.contains(&name) && grown(name) > 0
}

#[test]
fn bindings_match_the_headers() {
    let rust = rust_values(table::NUMBERS, table::STRINGS);
    let c = c_values("probe");
    assert!(
        rust.len() > 3000,
        "the table has only {} values",
        rust.len()
    );
    assert_eq!(
        rust.len(),
        table::NUMBERS.len() + table::STRINGS.len(),
        "two rows of the table have the same name"
    );
    assert!(
        rust.keys().eq(c.keys()),
        "the Rust table and the C probe have different rows; run `regenerate`"
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
#[ignore = "needs headers of rdma-core 65 in RDMA_SYS_INCLUDE: run by ci/test newer_verbs"]
fn newer_bindings_match_the_newer_headers() {
    let rust = rust_values(newer_table::NUMBERS, newer_table::STRINGS);
    assert!(rust.len() > 150, "the table has only {} values", rust.len());
    assert_eq!(rust, c_values("newer_probe"));
}

#[test]
#[ignore = "needs rdma-core 65: run by ci/test newer_verbs"]
fn newer_libraries_define_all_newer_functions() {
    let functions = newer_table::functions();
    assert!(functions.len() > 20, "only {} functions", functions.len());
    for (name, _) in functions {
        let symbol = CString::new(name).expect("no NUL byte");
        // SAFETY: the name ends with a NUL byte.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
        assert!(!address.is_null(), "{name}");
    }
}

#[test]
fn libraries_define_all_functions() {
    let functions = table::functions();
    assert!(functions.len() > 100, "only {} functions", functions.len());
    // The program is not linked with providers.
    let provider = |file: &std::ffi::CStr| {
        // SAFETY: the initialization of the libraries of rdma-core has no preconditions.
        unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) }
    };
    let (efa, mlx5) = (provider(c"libefa.so.1"), provider(c"libmlx5.so.1"));
    assert!(!efa.is_null() && !mlx5.is_null());
    for (name, mut address) in functions {
        let library = match name {
            _ if name.starts_with("efadv_") => efa,
            _ if name.starts_with("mlx5dv_") => mlx5,
            _ => std::ptr::null_mut(),
        };
        if !library.is_null() {
            let symbol = CString::new(name).expect("no NUL byte");
            // SAFETY: the library is loaded, and the name ends with a NUL byte.
            address = unsafe { libc::dlsym(library, symbol.as_ptr()) }
                .cast_const()
                .cast();
        }
        assert!(!address.is_null(), "{name}");
    }
}

#[test]
fn marker_pointers_have_all_bits_set() {
    for pointer in [
        rdma_sys::IBV_ALLOCATOR_USE_DEFAULT,
        rdma_sys::__VERBS_ABI_IS_EXTENDED,
    ] {
        assert_eq!(pointer.addr(), usize::MAX);
    }
}
