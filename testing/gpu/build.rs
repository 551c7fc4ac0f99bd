//! Builds the library that stands between a program and the driver's libcuda (`bridge.c`).

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=bridge.c");
    println!("cargo:rerun-if-changed=kernels.ptx");
    let directory = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let compiler = cc::Build::new().get_compiler();
    let link = |name: &str, arguments: &[&str]| {
        let mut command: Command = compiler.to_command();
        command.args(["-shared", "-fPIC", "-O1", "-o"]);
        let status = command.arg(directory.join(name)).args(arguments).status();
        assert!(status.is_ok_and(|status| status.success()), "{command:?}");
    };
    // It only has the name that the dynamic linker looks for.
    let empty = directory.join("empty.c");
    fs::write(&empty, "").expect("the output directory");
    let empty = empty.to_str().expect("a path in UTF-8");
    link(
        "libcuda_driver.so",
        &["-Wl,-soname,libcuda_driver.so", empty],
    );
    let search = format!("-L{}", directory.display());
    link(
        "libcuda_bridge.so",
        &["bridge.c", &search, "-Wl,--no-as-needed", "-lcuda_driver"],
    );
    let bridge = directory.join("libcuda_bridge.so");
    println!("cargo:rustc-env=CUDA_BRIDGE={}", bridge.display());
}
