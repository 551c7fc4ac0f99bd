//! Compiles the C loop that the safe data path is compared with, always optimised as for a release.

fn main() {
    println!("cargo:rerun-if-changed=c/loop.c");
    cc::Build::new()
        .file("c/loop.c")
        .opt_level(3)
        .warnings_into_errors(true)
        .compile("benches_loop");
}
