//! `rperf`: see `rperf --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    perftools::run::main(
        std::env::args_os()
            .skip(1)
            .map(|word| word.to_string_lossy().into_owned()),
    )
}
