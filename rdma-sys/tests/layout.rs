//! Compares the bindings with the installed C headers: the size and alignment of each structure,
//! the offset and size of each field, the size and sign of each enumeration, and the value of each
//! constant. It also checks that the libraries define all functions.
//!
//! `regenerate` lists them in `layout/table.rs`, and those that are newer than the oldest supported
//! library in `layout/newer_table.rs`. A C program prints the values of the headers. The C compiler
//! is `$CC`, or `cc`. Set `$RDMA_SYS_INCLUDE` to a directory with other headers, for example of a
//! newer rdma-core. Structures may then have grown in the ways that their documentation allows.

#![cfg(not(miri))] // Miri cannot start a compiler.
#![allow(missing_docs, unsafe_code, reason = "a test")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, CString, OsString};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The items of the bindings that are compared.
struct Table {
    headers: &'static [&'static str],
    structures: &'static [Structure],
    integers: &'static [Integer],
    other_types: &'static [OtherType],
    numbers: &'static [(&'static str, i64)],
    strings: &'static [(&'static str, &'static CStr)],
}

struct Structure {
    /// `struct`, `union` or `typedef`.
    tag: &'static str,
    name: &'static str,
    size: i64,
    alignment: i64,
    members: &'static [Member],
}

struct Member {
    /// The path of fields in Rust.
    path: &'static str,
    offset: i64,
    size: i64,
}

/// An alias of an integer: `enum` or `typedef`.
struct Integer {
    tag: &'static str,
    name: &'static str,
    size: i64,
    /// 1 if the type is unsigned.
    unsigned: i64,
}

struct OtherType {
    tag: &'static str,
    name: &'static str,
    size: i64,
}

const fn size_of_target<T>(_: *const T) -> i64 {
    size_of::<T>() as i64
}

macro_rules! structures {
    ($($tag:tt $name:ident { $($($path:ident).+),* })*) => {&[$(Structure {
        tag: stringify!($tag),
        name: stringify!($name),
        size: size_of::<$name>() as i64,
        alignment: align_of::<$name>() as i64,
        members: &[$(Member {
            path: stringify!($($path).+),
            offset: core::mem::offset_of!($name, $($path).+) as i64,
            size: {
                let value = core::mem::MaybeUninit::<$name>::uninit();
                // SAFETY: this takes the address of a field, which is not read.
                size_of_target(unsafe { &raw const (*value.as_ptr()).$($path).+ })
            },
        }),*],
    }),*]};
}

macro_rules! integers {
    ($($tag:tt $name:ident),*) => {&[$(Integer {
        tag: stringify!($tag),
        name: stringify!($name),
        size: size_of::<$name>() as i64,
        unsigned: ($name::MIN == 0) as i64,
    }),*]};
}

macro_rules! other_types {
    ($($tag:tt $name:ident),*) => {&[$(OtherType {
        tag: stringify!($tag),
        name: stringify!($name),
        size: size_of::<$name>() as i64,
    }),*]};
}

macro_rules! numbers {
    ($($name:ident),*) => {&[$((stringify!($name), $name as i64)),*]};
}

macro_rules! strings {
    ($($name:ident),*) => {&[$((stringify!($name), $name)),*]};
}

macro_rules! functions {
    ($($name:ident),*) => {vec![$((stringify!($name), $name as *const ())),*]};
}

#[rustfmt::skip]
#[path = "layout/table.rs"]
#[allow(clippy::pedantic, reason = "generated")]
mod table;

#[rustfmt::skip]
#[path = "layout/newer_table.rs"]
#[allow(clippy::pedantic, reason = "generated")]
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

/// A value in Rust, and the expression for it in C.
struct Row {
    name: String,
    rust: i64,
    c: String,
}

fn row(name: impl Into<String>, rust: i64, c: impl Into<String>) -> Row {
    Row {
        name: name.into(),
        rust,
        c: c.into(),
    }
}

fn c_type(tag: &str, name: &str) -> String {
    match tag {
        "typedef" => name.to_owned(),
        tag => format!("{tag} {name}"),
    }
}

/// Returns the path of a member in C. bindgen names anonymous members, and appends `_` to keywords.
fn c_path(rust: &str) -> String {
    let fields = rust.split('.').map(str::trim);
    let named = fields.filter(|field| !field.starts_with("__bindgen_anon_"));
    let named: Vec<&str> = named.map(|field| field.trim_end_matches('_')).collect();
    named.join(".")
}

fn structure_rows(structure: &Structure) -> Vec<Row> {
    let c = c_type(structure.tag, structure.name);
    let (size, alignment) = (structure.size, structure.alignment);
    let mut rows = vec![
        row(format!("sizeof {c}"), size, format!("sizeof({c})")),
        row(format!("alignof {c}"), alignment, format!("_Alignof({c})")),
    ];
    for member in structure.members {
        let path = c_path(member.path);
        rows.push(row(
            format!("offsetof {c}.{path}"),
            member.offset,
            format!("offsetof({c}, {path})"),
        ));
        // A flexible array member has no size in C.
        if member.size > 0 {
            rows.push(row(
                format!("sizeof {c}.{path}"),
                member.size,
                format!("sizeof((({c} *)0)->{path})"),
            ));
        }
    }
    rows
}

fn rows(table: &Table) -> Vec<Row> {
    let mut rows: Vec<Row> = table.structures.iter().flat_map(structure_rows).collect();
    for integer in table.integers {
        let c = c_type(integer.tag, integer.name);
        rows.push(row(
            format!("sizeof {c}"),
            integer.size,
            format!("sizeof({c})"),
        ));
        rows.push(row(
            format!("unsigned {c}"),
            integer.unsigned,
            format!("({c})-1 > ({c})0"),
        ));
    }
    for other in table.other_types {
        let c = c_type(other.tag, other.name);
        rows.push(row(
            format!("sizeof {c}"),
            other.size,
            format!("sizeof({c})"),
        ));
    }
    rows.extend(
        table
            .numbers
            .iter()
            .map(|&(name, value)| row(name, value, name)),
    );
    rows
}

/// Returns the values that a C program prints for the rows and strings. Panics if the headers lack
/// one of them.
fn c_values(program: &str, rows: &[Row], table: &Table) -> Values {
    let mut source = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in table.headers {
        writeln!(source, "#include <{header}>").unwrap();
    }
    source.push_str("int main(void) {\n");
    for Row { name, c, .. } in rows {
        writeln!(source, r#"printf("{name}\t%lld\n", (long long)({c}));"#).unwrap();
    }
    for (name, _) in table.strings {
        writeln!(source, r#"printf("{name}\t%s\n", {name});"#).unwrap();
    }
    source.push_str("}\n");
    let probe = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    let file = probe.with_extension("c");
    fs::write(&file, source).expect("a writable directory");

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
    let compiled = cc
        .arg(&file)
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

fn rust_values(rows: &[Row], table: &Table) -> Values {
    let numbers = rows
        .iter()
        .map(|row| (row.name.clone(), row.rust.to_string()));
    let strings = table.strings.iter().map(|(name, value)| {
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
    let mut rows = rows(&table::TABLE);
    // The addresses of pointers are not constants.
    for (name, pointer) in [
        (
            "IBV_ALLOCATOR_USE_DEFAULT",
            rdma_sys::IBV_ALLOCATOR_USE_DEFAULT,
        ),
        ("__VERBS_ABI_IS_EXTENDED", rdma_sys::__VERBS_ABI_IS_EXTENDED),
    ] {
        rows.push(row(name, pointer.addr() as i64, name));
    }
    let rust = rust_values(&rows, &table::TABLE);
    let c = c_values("probe", &rows, &table::TABLE);
    assert!(
        rust.len() > 3000,
        "the table has only {} values",
        rust.len()
    );
    assert_eq!(
        rust.len(),
        rows.len() + table::TABLE.strings.len(),
        "two rows of the table have the same name"
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
    let mut rows = rows(&newer_table::TABLE);
    // `inline/wr.rs` appends the function to the structure of the older headers.
    rows.push(row(
        "offsetof struct ibv_qp_ex.wr_flush",
        size_of::<rdma_sys::ibv_qp_ex>() as i64,
        "offsetof(struct ibv_qp_ex, wr_flush)",
    ));
    let rust = rust_values(&rows, &newer_table::TABLE);
    assert!(rust.len() > 150, "the table has only {} values", rust.len());
    assert_eq!(rust, c_values("newer_probe", &rows, &newer_table::TABLE));
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
