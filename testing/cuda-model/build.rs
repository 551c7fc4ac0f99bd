//! Compiles the kernels of the GPU tests for the processor.

fn main() {
    let source = "../gpu/kernels.c";
    println!("cargo:rerun-if-changed={source}");
    cc::Build::new()
        .file(source)
        .opt_level(2)
        .compile("kernels");
}
