//! Lets tests define functions of libmlx5, which the library looks up when it first calls them.
//! This file is not part of the package.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,--export-dynamic-symbol=mlx5dv_*");
}
