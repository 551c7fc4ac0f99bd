//! Finds the libraries with pkg-config and links them, unless the feature `dlopen` is enabled. The
//! bindings are committed, so the build needs neither clang nor the C headers. The providers libefa
//! and libmlx5 are never linked (`src/library.rs`).

use std::env;

struct Library {
    /// Environment variable of the Cargo feature that enables the library, if it is optional.
    feature: Option<&'static str>,
    pkg_config: &'static str,
    /// Name for the linker.
    name: &'static str,
    minimum: &'static str,
    debian: &'static str,
    fedora: &'static str,
}

const LIBRARIES: [Library; 3] = [
    Library {
        feature: None,
        pkg_config: "libibverbs",
        name: "ibverbs",
        // rdma-core 32, the first version with ibv_query_gid_ex.
        minimum: "1.11.32",
        debian: "libibverbs-dev",
        fedora: "rdma-core-devel",
    },
    Library {
        feature: Some("CARGO_FEATURE_RDMACM"),
        pkg_config: "librdmacm",
        name: "rdmacm",
        minimum: "1.3.32",
        debian: "librdmacm-dev",
        fedora: "rdma-core-devel",
    },
    Library {
        feature: Some("CARGO_FEATURE_UMAD"),
        pkg_config: "libibumad",
        name: "ibumad",
        minimum: "3.2.32",
        debian: "libibumad-dev",
        fedora: "rdma-core-devel",
    },
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RDMA_SYS_NO_PKG_CONFIG");
    println!("cargo:rerun-if-env-changed=DOCS_RS");

    // Miri does not link and docs.rs does not have the libraries. Both only need the declarations.
    if env::var_os("CARGO_CFG_MIRI").is_some() || env::var_os("DOCS_RS").is_some() {
        return;
    }
    // The libraries are loaded when they are needed.
    if env::var_os("CARGO_FEATURE_DLOPEN").is_some() {
        return;
    }
    for library in &LIBRARIES {
        if library
            .feature
            .is_none_or(|feature| env::var_os(feature).is_some())
        {
            link(library);
        }
    }
}

fn link(library: &Library) {
    if env::var_os("RDMA_SYS_NO_PKG_CONFIG").is_some() {
        println!("cargo:rustc-link-lib=dylib={}", library.name);
        return;
    }
    let found = pkg_config::Config::new()
        .atleast_version(library.minimum)
        .statik(false)
        .probe(library.pkg_config);
    if let Err(error) = found {
        let Library {
            pkg_config,
            minimum,
            debian,
            fedora,
            ..
        } = library;
        eprintln!(
            "\nrdma-verbs-sys requires pkg-config and {pkg_config} {minimum} or newer (part of rdma-core).\n\
             \n    Debian, Ubuntu:  apt install pkg-config {debian}\
             \n    Fedora, RHEL:    dnf install pkgconf-pkg-config {fedora}\n\
             \nTo link by name without pkg-config, for example when cross-compiling, set RDMA_SYS_NO_PKG_CONFIG=1.\n\n{error}"
        );
        std::process::exit(1);
    }
}
