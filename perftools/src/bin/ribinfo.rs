//! `ribinfo`: see `ribinfo --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    perftools::ribinfo::main(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))
}
